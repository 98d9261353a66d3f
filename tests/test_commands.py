"""Commands in their order, and held against the documents that they send: parameters known, values allowed."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from volumetry import commands
from volumetry.commands import Command, Host
from volumetry.plan import AWS, Plan, plan
from volumetry.reading import check_campaign
from volumetry.spec import STACKS

DOCUMENTS = Path(__file__).parent.parent / "ssm-documents"
HOSTS = [
    Host(
        name=f"host{number}",
        instance_id=f"i-0123456789abcde0{number}",
        address=f"10.42.0.{number}",
        second_address=f"10.42.1.{number}",
        volume_id=f"vol-0123456789abcde0{number}",
        az="a",
        az_id="use1-az1",
        image_id="ami-1",
    )
    for number in (1, 2, 3)
]
ORDER = "https://results.s3.us-east-1.amazonaws.com/orders/run-1/order?X-Amz-Signature=0a"
LOAD: dict[str, Any] = {"fio": {"rw": "randwrite", "size": "64m", "runtime": "20s", "ramp_time": "2s"}}


def planned(topology: dict[str, Any], workload: dict[str, Any] = LOAD, **tuning: Any) -> Plan:
    campaign = {
        "campaign": "x",
        "repetitions": 1,
        "topologies": {"t": topology},
        "tunings": {"x": tuning},
        "workloads": {"w": workload},
    }
    return plan(check_campaign(campaign), AWS)


def of(plan: Plan) -> list[Host]:
    return HOSTS[: len(plan.topologies["t"].hosts)]


def configured(topology: dict[str, Any], workload: dict[str, Any] = LOAD) -> list[Command]:
    made = planned(topology, workload)
    return commands.configure("t", made.topologies["t"], of(made), HOSTS, made.tools("t"))


def tuned(action: str, topology: dict[str, Any], **tuning: Any) -> list[Command]:
    made = planned(topology, **tuning)
    return commands.tune("t", made.topologies["t"], of(made), made.tunings["x"], action)


def run(topology: dict[str, Any], workload: dict[str, Any]) -> list[commands.Stage]:
    made = planned(topology, workload)
    (trial,) = made.trials
    return commands.run(trial, made.topologies["t"], made.workloads["w"], of(made), ORDER)


def documents(listed: list[Command]) -> list[str]:
    return [command.document for command in listed]


def told(command: Command) -> tuple[str, list[str], str]:
    """(document, hosts, phase or role)"""
    names = [host.name for host in HOSTS if host.instance_id in command.instance_ids]
    return command.document, names, command.parameters.get("Phase") or command.parameters.get("Role") or ""


# Configure


@pytest.mark.parametrize(
    ("topology", "wanted"),
    [
        ({"stack": "local"}, ["prepare", "stack-local", "precondition"]),
        ({"stack": "drbd"}, ["prepare", "stack-drbd", "precondition"]),
        ({"stack": "drbd", "filesystem": "xfs"}, ["prepare", "stack-drbd", "filesystem"]),
        # Modules belong to a kernel: it comes first.
        ({"stack": "drbd", "kernel": "linux-aws"}, ["choose-kernel", "prepare", "stack-drbd", "precondition"]),
    ],
)
def test_hosts_are_configured_in_order(topology: dict[str, Any], wanted: list[str]) -> None:
    assert documents(configured(topology)) == wanted


def test_a_drbd_mirror_is_made_as_asked() -> None:
    _, stack, _ = configured({"stack": "drbd", "drbd": {"protocol": "A", "initial_sync": "full"}, "overwrite": True})
    assert stack.parameters == {
        "Target": "t",
        "Volumes": f"host1={HOSTS[0].volume_id},host2={HOSTS[1].volume_id}",
        "Overwrite": "yes",
        "Links": "1",
        "SecondAddresses": "",
        "Number": "0",
        "Protocol": "A",
        "InitialSync": "full",
    }


def test_all_hosts_of_a_launch_are_known_to_each() -> None:
    prepare = configured({"stack": "local"})[0]
    assert prepare.parameters["Hosts"] == "host1=10.42.0.1,host2=10.42.0.2,host3=10.42.0.3"
    assert prepare.instance_ids == [HOSTS[0].instance_id]


def test_hosts_get_the_tools_of_their_loads_alone() -> None:
    assert configured({"stack": "local"})[0].parameters["Tools"] == "fio"
    filed = {"stack": "local", "filesystem": "ext4"}
    assert configured(filed, {"pgbench": {"time": 3}})[0].parameters["Tools"] == "pgbench"


# Tunings

NETWORK = {"network": {"mtu": 1500, "tcp_rmem": [4096, 131072, 6291456]}}
REPLICATION = {"replication": {"max-buffers": 8000, "disk-flushes": False, "protocol": "A"}}
FILESYSTEM = {"filesystem": {"journal": "writeback", "barrier": False, "scheduler": "none"}}
FILED = {"stack": "drbd", "filesystem": "ext4"}


@pytest.mark.parametrize(
    ("tuning", "applied", "undone"),
    [
        ({}, [], []),
        (NETWORK, ["tune-network", "stack-drbd"], ["tune-network", "stack-drbd"]),
        (REPLICATION, ["tune-replication"], ["tune-replication"]),
        (
            REPLICATION | FILESYSTEM,
            ["tune-replication", "tune-filesystem"],
            ["tune-filesystem", "tune-replication"],
        ),
        (
            NETWORK | REPLICATION | FILESYSTEM,
            ["tune-network", "stack-drbd", "tune-replication", "tune-filesystem"],
            # The stack is made anew over the network that it is to have, here as there.
            ["tune-filesystem", "tune-replication", "tune-network", "stack-drbd"],
        ),
    ],
)
def test_a_tuning_is_undone_in_the_reverse_order(tuning: dict[str, Any], applied: list[str], undone: list[str]) -> None:
    assert documents(tuned("apply", FILED, **tuning)) == applied
    assert documents(tuned("undo", FILED, **tuning)) == undone
    actions = {command.parameters.get("Action", "undo") for command in tuned("undo", FILED, **tuning)}
    assert actions <= {"undo"}


def test_what_a_tuning_does_not_name_is_empty_and_switches_are_words() -> None:
    (replication,) = tuned("apply", FILED, **REPLICATION)
    given = {name: value for name, value in replication.parameters.items() if value}
    assert given == {"Target": "t", "Action": "apply", "MaxBuffers": "8000", "DiskFlushes": "no", "Protocol": "A"}
    assert replication.parameters["CMaxRate"] == ""
    (filesystem,) = tuned("apply", FILED, **FILESYSTEM)
    given = {name: value for name, value in filesystem.parameters.items() if value}
    assert given == {
        "Target": "t",
        "Action": "apply",
        "Client": "host1",
        "Barrier": "no",
        "Journal": "writeback",
        "Scheduler": "none",
    }


# Trials


@pytest.mark.parametrize(
    ("workload", "document"),
    [
        (LOAD, "run-fio"),
        (LOAD | {"decompose": True}, "run-fio"),
        ({"pgbench": {"time": 22}}, "run-pgbench"),
        ({"dbench": {"timelimit": 22}}, "run-dbench"),
    ],
)
def test_a_load_is_one_command_on_all_hosts(workload: dict[str, Any], document: str) -> None:
    (((command,),),) = run(FILED, workload)
    assert told(command) == (document, ["host1", "host2"], "")
    assert command.parameters == {"WorkOrderUrl": ORDER}
    # A path is measured twice; the second is waited for too.
    assert command.expected_s == (44 if workload.get("decompose") else 22)
    assert command.timeout_s > command.expected_s


def failing(event: str, workload: dict[str, Any] = LOAD) -> list[list[list[tuple[str, list[str], str]]]]:
    struck = run(FILED | {"links": 2}, workload | {"failure": {"event": event, "at": "5s"}})
    return [[[told(command) for command in track] for track in stage] for stage in struck]


# One after the other: the writer gives up its right for the peer.
VERIFY = [[("verify", ["host1"], "writer"), ("verify", ["host2"], "peer")]]
COLLECT = [[("collect", ["host1", "host2"], "")]]


@pytest.mark.parametrize("event", ["cut-one-link", "cut-all-links", "freeze-peer", "fill-peer-disk"])
def test_a_failure_strikes_the_peer_while_the_client_is_under_load(event: str) -> None:
    load = [[("run-fio", ["host1"], "")], [("fail", ["host2"], "strike")]]
    assert failing(event) == [load, VERIFY, COLLECT]


def test_a_peer_that_was_killed_rejoins() -> None:
    load, *_ = failing("kill-peer")
    assert load == [[("run-fio", ["host1"], "")], [("fail", ["host2"], "strike"), ("fail", ["host2"], "rejoin")]]


def test_only_what_fio_wrote_is_read_back() -> None:
    stages = failing("freeze-peer", {"pgbench": {"time": 22}})
    assert stages == [[[("run-pgbench", ["host1"], "")], [("fail", ["host2"], "strike")]], COLLECT]


# Documents


@cache
def document(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DOCUMENTS / f"{name}.yaml").read_text())
    return content


def every_command() -> list[Command]:
    kinds: list[dict[str, Any]] = [{"stack": stack} for stack in STACKS if stack != "shared"]
    kinds += [
        {"stack": "shared", "volume": {"type": "io2", "iops": 3000}},
        {"stack": "nbd-mirror", "links": 2},
        {"stack": "drbd", "links": 2, "drbd": {"protocol": "B", "initial_sync": "full"}},
        {"stack": "drbd", "filesystem": "xfs", "kernel": "linux-image-cloud-amd64"},
        {"stack": "local", "filesystem": "ext4"},
    ]
    found = [command for kind in kinds for command in configured(kind)]
    for action in ("apply", "undo"):
        found += tuned(action, FILED, **NETWORK, **REPLICATION, **FILESYSTEM)
        found += tuned(action, FILED, replication={"c-max-rate": 4 << 20, "al-extents": 65534, "sndbuf-size": 10 << 20})
    loads: list[dict[str, Any]] = [LOAD, {"pgbench": {"time": 3}}, {"dbench": {"timelimit": 5}}]
    loads.append(LOAD | {"failure": {"event": "kill-peer", "at": "5s"}})
    found += [command for load in loads for stage in run(FILED, load) for track in stage for command in track]
    return found


@pytest.mark.parametrize("command", every_command(), ids=lambda command: command.document)
def test_a_command_keeps_to_its_document(command: Command) -> None:
    known = document(command.document)["parameters"]
    (given,) = (command.to_machine({command.document: "x"})["parameters"],)
    assert given.keys() <= known.keys()
    needed = {name for name, parameter in known.items() if "default" not in parameter}
    assert needed <= given.keys()
    for name, (value,) in given.items():
        allowed = known[name].get("allowedValues")
        fits = value in allowed if allowed else re.fullmatch(known[name]["allowedPattern"], value)
        assert fits, f"{name}={value!r}"
