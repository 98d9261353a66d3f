"""The commands that hosts are given: which document, which hosts, which parameters. Parameters are names, ids and
numbers of ours; what a user wrote travels in the work order, never as a parameter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volumetry.plan import PlannedLoad, PlannedTopology, PlannedTrial
from volumetry.spec import STACKS, Tuning

# SSM's agent asks for a command at its next poll, and reports its end at the one after.
PREPARE_S = 600
STACK_S = 120


@dataclass(frozen=True)
class Host:
    """A host that runs: where it is, and what it holds."""

    name: str
    instance_id: str
    address: str
    second_address: str | None
    volume_id: str
    az: str
    az_id: str
    image_id: str


@dataclass(frozen=True)
class Command:
    """One document on some hosts at once; ``expected_s`` is how long to wait before the first look."""

    document: str
    instance_ids: list[str]
    parameters: dict[str, str]
    expected_s: int
    timeout_s: int

    def to_machine(self, documents: Mapping[str, str]) -> dict[str, Any]:
        """The input of the command state machine; ``documents`` maps our names to those deployed."""
        return {
            "document": documents[self.document],
            "instance_ids": self.instance_ids,
            "parameters": {name: [value] for name, value in self.parameters.items()}
            | {"TimeoutSeconds": [str(self.timeout_s)]},
            "expected_s": self.expected_s,
            "timeout_s": self.timeout_s,
        }


def _listing(hosts: list[Host], attribute: str) -> str:
    return ",".join(f"{host.name}={getattr(host, attribute)}" for host in hosts)


def _ids(hosts: list[Host]) -> list[str]:
    return [host.instance_id for host in hosts]


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def make_stack(target: str, topology: PlannedTopology, hosts: list[Host]) -> Command:
    """Make the volume under test, or make it anew."""
    parameters = {
        "Target": target,
        "Volumes": _listing(hosts, "volume_id"),
        "Overwrite": _yes(topology.overwrite),
    }
    if topology.stack in ("nbd-mirror", "drbd"):
        parameters["Links"] = str(topology.links)
        parameters["SecondAddresses"] = _listing(hosts, "second_address") if topology.links > 1 else ""
    if STACKS[topology.stack].mirror:
        parameters["Number"] = str(topology.number)
    if topology.stack == "drbd":
        parameters |= {"Protocol": topology.drbd["protocol"], "InitialSync": topology.drbd["initial_sync"]}
    return Command(f"stack-{topology.stack}", _ids(hosts), parameters, 0, STACK_S)


def configure(
    target: str, topology: PlannedTopology, hosts: list[Host], together: list[Host], tools: list[str]
) -> list[Command]:
    """What turns hosts that run into a topology ready for trials, in order; ``together``: all hosts of its launch."""
    prepare = {
        "Hosts": _listing(together, "address"),
        "Stack": topology.stack,
        "Tools": ",".join(tools),
        "Filesystem": topology.filesystem or "none",
    }
    found = [
        Command("prepare", _ids(hosts), prepare, 0, PREPARE_S),
        make_stack(target, topology, hosts),
    ]
    if topology.kernel is not None:
        # First: a module belongs to a kernel.
        found.insert(0, Command("choose-kernel", _ids(hosts), {"Kernel": topology.kernel}, 0, PREPARE_S))
    if topology.filesystem is not None:
        return [*found, _file_system(target, topology, hosts)]
    fill_s = int(topology.precondition_s)
    fill = {"Target": target, "Client": topology.clients[0], "Bytes": str(topology.precondition_bytes)}
    return [*found, Command("precondition", _ids(hosts), fill, fill_s, 4 * fill_s + 120)]


def _file_system(target: str, topology: PlannedTopology, hosts: list[Host]) -> Command:
    parameters = {"Target": target, "Client": topology.clients[0], "Type": topology.filesystem or "none"}
    return Command("filesystem", _ids(hosts), parameters, 0, STACK_S)


def tune(target: str, topology: PlannedTopology, hosts: list[Host], tuning: Tuning, action: str) -> list[Command]:
    """Apply a tuning, or undo it in the reverse order (``action``: apply, undo). Nothing, when it is empty."""
    steps = [
        *_tune_network(target, topology, hosts, tuning, action),
        *_tune_replication(target, hosts, tuning, action),
        *_tune_filesystem(target, topology, hosts, tuning, action),
    ]
    if action == "undo" and tuning.network is not None:
        # Network and stack stay in their order: the stack is made anew over the network that it is to have.
        return [*steps[2:][::-1], *steps[:2]]
    return steps if action == "apply" else steps[::-1]


def _tune_network(
    target: str, topology: PlannedTopology, hosts: list[Host], tuning: Tuning, action: str
) -> list[Command]:
    """The stack is made anew, since open connections keep their buffers."""
    if tuning.network is None:
        return []
    parameters = {
        "Action": action,
        "Mtu": _text(tuning.network.mtu),
        "TcpRmem": " ".join(map(str, tuning.network.tcp_rmem or ())),
        "TcpWmem": " ".join(map(str, tuning.network.tcp_wmem or ())),
    }
    return [Command("tune-network", _ids(hosts), parameters, 0, STACK_S), make_stack(target, topology, hosts)]


def _tune_replication(target: str, hosts: list[Host], tuning: Tuning, action: str) -> list[Command]:
    if tuning.replication is None:
        return []
    values = tuning.replication.model_dump()
    parameters = {"Target": target, "Action": action} | {_camel(name): _text(value) for name, value in values.items()}
    return [Command("tune-replication", _ids(hosts), parameters, 0, STACK_S)]


def _tune_filesystem(
    target: str, topology: PlannedTopology, hosts: list[Host], tuning: Tuning, action: str
) -> list[Command]:
    if tuning.filesystem is None:
        return []
    values = tuning.filesystem.model_dump()
    parameters = {"Target": target, "Action": action, "Client": topology.clients[0]}
    parameters |= {_camel(name): _text(value) for name, value in values.items()}
    return [Command("tune-filesystem", _ids(hosts), parameters, 0, STACK_S)]


def _camel(name: str) -> str:
    """A parameter's name: SSM's are letters and digits alone."""
    return name.title().replace("_", "")


def _text(value: object) -> str:
    """A parameter's value; what was not asked for is empty, and left as it is."""
    if isinstance(value, bool):
        return _yes(value)
    return "" if value is None else str(value)


# One command after the other; several of these side by side are a stage; stages follow one another.
Track = list[Command]
Stage = list[Track]


def run(
    trial: PlannedTrial, topology: PlannedTopology, load: PlannedLoad, hosts: list[Host], order: str
) -> list[Stage]:
    """Run a trial; ``order`` is the URL of its work order. Without a failure it is one command on all hosts at once."""
    seconds = int((2 if load.alone else 1) * (load.ramp_s + load.runtime_s))

    def on(document: str, some: list[Host], **more: str) -> Command:
        expected_s = seconds if document.startswith("run-") else 0
        return Command(document, _ids(some), {"WorkOrderUrl": order} | more, expected_s, trial.timeout_s)

    if load.failure is None:
        return [[[on(f"run-{load.tool}", hosts)]]]
    clients = [host for host in hosts if host.name in topology.clients]
    peers = [host for host in hosts if host.name not in topology.clients]
    struck = [on("fail", peers, Phase="strike")]
    if load.failure.event == "kill-peer":
        struck.append(on("fail", peers, Phase="rejoin"))
    stages = [[[on(f"run-{load.tool}", clients)], struck]]
    if load.tool == "fio":
        stages.append([[on("verify", clients, Role="writer"), on("verify", peers, Role="peer")]])
    return [*stages, [[on("collect", hosts)]]]
