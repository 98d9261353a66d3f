"""A plan is the same for the same campaign and seed; its blocks hold every cell once; its templates lint."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint
from hypothesis import given
from hypothesis import strategies as st

from volumetry.ceilings import Ceiling, InstanceFacts, ceilings, sat_on
from volumetry.ebs import MIB
from volumetry.naming import AttemptKeys, TrialId, stack_name
from volumetry.order import blocks
from volumetry.plan import AWS, FAILURE_SETTLE_S, LOCAL, SHARED_LANE, TOOL_SETUP_S, Plan, job_file, plan
from volumetry.reading import check_campaign, read_campaign
from volumetry.rules import MAX_TOGETHER
from volumetry.spec import STACKS, Campaign, Load, Topology, cells, groups
from volumetry.topologies import DEVICES, host_azs, host_names, parameter_names, template

CAMPAIGNS = sorted((Path(__file__).parent.parent / "campaigns").glob("*.yaml"))


def faults(text: dict[str, Any]) -> list[str]:
    """What cfn-lint has against a template; its remarks (I) are advice."""
    return [
        str(match)
        for match in lint(json.dumps(text), config={"regions": ["us-east-1"]})
        if not match.rule.id.startswith("I")
    ]


@pytest.fixture(params=CAMPAIGNS, ids=lambda path: path.stem)
def campaign(request: pytest.FixtureRequest) -> Campaign:
    return read_campaign(request.param)


@pytest.mark.parametrize("environment", [LOCAL, AWS], ids=["local", "aws"])
def test_the_same_campaign_and_seed_give_the_same_plan(campaign: Campaign, environment: object) -> None:
    again = Campaign.model_validate(json.loads(campaign.model_dump_json()))
    assert plan(campaign, environment).to_json() == plan(again, environment).to_json()


def test_another_seed_gives_another_order(campaign: Campaign) -> None:
    other = campaign.model_copy(update={"seed": campaign.seed + 1})
    first, second = plan(campaign, LOCAL), plan(other, LOCAL)
    assert sorted(trial.id for trial in first.trials) == sorted(trial.id for trial in second.trials)
    assert [trial.id for trial in first.trials] != [trial.id for trial in second.trials]


def test_every_block_holds_every_cell_that_is_repeated_so_often_once(campaign: Campaign) -> None:
    planned = plan(campaign, LOCAL)
    matrix = cells(campaign)
    for block in range(1, max(count for *_, count in matrix) + 1):
        wanted = Counter((topology, tuning, load.name) for topology, tuning, load, count in matrix if count >= block)
        found = Counter((t.topology, t.tuning, t.workload) for t in planned.trials if t.block == block)
        assert found == wanted


def test_hosts_that_share_hardware_share_a_lane(campaign: Campaign) -> None:
    assert plan(campaign, LOCAL).lanes == {SHARED_LANE: list(groups(campaign))}
    assert plan(campaign, AWS).lanes == {name: [name] for name in groups(campaign)}


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(1, 4)), max_size=8, unique_by=lambda c: c[0]), st.integers())
def test_blocks_hold_each_cell_as_often_as_it_is_repeated(matrix: list[tuple[str, int]], seed: int) -> None:
    drawn = blocks(matrix, seed, "lane")
    assert Counter(cell for block in drawn for cell in block) == Counter(dict(matrix))
    assert all(len(set(block)) == len(block) for block in drawn)
    assert drawn == blocks(matrix, seed, "lane")


def launches(campaign: Campaign) -> dict[str, dict[str, Topology]]:
    return {name: {one: campaign.topologies[one] for one in members} for name, members in groups(campaign).items()}


def test_templates_pass_cfn_lint(campaign: Campaign) -> None:
    for name, launched in launches(campaign).items():
        assert faults(template(launched)) == [], name


@pytest.mark.parametrize("hosts", [2, 16])
def test_a_template_of_many_hosts_passes_cfn_lint(hosts: int) -> None:
    volume = {"type": "io2", "iops": 3000}
    topology = Topology.model_validate({"stack": "shared", "hosts": hosts, "volume": volume})
    assert faults(template({"shared": topology})) == []


def test_the_switch_is_there_before_any_host() -> None:
    resources = template({"mirror": Topology.model_validate({"stack": "nbd-mirror", "links": 2})})["Resources"]
    waits = {name for name, resource in resources.items() if resource.get("DependsOn") == "DeadMansSwitch"}
    assert {"HostTemplate", "Host1Link2", "Host2Link2"} <= waits
    hosts = [resource for resource in resources.values() if resource["Type"] == "AWS::EC2::Instance"]
    assert all("HostTemplate" in json.dumps(host) for host in hosts)


# Several topologies that share host1

TRIO: dict[str, Any] = {
    "campaign": "trio",
    "repetitions": 2,
    "topologies": {
        "local": {"stack": "local", "together": "trio", "volume": {"size_gib": 4}},
        "in-az": {"stack": "drbd", "together": "trio", "volume": {"size_gib": 5}},
        "alone": {"stack": "local"},
        "across-azs": {"stack": "drbd", "azs": ["a", "b"], "together": "trio", "volume": {"size_gib": 6}},
    },
    "workloads": {"w": {"fio": {"rw": "randwrite", "size": "64m", "runtime": "3s"}}},
}


@pytest.fixture
def trio() -> Campaign:
    return check_campaign(TRIO)


def trio_of(campaign: Campaign, **more: Any) -> dict[str, Topology]:
    return {
        name: topology.model_copy(update=more)
        for name, topology in campaign.topologies.items()
        if topology.together == "trio"
    }


def test_a_group_is_launched_in_the_place_of_its_first_topology(trio: Campaign) -> None:
    assert groups(trio) == {"trio": ["local", "in-az", "across-azs"], "alone": ["alone"]}


def test_topologies_of_a_group_share_host1_and_have_peers_of_their_own(trio: Campaign) -> None:
    launched = trio_of(trio)
    assert host_names(launched, list(launched)) == {
        "local": ["host1"],
        "in-az": ["host1", "host2"],
        "across-azs": ["host1", "host3"],
    }
    assert host_azs(launched) == ["a", "a", "b"]
    alone = {"shared": Topology(stack="shared", hosts=3)}
    assert host_names(alone, ["shared"]) == {"shared": ["host1", "host2", "host3"]}
    assert host_azs(alone) == ["a", "a", "a"]


@pytest.mark.parametrize("links", [1, 2])
def test_the_template_of_a_group_passes_cfn_lint(trio: Campaign, links: int) -> None:
    assert faults(template(trio_of(trio, links=links))) == []


def test_host1_has_the_volume_of_each_topology_of_its_group(trio: Campaign) -> None:
    resources = template(trio_of(trio))["Resources"]
    hosts = {name: each["Properties"] for name, each in resources.items() if each["Type"] == "AWS::EC2::Instance"}
    volumes = {
        name: {
            mapping["DeviceName"]: mapping["Ebs"]["VolumeSize"]
            for mapping in resources[host["LaunchTemplate"]["LaunchTemplateId"]["Ref"]]["Properties"][
                "LaunchTemplateData"
            ]["BlockDeviceMappings"]
        }
        for name, host in hosts.items()
    }
    assert volumes == {
        "Host1": {"/dev/sdf": 4, "/dev/sdg": 5, "/dev/sdh": 6},
        "Host2": {"/dev/sdg": 5},
        "Host3": {"/dev/sdh": 6},
    }
    assert {name: host["SubnetId"]["Ref"] for name, host in hosts.items()} == {
        "Host1": "SubnetA",
        "Host2": "SubnetA",
        "Host3": "SubnetB",
    }
    assert set(parameter_names(trio_of(trio))) >= {"SubnetA", "SubnetB"}


def test_hosts_with_the_same_volumes_are_launched_alike() -> None:
    pair = {name: Topology(stack="local", together="pair") for name in ("one", "other")}
    kinds = Counter(resource["Type"] for resource in template(pair)["Resources"].values())
    assert (kinds["AWS::EC2::Instance"], kinds["AWS::EC2::LaunchTemplate"]) == (1, 1)


def test_as_many_topologies_are_together_as_there_are_device_names() -> None:
    assert len(DEVICES) == MAX_TOGETHER
    full = {f"t{number}": Topology(stack="local", together="full") for number in range(MAX_TOGETHER)}
    assert faults(template(full)) == []


def test_a_group_is_a_lane_of_its_own_on_aws_with_numbers_in_order(trio: Campaign) -> None:
    planned = plan(trio, AWS)
    assert planned.lanes == {"trio": ["trio"], "alone": ["alone"]}
    assert list(planned.members("trio")) == ["local", "in-az", "across-azs"]
    told = {name: (each.launch, each.number, each.hosts, each.clients) for name, each in planned.topologies.items()}
    assert told == {
        "local": ("trio", 0, {"host1": "a"}, ["host1"]),
        "in-az": ("trio", 1, {"host1": "a", "host2": "a"}, ["host1"]),
        "across-azs": ("trio", 2, {"host1": "a", "host3": "b"}, ["host1"]),
        "alone": ("alone", 0, {"host1": "a"}, ["host1"]),
    }
    # One trial at a time: host1 is theirs together.
    lane = [trial for trial in planned.trials if trial.lane == "trio"]
    assert [trial.sequence for trial in lane] == [1, 2, 3, 4, 5, 6]
    assert {trial.topology for trial in lane} == {"local", "in-az", "across-azs"}


# Loads of other tools, and what else a trial may hold


def planned_of(**workloads: Any) -> Plan:
    topologies = {"t": {"stack": "drbd", "filesystem": "xfs"}}
    return plan(check_campaign({"campaign": "x", "topologies": topologies, "workloads": workloads}), AWS)


FIO = {"rw": "randwrite", "size": "64m", "runtime": "30s"}


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"time": 20}, 20),
        ({"client": 10, "transactions": 1000}, 200),  # by the rate that is assumed
        ({"client": 10, "transactions": 1000, "rate": 1000}, 10),
    ],
)
def test_pgbench_takes_its_time_or_that_of_its_transactions(options: dict[str, int], seconds: float) -> None:
    load = planned_of(w={"pgbench": options}).workloads["w"]
    assert (load.tool, load.ramp_s, load.runtime_s, load.sections) == ("pgbench", 0, seconds, [])
    assert load.options.items() >= {name: str(value) for name, value in options.items()}.items()


def test_what_a_trial_takes_beside_its_load() -> None:
    planned = planned_of(
        plain={"fio": FIO},
        path={"fio": FIO, "decompose": True},
        struck={"fio": FIO, "failure": {"event": "kill-peer", "at": "5s"}},
        files={"dbench": {"timelimit": 30}},
    )
    expected = {trial.workload: trial.expected_s - AWS.trial_overhead_s for trial in planned.trials}
    assert expected == {"plain": 30, "path": 60, "struck": 30 + FAILURE_SETTLE_S, "files": 30 + TOOL_SETUP_S}
    assert planned.tools("t") == ["dbench", "fio"]


def test_a_failure_is_planned_in_seconds() -> None:
    failure = {"event": "cut-all-links", "at": "1500ms", "lasts": "2s"}
    load = planned_of(w={"fio": FIO, "failure": failure}).workloads["w"]
    assert load.failure is not None
    assert (load.failure.event, load.failure.at_s, load.failure.lasts_s) == ("cut-all-links", 1.5, 2.0)
    assert "verify=crc32c" in job_file(load)


def test_a_file_system_is_not_filled_before_its_files_are() -> None:
    topology = planned_of(w={"fio": FIO}).topologies["t"]
    assert (topology.precondition_bytes, topology.precondition_s) == (0, 0)


names = st.from_regex(r"[a-z][a-z0-9-]{0,39}", fullmatch=True)


@given(names, names, names, st.integers(1, 10_000))
def test_a_trials_id_reads_back(topology: str, tuning: str, workload: str, repetition: int) -> None:
    identifier = TrialId(topology, tuning, workload, repetition)
    assert TrialId.parse(str(identifier)) == identifier
    keys = AttemptKeys("demo-1", str(identifier), 3)
    assert AttemptKeys.parse_rows(keys.rows("trials", "2026-11-21")) == ("trials", "2026-11-21", keys)


@given(st.text())
def test_what_is_no_id_is_refused(text: str) -> None:
    try:
        identifier = TrialId.parse(text)
    except ValueError:
        return
    assert str(identifier) == text


@given(st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True), names)
def test_a_stacks_name_is_one_that_cloudformation_takes(execution: str, topology: str) -> None:
    name = stack_name(execution, topology)
    assert len(name) <= 128
    assert name.replace("-", "").isalnum()


def _topology(**volume: object) -> Topology:
    return Topology.model_validate({"stack": "local", "volume": volume})


LOAD = Load("w", (("w", {"rw": "randwrite", "bs": "16k", "runtime": "3s"}),))


def test_ceilings_name_the_limit() -> None:
    topology = _topology(type="gp3", size_gib=100, iops=3000, throughput_mibps=125)
    found = {ceiling.cause: ceiling.iops for ceiling in ceilings(topology, LOAD, InstanceFacts(ebs_maximum_iops=1e6))}
    assert found["volume IOPS"] == 3000
    assert found["volume throughput"] == 125 * MIB / (16 << 10)
    assert found["instance EBS IOPS"] == 1e6


def test_a_small_gp2_volume_has_a_burst_and_a_baseline() -> None:
    known = ceilings(_topology(type="gp2", size_gib=5), LOAD, InstanceFacts())
    found = {ceiling.cause: ceiling.iops for ceiling in known}
    assert found["volume IOPS"] == 100
    assert found["volume burst IOPS"] == 3000


@pytest.mark.parametrize("stack", STACKS)
def test_a_mirror_s_writes_meet_the_network(stack: str) -> None:
    facts = InstanceFacts(network_baseline_bytes_per_s=16384e3)
    found = {ceiling.cause: ceiling.iops for ceiling in ceilings(Topology(stack=stack), LOAD, facts)}
    assert found.get("instance network baseline") == (1000 if STACKS[stack].mirror else None)


def test_other_tools_have_no_ceilings() -> None:
    assert ceilings(_topology(), Load("w", tool="pgbench", span_s=3), InstanceFacts(ebs_maximum_iops=1e6)) == []


@pytest.mark.parametrize(("iops", "cause"), [(2990, "volume IOPS"), (2500, None), (101, "baseline"), (3200, None)])
def test_a_result_near_a_limit_sat_on_it(iops: float, cause: str | None) -> None:
    found = sat_on(iops, [Ceiling("volume IOPS", 3000), Ceiling("baseline", 100)])
    assert (found.cause if found else None) == cause


def test_a_job_file_holds_what_was_asked_and_what_makes_evidence(campaign: Campaign) -> None:
    for load in plan(campaign, LOCAL).workloads.values():
        if load.tool != "fio":
            continue
        text = job_file(load)
        assert text.startswith("[global]\n")
        assert "write_iops_log=log" in text
        for name, options in load.sections:
            assert f"[{name}]" in text
            assert all(f"{option}={value}" in text for option, value in options.items())


def test_jobs_that_differ_in_direction_still_meet_the_volume_s_limit() -> None:
    job = "[global]\nbs=8k\nruntime=3s\ntime_based\n[reader]\nrw=randread\n[writer]\nrw=randwrite\n"
    campaign = check_campaign(
        {
            "campaign": "x",
            "topologies": {"far": {"stack": "nbd-mirror", "azs": ["a", "b"]}},
            "workloads": {"own": {"job": job}, "sizes": {"job": job.replace("bs=8k", "bssplit=4k/50:8k/50")}},
        }
    )
    found = {trial.workload: trial.ceilings for trial in plan(campaign, AWS).trials}
    assert (found["own"][0].cause, found["own"][0].iops) == ("volume IOPS", 3000)
    assert found["sizes"] == []
