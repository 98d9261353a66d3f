"""A plan is the same for the same campaign and seed; its blocks hold every cell once; its templates lint."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint
from hypothesis import given
from hypothesis import strategies as st

from volumetry.ceilings import Ceiling, InstanceFacts, Pattern, ceilings, sat_on
from volumetry.ebs import MIB
from volumetry.naming import AttemptKeys, TrialId, stack_name
from volumetry.order import blocks
from volumetry.plan import AWS, LOCAL, SHARED_LANE, job_file, plan
from volumetry.reading import check_campaign, read_campaign
from volumetry.spec import Campaign, Topology, cells
from volumetry.topologies import template

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


def test_every_block_holds_every_cell_once(campaign: Campaign) -> None:
    planned = plan(campaign, LOCAL)
    wanted = Counter((topology, tuning, load.name) for topology, tuning, load, _ in cells(campaign))
    for block in range(1, campaign.repetitions + 1):
        found = Counter((t.topology, t.tuning, t.workload) for t in planned.trials if t.block == block)
        assert found == wanted


def test_hosts_that_share_hardware_share_a_lane(campaign: Campaign) -> None:
    assert list(plan(campaign, LOCAL).lanes) == [SHARED_LANE]
    assert plan(campaign, AWS).lanes == {name: [name] for name in plan(campaign, AWS).topologies}


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(1, 4)), max_size=8, unique_by=lambda c: c[0]), st.integers())
def test_blocks_hold_each_cell_as_often_as_it_is_repeated(matrix: list[tuple[str, int]], seed: int) -> None:
    drawn = blocks(matrix, seed, "lane")
    assert Counter(cell for block in drawn for cell in block) == Counter(dict(matrix))
    assert all(len(set(block)) == len(block) for block in drawn)
    assert drawn == blocks(matrix, seed, "lane")


def test_templates_pass_cfn_lint(campaign: Campaign) -> None:
    for name, topology in campaign.topologies.items():
        assert faults(template(topology)) == [], name


@pytest.mark.parametrize("hosts", [2, 16])
def test_a_template_of_many_hosts_passes_cfn_lint(hosts: int) -> None:
    volume = {"type": "io2", "iops": 3000}
    topology = Topology.model_validate({"stack": "shared", "hosts": hosts, "volume": volume})
    assert faults(template(topology)) == []


def test_the_switch_is_there_before_any_host() -> None:
    resources = template(Topology.model_validate({"stack": "nbd-mirror", "links": 2}))["Resources"]
    waits = {name for name, resource in resources.items() if resource.get("DependsOn") == "DeadMansSwitch"}
    assert {"HostTemplate", "Host1Link2", "Host2Link2"} <= waits
    hosts = [resource for resource in resources.values() if resource["Type"] == "AWS::EC2::Instance"]
    assert all("HostTemplate" in json.dumps(host) for host in hosts)


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


def test_ceilings_name_the_limit(campaign: Campaign) -> None:
    load = next(load for _, _, load, _ in cells(campaign))
    topology = _topology(type="gp3", size_gib=100, iops=3000, throughput_mibps=125)
    found = {ceiling.cause: ceiling.iops for ceiling in ceilings(topology, load, InstanceFacts(ebs_maximum_iops=1e6))}
    block = Pattern.of(load).block_bytes
    assert found["volume IOPS"] == 3000
    assert found["volume throughput"] == 125 * MIB / block
    assert found["instance EBS IOPS"] == 1e6


def test_a_small_gp2_volume_has_a_burst_and_a_baseline(campaign: Campaign) -> None:
    load = next(load for _, _, load, _ in cells(campaign))
    found = {
        ceiling.cause: ceiling.iops for ceiling in ceilings(_topology(type="gp2", size_gib=5), load, InstanceFacts())
    }
    assert found["volume IOPS"] == 100
    assert found["volume burst IOPS"] == 3000


@pytest.mark.parametrize(("iops", "cause"), [(2990, "volume IOPS"), (2500, None), (101, "baseline"), (3200, None)])
def test_a_result_near_a_limit_sat_on_it(iops: float, cause: str | None) -> None:
    found = sat_on(iops, [Ceiling("volume IOPS", 3000), Ceiling("baseline", 100)])
    assert (found.cause if found else None) == cause


def test_a_job_file_holds_what_was_asked_and_what_makes_evidence(campaign: Campaign) -> None:
    planned = plan(campaign, LOCAL)
    load = next(iter(planned.workloads.values()))
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
