"""The commands that hosts are given: which document, which hosts, which parameters. Parameters are names, ids and
numbers of ours; what a user wrote travels in the work order, never as a parameter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volumetry.plan import PlannedTopology, PlannedTrial
from volumetry.spec import NetworkTuning

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


def make_stack(topology: PlannedTopology, hosts: list[Host]) -> Command:
    """Make the volume under test, or make it anew."""
    parameters = {"Volumes": _listing(hosts, "volume_id")}
    if topology.stack == "nbd-mirror":
        parameters["Links"] = str(topology.links)
        parameters["SecondAddresses"] = _listing(hosts, "second_address") if topology.links > 1 else ""
    return Command(f"stack-{topology.stack}", _ids(hosts), parameters, 0, STACK_S)


def configure(topology: PlannedTopology, hosts: list[Host]) -> list[Command]:
    """What turns hosts that run into a topology ready for trials, in order."""
    prepare = {"Hosts": _listing(hosts, "address"), "Stack": topology.stack}
    fill_s = int(topology.precondition_s)
    fill = {"Client": topology.clients[0], "Bytes": str(topology.precondition_bytes)}
    return [
        Command("prepare", _ids(hosts), prepare, 0, PREPARE_S),
        make_stack(topology, hosts),
        Command("precondition", _ids(hosts), fill, fill_s, 4 * fill_s + 120),
    ]


def tune(topology: PlannedTopology, hosts: list[Host], tuning: NetworkTuning, action: str) -> list[Command]:
    """Apply or undo a tuning (``action``: apply, undo); the stack is made anew, since open connections keep their
    buffers. Nothing, when the tuning is empty."""
    values = tuning.model_dump(exclude_none=True)
    if not values:
        return []
    parameters = {
        "Action": action,
        "Mtu": str(values.get("mtu", "")),
        "TcpRmem": " ".join(map(str, values.get("tcp_rmem", ()))),
        "TcpWmem": " ".join(map(str, values.get("tcp_wmem", ()))),
    }
    return [Command("tune-network", _ids(hosts), parameters, 0, STACK_S), make_stack(topology, hosts)]


def run(trial: PlannedTrial, seconds: float, hosts: list[Host], order_url: str) -> Command:
    """Run a trial on all its hosts at once; ``seconds`` is how long the load itself runs."""
    return Command("run-fio", _ids(hosts), {"WorkOrderUrl": order_url}, int(seconds), trial.timeout_s)
