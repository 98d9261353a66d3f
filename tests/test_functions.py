"""The functions' handlers: S3 and EC2 are moto's; CloudFormation is a list of stacks; Athena reads what was written.

Evidence is real: fio's files, put together by the script that hosts run.
"""

import io
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pyarrow.parquet as pq
import pytest
import synthetic
from botocore.exceptions import ClientError
from moto import mock_aws
from test_evidence import CLIENT, PEER

from functions import environment, store
from functions.analyse import handler as analyse
from functions.commit import handler as commit
from functions.open_trial import handler as open_trial
from functions.plan import handler as plan
from functions.store import Store
from functions.tear_down import handler as tear_down
from functions.topology import handler as topology
from local_region import athena as local_athena
from volumetry import athena, naming, topologies
from volumetry.errors import CampaignRefused, LaunchFailed
from volumetry.plan import Plan, job_file
from volumetry.reading import check_campaign
from volumetry.tables import TABLES

COLLECT = Path(__file__).parent.parent / "ssm-documents" / "scripts" / "collect.sh"
BUCKET = "results-123456789012"
EXECUTION = "run-1"
KEYS = naming.Keys(EXECUTION)
BEGAN = "2026-11-20T23:59:00.123Z"
CONTEXT = SimpleNamespace(
    function_name="f", memory_limit_in_mb=512, invoked_function_arn="arn:aws:lambda:x", aws_request_id="r"
)
DOCUMENTS = {name: f"deployed-{name}" for name in
             "prepare precondition filesystem choose-kernel tune-network tune-replication tune-filesystem "
             "stack-local stack-shared stack-nbd-mirror stack-drbd "
             "run-fio run-pgbench run-dbench fail verify collect".split()}  # fmt: skip
SUBNETS = {"a": "subnet-a", "b": "subnet-b", "c": "subnet-c"}
CAMPAIGN: dict[str, Any] = {
    "campaign": "functions",
    "seed": 7,
    "repetitions": 1,
    "topologies": {"single": {"stack": "local"}, "mirror": {"stack": "nbd-mirror", "azs": ["a", "b"]}},
    "tunings": {"stock": {}, "small-frames": {"network": {"mtu": 1500}}},
    "workloads": {
        "randrw-4k": {"fio": {"rw": "randrw", "bs": "4k", "size": "64m", "ramp_time": "500ms", "runtime": "3s"}}
    },
}
MIRROR = "mirror.stock.randrw-4k.r1"
TUNED = "mirror.small-frames.randrw-4k.r1"

Json = dict[str, Any]


@dataclass
class Stacks:
    """CloudFormation, as far as the functions call it."""

    stacks: dict[str, Json] = field(default_factory=dict)
    events: dict[str, list[Json]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def add(self, name: str, status: str = "CREATE_COMPLETE", outputs: Json | None = None, **tags: str) -> None:
        self.stacks[name] = {
            "StackName": name,
            "StackId": f"id of {name}",
            "StackStatus": status,
            "Tags": [{"Key": key.replace("__", ":"), "Value": value} for key, value in tags.items()],
            "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in (outputs or {}).items()],
        }

    def describe_stacks(self, StackName: str) -> Json:  # noqa: N803
        return {"Stacks": [self.stacks[StackName]]}

    def delete_stack(self, StackName: str) -> None:  # noqa: N803
        self.deleted.append(StackName)

    def get_paginator(self, operation: str) -> Any:
        def paginate(StackName: str = "") -> Iterator[Json]:  # noqa: N803
            if operation == "describe_stacks":
                # Two pages: what is on the second is as much ours.
                found = list(self.stacks.values())
                yield {"Stacks": found[:1]}
                yield {"Stacks": found[1:]}
            elif StackName in self.events:
                yield {"StackEvents": self.events[StackName]}
            else:
                raise ClientError({"Error": {"Code": "ValidationError", "Message": "does not exist"}}, operation)

        return SimpleNamespace(paginate=paginate)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Stacks:
    fake = Stacks()
    for module in (topology, tear_down):
        monkeypatch.setattr(module, "_cloudformation", lambda: fake)
    return fake


@pytest.fixture(scope="module", autouse=True)
def account() -> Iterator[None]:
    """One account for all tests: moto takes a second to make one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "RESULTS_BUCKET": BUCKET,
            "DOCUMENTS": json.dumps(DOCUMENTS),
            "SUBNETS": json.dumps(SUBNETS),
            "SECURITY_GROUP": "sg-1",
            "INSTANCE_PROFILE": "arn:aws:iam::123456789012:instance-profile/hosts",
            "SCHEDULER_ROLE": "arn:aws:iam::123456789012:role/scheduler",
            "HOSTS_SHARE_HARDWARE": "true",
            "POLL_S": "5",
            "DATABASE": "volumetry",
            "WORKGROUP": "volumetry",
        }.items():
            patch.setenv(name, value)
        forget_clients()
        with mock_aws():
            client("s3").create_bucket(Bucket=BUCKET)
            yield
        forget_clients()


@pytest.fixture(autouse=True)
def results() -> Iterator[Store]:
    """The results bucket, empty."""
    bucket = Store(BUCKET)
    for key in bucket.keys(""):
        client("s3").delete_object(Bucket=BUCKET, Key=key)
    forget()
    yield bucket
    forget()


def forget_clients() -> None:
    for kept in (client, store._client, plan._ec2, topology._ec2, tear_down._ec2):
        kept.cache_clear()


def forget() -> None:
    """What else a function keeps between two invocations."""
    for kept in (environment.deployment, environment.results, environment.queries, plan._instance):
        kept.cache_clear()


@cache
def client(service: str) -> Any:
    return boto3.client(service)


def on_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTS_SHARE_HARDWARE", "false")
    environment.deployment.cache_clear()


def make_plan(campaign: Json = CAMPAIGN) -> Json:
    made: Json = plan.handler({"execution": EXECUTION, "campaign": campaign}, CONTEXT)
    return made


def planned(results: Store) -> Plan:
    return Plan.model_validate_json(results.get(KEYS.plan) or b"")


# plan


@pytest.mark.parametrize(
    ("execution", "campaign"),
    [
        (EXECUTION, {}),
        (EXECUTION, "a text"),
        (EXECUTION, None),
        (EXECUTION, CAMPAIGN | {"repetitons": 3}),
        (EXECUTION, CAMPAIGN | {"topologies": {"single": {"stack": "nbd-miror"}}}),
        ("an execution", CAMPAIGN),
        ("../other", CAMPAIGN),
    ],
)
def test_a_campaign_that_is_refused_leaves_nothing(results: Store, execution: str, campaign: Any) -> None:
    with pytest.raises(CampaignRefused):
        plan.handler({"execution": execution, "campaign": campaign}, CONTEXT)
    assert results.keys("") == []


def test_an_instance_type_that_the_region_lacks_is_refused(results: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    on_aws(monkeypatch)
    topologies = {
        "single": {"stack": "local"},
        "other": {"stack": "local", "instance_type": "m6i.98xlarge"},
    }
    with pytest.raises(CampaignRefused, match=r"topologies\.other\.instance_type: 'm6i.98xlarge' does not exist"):
        make_plan(CAMPAIGN | {"topologies": topologies})
    assert results.keys("") == []


def test_the_plan_is_where_names_say(results: Store) -> None:
    made = make_plan()
    assert set(results.keys("")) == {
        KEYS.campaign,
        KEYS.plan,
        KEYS.lane("interleaved"),
        KEYS.template("single"),
        KEYS.template("mirror"),
    }
    assert [lane["trials"] for lane in made["lanes"]] == [KEYS.lane("interleaved")]
    trials = [trial.model_dump(mode="json") for trial in planned(results).trials]
    assert results.get_json(KEYS.lane("interleaved")) == trials
    campaign = check_campaign(CAMPAIGN)
    for name, wanted in campaign.topologies.items():
        assert results.get_json(KEYS.template(name)) == topologies.template({name: wanted})
    assert check_campaign(results.get_json(KEYS.campaign)) == campaign


def test_a_plan_that_is_made_again_is_the_same(results: Store) -> None:
    make_plan()
    first = {key: results.get(key) for key in results.keys("")}
    make_plan()
    assert {key: results.get(key) for key in results.keys("")} == first


def test_on_aws_each_topology_has_a_lane_and_the_limits_of_its_instance(
    results: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_aws(monkeypatch)
    made = make_plan()
    assert [lane["name"] for lane in made["lanes"]] == ["single", "mirror"]
    known = client("ec2").describe_instance_types(InstanceTypes=["m6i.large"])["InstanceTypes"][0]
    causes = {ceiling.cause: ceiling.iops for trial in planned(results).trials for ceiling in trial.ceilings}
    assert causes["instance EBS IOPS"] == known["EbsInfo"]["EbsOptimizedInfo"]["MaximumIops"]


def test_a_topology_gets_every_parameter_that_its_template_asks_for(results: Store) -> None:
    (lane,) = make_plan()["lanes"]
    for each in lane["topologies"]:
        template = results.get_json(each["template"])
        asked = {name for name, parameter in template["Parameters"].items() if "Default" not in parameter}
        given = {pair["ParameterKey"]: pair["ParameterValue"] for pair in each["parameters"]}
        assert set(given) == asked
        tags = {pair["Key"]: pair["Value"] for pair in each["tags"]}
        assert tags.items() >= naming.tags(EXECUTION, each["topology"]).items()
        assert tags[naming.TAG_DEADLINE] == given["Deadline"]
        assert each["stack"] == naming.stack_name(EXECUTION, each["topology"])


def test_the_deadline_leaves_the_plan_twice_its_time(results: Store) -> None:
    (lane,) = make_plan()["lanes"]
    given = {pair["ParameterKey"]: pair["ParameterValue"] for pair in lane["topologies"][0]["parameters"]}
    left = datetime.fromisoformat(given["Deadline"] + "+00:00") - datetime.now(UTC)
    wanted = timedelta(seconds=2 * planned(results).expected_s + 3600)
    assert abs(left - wanted) < timedelta(seconds=10)
    assert int(given["LifetimeMinutes"]) == wanted.total_seconds() // 60


# topology


def launch(count: int, *devices: str, execution: str = "nobody") -> list[str]:
    ec2 = client("ec2")
    made = ec2.run_instances(
        ImageId="ami-12c6146b",
        MinCount=count,
        MaxCount=count,
        InstanceType="m6i.large",
        BlockDeviceMappings=[
            {"DeviceName": device, "Ebs": {"VolumeSize": 8}} for device in devices or topologies.DEVICES[:1]
        ],
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": naming.TAG_EXECUTION, "Value": execution}]},
        ],
    )
    return [instance["InstanceId"] for instance in made["Instances"]]


def of_topology(action: str, name: str = "mirror", **more: str) -> Json:
    told: Json = topology.handler({"action": action, "execution": EXECUTION, "topology": name, **more}, CONTEXT)
    return told


def test_a_launched_topology_is_noted_with_its_hosts_in_order(results: Store, stacks: Stacks) -> None:
    make_plan()
    ids = launch(2)
    # The stack's order counts, not EC2's.
    stacks.add(naming.stack_name(EXECUTION, "mirror"), outputs={"InstanceIds": ",".join(reversed(ids))})
    told = of_topology("launched")
    assert told["instance_ids"] == list(reversed(ids))
    note = results.get_json(KEYS.topology("mirror"))
    assert note["status"] == "configuring"
    assert [(host["name"], host["instance_id"], host["az"]) for host in note["hosts"]] == [
        ("host1", ids[1], "a"),
        ("host2", ids[0], "b"),
    ]
    volumes = client("ec2").describe_volumes()["Volumes"]
    attached = {one["InstanceId"]: volume["VolumeId"] for volume in volumes for one in volume["Attachments"]}
    assert [host["volume_id"] for host in note["hosts"]] == [attached[ids[1]], attached[ids[0]]]
    assert all(re.fullmatch(r"use1-az\d", host["az_id"]) for host in note["hosts"])


def test_a_launched_topology_is_configured_by_deployed_documents(stacks: Stacks) -> None:
    make_plan()
    ids = launch(2)
    stacks.add(naming.stack_name(EXECUTION, "mirror"), outputs={"InstanceIds": ",".join(ids)})
    told = of_topology("launched")["commands"]
    assert [command["document"] for command in told] == [
        "deployed-prepare",
        "deployed-stack-nbd-mirror",
        "deployed-precondition",
    ]
    for command in told:
        assert command["instance_ids"] == ids
        assert all(isinstance(value, list) for value in command["parameters"].values())
        assert command["timeout_s"] > command["expected_s"]


def test_second_addresses_come_from_the_stack(results: Store, stacks: Stacks) -> None:
    two_links = {"stack": "nbd-mirror", "links": 2}
    make_plan(CAMPAIGN | {"topologies": {"mirror": two_links}})
    outputs = {"InstanceIds": ",".join(launch(2)), "SecondAddresses": "10.42.0.8,10.42.0.9"}
    stacks.add(naming.stack_name(EXECUTION, "mirror"), outputs=outputs)
    stack = next(one for one in of_topology("launched")["commands"] if one["document"] == "deployed-stack-nbd-mirror")
    assert stack["parameters"]["SecondAddresses"] == ["host1=10.42.0.8,host2=10.42.0.9"]
    note = results.get_json(KEYS.topology("mirror"))
    assert [host["second_address"] for host in note["hosts"]] == ["10.42.0.8", "10.42.0.9"]


def group(stacks: Stacks) -> list[str]:
    """A study's launch: two hosts, each with a volume of the mirror, the first with that of the other topology too."""
    make_plan(STUDY)
    ids = [*launch(1, *topologies.DEVICES[:2]), *launch(1, topologies.DEVICES[1])]
    stacks.add(naming.stack_name(EXECUTION, "pair"), outputs={"InstanceIds": ",".join(ids)})
    return ids


def test_a_group_is_one_launch_with_a_note_for_each_topology(results: Store, stacks: Stacks) -> None:
    ids = group(stacks)
    assert of_topology("launched", "pair")["instance_ids"] == ids
    notes = {name: results.get_json(KEYS.topology(name)) for name in ("single", "mirror")}
    found = {name: [(one["name"], one["instance_id"]) for one in note["hosts"]] for name, note in notes.items()}
    assert found == {"single": [("host1", ids[0])], "mirror": [("host1", ids[0]), ("host2", ids[1])]}
    devices = {
        volume["VolumeId"]: attachment["Device"]
        for volume in client("ec2").describe_volumes()["Volumes"]
        for attachment in volume["Attachments"]
    }
    used = {name: [devices[one["volume_id"]] for one in note["hosts"]] for name, note in notes.items()}
    assert used == {"single": ["/dev/sdf"], "mirror": ["/dev/sdg", "/dev/sdg"]}
    assert results.get_json(KEYS.topology("pair")) is None


def test_a_group_is_configured_topology_by_topology(stacks: Stacks) -> None:
    ids = group(stacks)
    told = of_topology("launched", "pair")["commands"]
    assert [(command["document"], command["instance_ids"]) for command in told] == [
        ("deployed-prepare", ids[:1]),
        ("deployed-stack-local", ids[:1]),
        ("deployed-filesystem", ids[:1]),
        ("deployed-prepare", ids),
        ("deployed-stack-drbd", ids),
        ("deployed-filesystem", ids),
    ]
    prepared = [command["parameters"] for command in told if command["document"] == "deployed-prepare"]
    # The hosts file is one file: whoever is prepared last writes the same.
    assert prepared[0]["Hosts"] == prepared[1]["Hosts"]
    assert [given["Tools"] for given in prepared] == [["dbench,pgbench"]] * 2
    numbers = [command["parameters"].get("Number") for command in told]
    assert numbers == [None, None, None, None, ["1"], None]


@pytest.mark.parametrize("action", ["ready", "failed"])
def test_news_of_a_group_are_news_of_each_of_its_topologies(results: Store, stacks: Stacks, action: str) -> None:
    make_plan(STUDY)
    told = of_topology(action, "pair", reason="no capacity")
    assert [results.get_json(KEYS.topology(name)) for name in ("single", "mirror")] == [told, told]
    assert results.get_json(KEYS.topology("raw")) is None


def test_a_group_is_one_launch_of_its_lane(results: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    on_aws(monkeypatch)
    lanes = {lane["name"]: lane["topologies"] for lane in make_plan(STUDY)["lanes"]}
    told = {name: [(each["topology"], each["members"], each["stack"]) for each in lane] for name, lane in lanes.items()}
    assert told == {
        "pair": [("pair", ["single", "mirror"], naming.stack_name(EXECUTION, "pair"))],
        "raw": [("raw", ["raw"], naming.stack_name(EXECUTION, "raw"))],
    }
    assert KEYS.template("single") not in results.keys("")
    assert {trial["topology"] for trial in results.get_json(KEYS.lane("pair"))} == {"single", "mirror"}
    for each in (*lanes["pair"], *lanes["raw"]):
        template = results.get_json(each["template"])
        asked = {name for name, parameter in template["Parameters"].items() if "Default" not in parameter}
        assert {pair["ParameterKey"] for pair in each["parameters"]} == asked


def test_a_host_without_its_volume_is_a_failed_launch(stacks: Stacks) -> None:
    make_plan()
    stacks.add(naming.stack_name(EXECUTION, "mirror"), outputs={"InstanceIds": ",".join(launch(2, "/dev/sdz"))})
    with pytest.raises(LaunchFailed, match=r"host1 \(i-\w+\) has no volume at /dev/sdf"):
        of_topology("launched")


def test_a_ready_topology_keeps_its_hosts(results: Store) -> None:
    make_plan()
    results.put_json(KEYS.topology("mirror"), {"status": "configuring", "reason": "", "hosts": [{"name": "host1"}]})
    assert of_topology("ready") == {"status": "ready", "reason": ""}
    assert results.get_json(KEYS.topology("mirror"))["hosts"] == [{"name": "host1"}]


def test_a_failed_topology_is_noted_with_the_first_failure_and_deleted(results: Store, stacks: Stacks) -> None:
    make_plan()
    name = naming.stack_name(EXECUTION, "mirror")
    failed = {"ResourceStatus": "CREATE_FAILED", "LogicalResourceId": "Host1"}
    stacks.events[name] = [  # newest first
        {"ResourceStatus": "ROLLBACK_IN_PROGRESS", "LogicalResourceId": name},
        failed | {"LogicalResourceId": "Host2", "ResourceStatusReason": "Resource creation cancelled"},
        failed | {"ResourceStatusReason": "insufficient capacity"},
        {"ResourceStatus": "CREATE_IN_PROGRESS", "LogicalResourceId": name},
    ]
    wanted = {"status": "failed", "reason": "Host1: insufficient capacity"}
    assert of_topology("failed", reason="the stack ended as ROLLBACK_COMPLETE") == wanted
    assert results.get_json(KEYS.topology("mirror")) == wanted
    assert stacks.deleted == [name]


def test_a_topology_that_failed_without_a_stack_keeps_the_given_reason(stacks: Stacks) -> None:
    make_plan()
    assert of_topology("failed", reason="access denied")["reason"] == "access denied"
    assert stacks.deleted == [naming.stack_name(EXECUTION, "mirror")]


def test_a_topology_that_is_ready_again_has_no_reason(results: Store, stacks: Stacks) -> None:
    make_plan()
    of_topology("failed", reason="a host was lost")
    assert of_topology("ready") == {"status": "ready", "reason": ""}


# open_trial


def host(number: int) -> Json:
    return {
        "name": f"host{number}",
        "instance_id": f"i-{number}",
        "address": f"10.42.0.{number}",
        "second_address": None,
        "volume_id": f"vol-{number}",
        "az": "ab"[number - 1],
        "az_id": f"use1-az{number}",
        "image_id": "ami-1",
    }


def ready(results: Store) -> None:
    """The mirror's topology is there."""
    make_plan()
    hosts = [host(1), host(2)]
    results.put_json(KEYS.topology("mirror"), {"status": "ready", "reason": "", "hosts": hosts})


def opened(trial: str = MIRROR) -> Json:
    told: Json = open_trial.handler({"execution": EXECUTION, "trial": trial}, CONTEXT)
    return told


def test_two_openings_take_a_number_each(results: Store) -> None:
    ready(results)
    assert [opened()["attempt"], opened()["attempt"], opened(TUNED)["attempt"]] == [1, 2, 1]
    assert results.keys(KEYS.trials) == [KEYS.trial(TUNED, 1), KEYS.trial(MIRROR, 1), KEYS.trial(MIRROR, 2)]
    assert results.get_json(KEYS.trial(MIRROR, 1))["state"] == "running"


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ({"status": "failed", "reason": "Host1: insufficient capacity"}, "Host1: insufficient capacity"),
        (None, "it was never launched"),
    ],
)
def test_a_trial_without_its_topology_does_not_go(results: Store, note: Json | None, reason: str) -> None:
    make_plan()
    if note is not None:
        results.put_json(KEYS.topology("mirror"), note)
    assert opened() == {"attempt": 1, "go": False, "reason": f"topology mirror: {reason}"}
    assert results.keys("orders/") == []


def only_command(told: Json) -> Json:
    ((track,),) = (stage["tracks"] for stage in told["stages"])
    (command,) = track["commands"]
    found: Json = command
    return found


def test_a_stock_trial_is_one_command_on_all_hosts(results: Store) -> None:
    ready(results)
    told = opened()
    assert (told["go"], told["before"], told["strikes"], told["after"]) == (True, [], False, [])
    run = only_command(told)
    assert (run["document"], run["instance_ids"], run["expected_s"]) == ("deployed-run-fio", ["i-1", "i-2"], 3)
    assert run["timeout_s"] == planned(results).trial(MIRROR).timeout_s


def test_a_tuned_trial_is_tuned_before_and_set_back_after(results: Store) -> None:
    ready(results)
    told = opened(TUNED)
    for moment, action in (("before", "apply"), ("after", "undo")):
        tune, stack = told[moment]
        assert (tune["document"], stack["document"]) == ("deployed-tune-network", "deployed-stack-nbd-mirror")
        assert (tune["parameters"]["Action"], tune["parameters"]["Mtu"]) == ([action], ["1500"])


def order(results: Store, trial: str = MIRROR) -> dict[str, str]:
    text = (results.get(KEYS.attempt(trial, 1).order) or b"").decode()
    return dict(line.split("=", 1) for line in text.splitlines())


def key_of(url: str) -> str:
    parts = urlsplit(url)
    assert parts.hostname == f"{BUCKET}.s3.amazonaws.com"
    return parts.path.removeprefix("/")


def test_an_order_lets_hosts_create_exactly_their_objects(results: Store) -> None:
    ready(results)
    names = KEYS.attempt(MIRROR, opened()["attempt"])
    lines = order(results)
    urls = {key: value for key, value in lines.items() if value.startswith("https:")}
    live = {f"host1.live.{number}": names.live_sample(number) for number in range(4)}
    told = {f"{what}.{way}": names.passed_on(what) for what in ("begun", "ended", "verify") for way in ("put", "get")}
    assert {key: key_of(url) for key, url in urls.items()} == live | told | {
        "job": names.job,
        "host1.archive": names.archive("host1"),
        "host1.manifest": names.manifest("host1"),
        "host2.archive": names.archive("host2"),
        "host2.manifest": names.manifest("host2"),
    }
    for key, url in urls.items():
        signed = parse_qs(urlsplit(url).query)["X-Amz-SignedHeaders"][0].split(";")
        assert ("if-none-match" in signed) == (key != "job" and not key.endswith(".get")), key
    assert {key: value for key, value in lines.items() if key not in urls} == {
        "trial": MIRROR,
        "attempt": "1",
        "target": "mirror",
        "tool": "fio",
        "members": "host1 host2",
        "clients": "host1",
        "duration_s": "3.5",
        "live_interval_s": "1",
        "extent_bytes": str(64 << 20),
        "collect": "now",
        "alone": "no",
    }


def test_urls_last_longer_than_the_trial(results: Store) -> None:
    ready(results)
    run = only_command(opened())
    urls = [*order(results).values(), *run["parameters"]["WorkOrderUrl"]]
    lifetimes = {int(parse_qs(urlsplit(url).query)["X-Amz-Expires"][0]) for url in urls if url.startswith("https:")}
    assert lifetimes == {run["timeout_s"] + 3600}


def test_the_run_is_given_the_order_by_a_url_that_its_document_takes(results: Store) -> None:
    ready(results)
    (url,) = only_command(opened())["parameters"]["WorkOrderUrl"]
    assert key_of(url) == KEYS.attempt(MIRROR, 1).order
    assert re.fullmatch(r"https?://[A-Za-z0-9.:/?&=%+_~-]{1,4000}", url)
    assert results.get(key_of(order(results)["job"])) == job_file(planned(results).workloads["randrw-4k"]).encode()


STUDY: Json = CAMPAIGN | {
    "topologies": {
        "single": {"stack": "local", "together": "pair", "filesystem": "xfs"},
        "mirror": {"stack": "drbd", "together": "pair", "filesystem": "xfs", "azs": ["a", "b"]},
        "raw": {"stack": "drbd"},
    },
    "tunings": {"stock": {}, "wide": {"replication": {"max-buffers": 8000, "disk-flushes": False}}},
    "workloads": {
        "tpcb": {"pgbench": {"scale": 10, "client": 4, "transactions": 100, "builtin": "tpcb-like"}},
        "files": {"dbench": {"clients": 3, "timelimit": 10}},
        "struck": {
            "fio": {"rw": "randwrite", "size": "64m", "runtime": "30s"},
            "failure": {"event": "kill-peer", "at": "5s"},
        },
        "path": {"fio": {"rw": "randwrite", "size": "64m", "runtime": "3s"}, "decompose": True},
    },
    "matrix": [
        {"topologies": ["single", "mirror"], "tunings": ["stock"], "workloads": ["tpcb", "files"]},
        {"topologies": ["raw"], "workloads": ["struck", "path"]},
    ],
}


def study(results: Store, **names: list[int]) -> None:
    """Topologies of the study are ready, with the hosts of these numbers."""
    make_plan(STUDY)
    for name, numbers in names.items():
        hosts = [host(number) for number in numbers]
        results.put_json(KEYS.topology(name), {"status": "ready", "reason": "", "hosts": hosts})


def test_options_of_a_tool_are_in_the_order_and_no_job_is(results: Store) -> None:
    study(results, mirror=[1, 2])
    told = opened("mirror.stock.tpcb.r1")
    assert only_command(told)["document"] == "deployed-run-pgbench"
    # Four clients of a hundred transactions, at the rate that is planned by.
    assert only_command(told)["expected_s"] == 8
    lines = order(results, "mirror.stock.tpcb.r1")
    assert (lines["tool"], lines["target"], lines["extent_bytes"]) == ("pgbench", "mirror", "0")
    assert {key: value for key, value in lines.items() if key.startswith("pgbench.")} == {
        "pgbench.scale": "10",
        "pgbench.client": "4",
        "pgbench.jobs": "1",
        "pgbench.transactions": "100",
        "pgbench.builtin": "tpcb-like",
    }
    assert "job" not in lines
    opened("mirror.stock.files.r1")
    lines = order(results, "mirror.stock.files.r1")
    assert (lines["tool"], lines["dbench.clients"], lines["dbench.timelimit"]) == ("dbench", "3", "10")


def test_a_failure_is_in_the_order_with_what_hosts_pass_on(results: Store) -> None:
    study(results, raw=[1, 2])
    told = opened("raw.stock.struck.r1")
    assert told["strikes"] is True
    lines = order(results, "raw.stock.struck.r1")
    assert {key: value for key, value in lines.items() if key.startswith("failure.")} == {
        "failure.event": "kill-peer",
        "failure.at_s": "5.0",
        "failure.lasts_s": "10.0",
    }
    assert (lines["collect"], lines["alone"]) == ("later", "no")
    names = KEYS.attempt("raw.stock.struck.r1", 1)
    assert key_of(lines["verify.put"]) == key_of(lines["verify.get"]) == names.passed_on("verify")
    signed = [parse_qs(urlsplit(lines[key]).query)["X-Amz-SignedHeaders"][0] for key in ("verify.put", "verify.get")]
    assert ["if-none-match" in headers for headers in signed] == [True, False]
    job = results.get(key_of(lines["job"])) or b""
    assert b"verify=crc32c" in job


def test_the_stages_of_a_failure_are_commands_of_deployed_documents(results: Store) -> None:
    study(results, raw=[1, 2])
    stages = [
        [[(command["document"], command["instance_ids"]) for command in track["commands"]] for track in stage["tracks"]]
        for stage in opened("raw.stock.struck.r1")["stages"]
    ]
    assert stages == [
        [[("deployed-run-fio", ["i-1"])], [("deployed-fail", ["i-2"]), ("deployed-fail", ["i-2"])]],
        [[("deployed-verify", ["i-1"]), ("deployed-verify", ["i-2"])]],
        [[("deployed-collect", ["i-1", "i-2"])]],
    ]


def test_a_path_that_is_decomposed_is_run_alone_first(results: Store) -> None:
    study(results, raw=[1, 2])
    opened("raw.wide.path.r1")
    lines = order(results, "raw.wide.path.r1")
    assert (lines["alone"], lines["collect"]) == ("yes", "now")
    assert not [key for key in lines if key.startswith("failure.")]


def test_a_replication_tuning_is_applied_before_and_undone_after(results: Store) -> None:
    study(results, raw=[1, 2])
    told = opened("raw.wide.path.r1")
    for moment, action in (("before", "apply"), ("after", "undo")):
        (tune,) = told[moment]
        assert (tune["document"], tune["instance_ids"]) == ("deployed-tune-replication", ["i-1", "i-2"])
        given = {name: value for name, (value,) in tune["parameters"].items() if value}
        assert given | {"TimeoutSeconds": ""} == {
            "Target": "raw",
            "Action": action,
            "MaxBuffers": "8000",
            "DiskFlushes": "no",
            "TimeoutSeconds": "",
        }


# commit


def collected(folder: Path, host: str, files: dict[str, bytes], attempt: int = 1) -> tuple[bytes, bytes]:
    """(archive, manifest) of these files, as the hosts' own script makes them."""
    work = folder / f"{host}.{attempt}"
    work.mkdir()
    for name, content in files.items():
        (work / name).write_bytes(content)
    script = f"""
        set -euo pipefail
        fail() {{ echo "$@" >&2; exit 1; }}
        name={host}
        create() {{ cp "$1" "$2"; }}
        declare -A order=([trial]={MIRROR} [attempt]={attempt}
          [{host}.archive]={folder}/archive [{host}.manifest]={folder}/manifest)
        work={work}
        source {COLLECT}
    """
    subprocess.run(["bash", "-c", script], check=True, cwd=work)
    return (folder / "archive").read_bytes(), (folder / "manifest").read_bytes()


def later(telemetry: bytes, seconds: float) -> bytes:
    return re.sub(rb"(?m)^time (.+)$", lambda match: b"time %f" % (float(match[1]) + seconds), telemetry)


HOSTS = {
    "host1": CLIENT,
    # The peer was captured some seconds before the client.
    "host2": PEER | {"telemetry": later(PEER["telemetry"], 6.4)},
}


def upload(results: Store, folder: Path, attempt: int = 1, **changed: dict[str, bytes]) -> None:
    names = KEYS.attempt(MIRROR, attempt)
    for host, files in (HOSTS | changed).items():
        archive, manifest = collected(folder, host, files, attempt)
        results.put(names.archive(host), archive)
        results.put(names.manifest(host), manifest)


def committed(attempt: int = 1, **more: Any) -> Json:
    event = {"execution": EXECUTION, "began": BEGAN, "trial": MIRROR, "attempt": attempt, **more}
    told: Json = commit.handler(event, CONTEXT)
    return told


def rows(results: Store, table: str, attempt: int = 1) -> list[Json]:
    content = results.get(KEYS.attempt(MIRROR, attempt).rows(table, "2026-11-20"))
    found: list[Json] = pq.read_table(io.BytesIO(content or b"")).to_pylist()
    return found


def test_whole_evidence_becomes_rows_of_every_table(results: Store, tmp_path: Path) -> None:
    ready(results)
    opened()
    upload(results, tmp_path)
    told = committed()
    assert (told["state"], told["verdict"], told["reason"]) == ("committed", "valid", "")
    # Where nothing befell the mirror, there are no events.
    filled = set(TABLES) - {"events"}
    assert {naming.AttemptKeys.parse_rows(key)[0] for key in results.keys("tables/")} == filled
    for table in filled:
        content = results.get(KEYS.attempt(MIRROR, 1).rows(table, "2026-11-20"))
        assert pq.read_schema(io.BytesIO(content or b"")) == TABLES[table].arrow_schema()
        assert rows(results, table)
    trials = rows(results, "trials")
    assert [row["direction"] for row in trials] == ["read", "write"]
    assert sum(row["iops"] for row in trials) == told["iops"]
    assert {row["instance_ids"] for row in trials} == {"i-1,i-2"}
    assert {row["host"] for row in rows(results, "hosts")} == {"host1", "host2"}


def test_the_note_of_an_attempt_keeps_when_it_was_opened(results: Store, tmp_path: Path) -> None:
    ready(results)
    opened()
    before = results.get_json(KEYS.trial(MIRROR, 1))
    upload(results, tmp_path)
    told = committed()
    assert results.get_json(KEYS.trial(MIRROR, 1)) == before | told


def test_a_commit_that_comes_twice_writes_the_same_bytes(results: Store, tmp_path: Path) -> None:
    ready(results)
    opened()
    upload(results, tmp_path)
    committed()
    first = {key: results.get(key) for key in results.keys("")}
    committed()
    assert {key: results.get(key) for key in results.keys("")} == first


@pytest.mark.parametrize("object_", ["manifest", "archive"])
def test_a_host_that_uploaded_only_a_part_fails_the_trial(results: Store, tmp_path: Path, object_: str) -> None:
    ready(results)
    upload(results, tmp_path)
    names = KEYS.attempt(MIRROR, 1)
    missing = names.manifest("host2") if object_ == "manifest" else names.archive("host2")
    client("s3").delete_object(Bucket=BUCKET, Key=missing)
    told = committed()
    assert (told["verdict"], told["reason"]) == ("failed", f"host2 uploaded no {object_}")
    assert (told["iops"], told["run_s"]) == (None, None)
    (row,) = rows(results, "trials")
    assert (row["direction"], row["verdict"], row["reason"], row["iops"]) == (None, "failed", told["reason"], None)
    assert results.keys("tables/") == [names.rows("trials", "2026-11-20")]


def test_an_archive_that_is_not_the_one_of_the_manifest_fails_the_trial(results: Store, tmp_path: Path) -> None:
    ready(results)
    upload(results, tmp_path)
    other, _ = collected(tmp_path, "other", HOSTS["host2"])
    results.put(KEYS.attempt(MIRROR, 1).archive("host1"), other)
    told = committed()
    assert told["verdict"] == "failed"
    assert told["reason"] == "the archive of host1 is not the one that its manifest names"


def test_a_client_whose_fio_wrote_nothing_fails_the_trial(results: Store, tmp_path: Path) -> None:
    ready(results)
    upload(results, tmp_path, host1={name: CLIENT[name] for name in ("facts", "telemetry")})
    told = committed()
    assert (told["verdict"], told["reason"]) == ("failed", "fio wrote no result")


def test_a_mirror_that_broke_is_degraded_and_keeps_its_figures(results: Store, tmp_path: Path) -> None:
    ready(results)
    upload(results, tmp_path, host1=CLIENT | {"facts": CLIENT["facts"] + b"mirror_broken=host2 is gone\n"})
    told = committed()
    assert (told["verdict"], told["reason"]) == ("degraded", "host2 is gone")
    assert told["iops"] > 0


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("Volumetry.CommandTimedOut", "indeterminate"),
        ("Volumetry.CommandFailed", "failed"),
        ("Volumetry.HostLost", "failed"),
        ("Volumetry.LaunchFailed", "failed"),
        ("States.Timeout", "failed"),
    ],
)
def test_an_error_on_the_way_is_the_verdict_whatever_was_uploaded(
    results: Store, tmp_path: Path, error: str, verdict: str
) -> None:
    ready(results)
    upload(results, tmp_path)
    told = committed(error=error, cause="fio ended\n  as it pleased ")
    assert (told["verdict"], told["reason"]) == (verdict, "fio ended as it pleased")
    assert [row["direction"] for row in rows(results, "trials")] == [None]


def test_an_error_without_a_cause_is_told_by_its_name(results: Store) -> None:
    make_plan()
    assert committed(error="States.Timeout")["reason"] == "States.Timeout"


def test_a_trial_whose_topology_never_was_is_committed_all_the_same(results: Store) -> None:
    make_plan()
    told = committed(error="Volumetry.LaunchFailed", cause="topology mirror: no capacity")
    assert told["verdict"] == "failed"
    (row,) = rows(results, "trials")
    assert (row["instance_ids"], row["rw"]) == (None, "randrw")


# tear_down


def past() -> str:
    return (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S")


def future() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture
def crowd(stacks: Stacks) -> Stacks:
    """Stacks of two executions, of the service itself, and of strangers."""
    ours = {"application": "volumetry"}
    stacks.add("mine", **ours, volumetry__execution=EXECUTION, volumetry__deadline=future())
    stacks.add("mine-late", **ours, volumetry__execution=EXECUTION, volumetry__deadline=past())
    stacks.add("other", **ours, volumetry__execution="run-2", volumetry__deadline=future())
    stacks.add("other-late", **ours, volumetry__execution="run-2", volumetry__deadline=past())
    stacks.add("no-deadline", **ours, volumetry__execution="run-3")
    stacks.add("Volumetry-Results", **ours)
    stacks.add("a-stranger", volumetry__execution=EXECUTION, volumetry__deadline=past())
    stacks.add("a-stranger-too", application="accounting", volumetry__execution=EXECUTION)
    return stacks


def torn_down(event: Json) -> list[str]:
    left: list[str] = tear_down.handler(event, CONTEXT)["left_behind"]
    return left


def ids(*names: str) -> list[str]:
    return [f"id of {name}" for name in names]


@pytest.mark.parametrize("event", [{"execution": EXECUTION}, {"detail": {"name": EXECUTION, "status": "ABORTED"}}])
def test_an_execution_is_torn_down_and_nothing_else(crowd: Stacks, event: Json) -> None:
    left = torn_down(event)
    assert crowd.deleted == ids("mine", "mine-late")
    assert left == ["stack mine: CREATE_COMPLETE", "stack mine-late: CREATE_COMPLETE"]


def test_the_sweep_deletes_what_is_overdue_of_every_execution(crowd: Stacks) -> None:
    torn_down({})
    assert crowd.deleted == ids("mine-late", "other-late", "no-deadline")


@pytest.mark.parametrize("event", [{}, {"execution": EXECUTION}])
def test_listing_deletes_nothing(crowd: Stacks, event: Json) -> None:
    left = torn_down(event | {"list_only": True})
    assert "stack mine-late: CREATE_COMPLETE" in left
    assert crowd.deleted == []


def test_a_stack_under_deletion_is_left_to_it_and_counts_as_left(stacks: Stacks) -> None:
    tags = {"application": "volumetry", "volumetry__execution": EXECUTION}
    stacks.add("going", "DELETE_IN_PROGRESS", **tags)
    stacks.add("stuck", "DELETE_FAILED", **tags)
    assert torn_down({"execution": EXECUTION}) == ["stack going: DELETE_IN_PROGRESS", "stack stuck: DELETE_FAILED"]
    assert stacks.deleted == ids("stuck")


def test_what_outlived_its_stack_is_found_by_its_tag(stacks: Stacks) -> None:
    ec2 = client("ec2")
    running, gone = launch(2, execution="run-9")
    ec2.terminate_instances(InstanceIds=[gone])
    tag = {"Key": naming.TAG_EXECUTION, "Value": "run-9"}
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=4)["VolumeId"]
    link = ec2.create_network_interface(SubnetId=ec2.describe_subnets()["Subnets"][0]["SubnetId"])
    interface = link["NetworkInterface"]["NetworkInterfaceId"]
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=4)
    ec2.create_tags(Resources=[volume, interface], Tags=[tag])
    left = torn_down({"execution": "run-9"})
    assert [line.split(":")[0] for line in left] == [
        f"instance {running}",
        f"volume {volume}",
        f"interface {interface}",
    ]
    assert torn_down({"execution": "run-8"}) == []


# analyse


@cache
def glue_tables() -> list[Json]:
    return synthetic.glue_tables(Path())


@pytest.fixture
def queries(results: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Athena: the local region's engine over the bucket's tables. Gives the statements that were asked."""
    asked: list[str] = []
    folder = tmp_path / "tables"
    catalog = glue_tables()

    def ask(_client: Any, sql: str, *, database: str, workgroup: str) -> athena.Answer:
        assert (database, workgroup) == ("volumetry", "volumetry")
        asked.append(sql)
        for key in results.keys("tables/"):
            place = tmp_path / key
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(results.get(key) or b"")
        found = local_athena.run(
            sql,
            database=database,
            tables=catalog,
            folder=lambda location: folder / location.rstrip("/").rpartition("/")[2],
        )
        typed = [[athena._typed(value, kind) for value, kind in zip(row, found.types, strict=True)]
                 for row in found.rows]  # fmt: skip
        return athena.Answer(found.columns, typed)

    monkeypatch.setattr(athena, "ask", ask)
    monkeypatch.setattr(analyse, "_athena", lambda: None)
    bundle = tmp_path / "charts.js"
    bundle.write_text("// charts")
    monkeypatch.setattr(analyse, "BUNDLE", bundle)
    return asked


def analysed(**more: Any) -> Json:
    told: Json = analyse.handler({"execution": EXECUTION, "began": BEGAN, **more}, CONTEXT)
    return told


def note(results: Store, trial: str, attempt: int = 1) -> Json:
    found: Json = results.get_json(KEYS.trial(trial, attempt))
    return found


def test_trials_that_nobody_committed_are_committed_as_they_stand(
    results: Store, tmp_path: Path, queries: list[str]
) -> None:
    ready(results)
    opened()
    upload(results, tmp_path)
    committed()
    opened(TUNED)
    left = ["instance i-1: running"]
    summary = analysed(error="States.Timeout", cause="the execution\n ran out of time", left_behind=left)
    assert (summary["status"], summary["error"], summary["left_behind"]) == ("FAILED", "States.Timeout", left)
    assert summary["trials"] == {"valid": 1, "indeterminate": 1, "failed": 2}
    cut_off = note(results, TUNED)
    assert (cut_off["verdict"], cut_off["reason"]) == ("indeterminate", "cut off: the execution ran out of time")
    for trial in ("single.stock.randrw-4k.r1", "single.small-frames.randrw-4k.r1"):
        never = note(results, trial)
        assert (never["state"], never["verdict"]) == ("committed", "failed")
        assert never["reason"] == "not run: the execution ran out of time"
    tables = {naming.AttemptKeys.parse_rows(key)[2].trial for key in results.keys("tables/trials/")}
    assert tables == {trial.id for trial in planned(results).trials}


def test_only_last_attempts_count(results: Store, tmp_path: Path, queries: list[str]) -> None:
    ready(results)
    opened()
    committed(error="Volumetry.HostLost", cause="a host was lost: i-2 is terminated")
    opened()
    upload(results, tmp_path, attempt=2)
    told = committed(attempt=2)
    summary = analysed()
    assert summary["trials"] == {"valid": 1, "failed": 3}
    assert summary["run_s"] == round(told["run_s"], 1)
    assert note(results, MIRROR, 1)["reason"] == "a host was lost: i-2 is terminated"
    assert [row["verdict"] for row in rows(results, "trials", 1)] == ["failed"]


def test_a_running_attempt_after_a_committed_one_is_the_last(results: Store, queries: list[str]) -> None:
    ready(results)
    opened()
    committed(error="Volumetry.HostLost", cause="lost")
    opened()
    assert analysed()["trials"] == {"indeterminate": 1, "failed": 3}


def test_an_execution_that_went_well_says_so_in_summary_and_report(results: Store, queries: list[str]) -> None:
    make_plan()
    summary = analysed()
    assert results.get_json(KEYS.summary) == summary
    assert (summary["status"], summary["error"], summary["cause"], summary["left_behind"]) == ("SUCCEEDED", "", "", [])
    assert (summary["campaign"], summary["report"]) == ("functions", KEYS.report)
    assert note(results, MIRROR)["reason"] == "not run: the campaign ended"
    page = (results.get(KEYS.report) or b"").decode()
    assert "<html" in page
    assert EXECUTION in page
    assert results.get_json(KEYS.figures)
    assert queries


def test_an_analysis_that_comes_twice_writes_the_same(results: Store, tmp_path: Path, queries: list[str]) -> None:
    ready(results)
    opened()
    upload(results, tmp_path)
    committed()
    analysed()
    first = {key: results.get(key) for key in results.keys("")}
    analysed()
    assert {key: results.get(key) for key in results.keys("")} == first
