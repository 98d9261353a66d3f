"""A report's data, from real Parquet by way of Athena's SQL, and what it says of executions that went wrong."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import synthetic

from volumetry import analysis
from volumetry.analysis import ladders, over_time
from volumetry.plan import AWS, Plan, plan
from volumetry.reading import check_campaign
from volumetry.report import words
from volumetry.report.model import Cost, Report, Step
from volumetry.tables import partition


@pytest.fixture(scope="module")
def report() -> Report:
    return synthetic.standard_report()


def steps(report: Report, workload: str, tuning: str = "stock") -> list[Step]:
    (panel,) = [panel for panel in report.panels if (panel.workload, panel.tuning) == (workload, tuning)]
    return list(panel.steps)


def test_the_ladder_is_in_the_plans_order_with_what_each_step_changes(report: Report) -> None:
    told = [(step.number, step.topology, step.changes) for step in steps(report, "randrw-4k")]
    assert told == [
        (1, "single", ()),
        (2, "shared", ("stack: local → shared",)),
        (3, "mirror", ("stack: shared → nbd-mirror",)),
        (4, "mirror-two-links", ("links: 1 → 2",)),
        (5, "mirror-across-azs", ("AZs: 1 → 2",)),
        (None, "single-again", ()),
    ]


def test_each_step_costs_about_what_was_put_in(report: Report) -> None:
    means = {name: (us["read"] + us["write"]) / 2 for name, us in synthetic.LATENCY_US.items()}
    ladder = steps(report, "randrw-4k")
    for before, step in pairwise(ladder[:5]):
        assert step.against_previous is not None
        assert step.against_first is not None
        assert step.against_previous.pct == pytest.approx(
            100 * (1 - means[before.topology] / means[step.topology]), abs=4
        )
        assert step.against_first.pct == pytest.approx(100 * (1 - means["single"] / means[step.topology]), abs=4)
    assert ladder[0].against_previous is None
    assert ladder[0].against_first is None


def test_a_topology_outside_the_ladder_is_compared_with_its_first_alone(report: Report) -> None:
    aside = steps(report, "randrw-4k")[-1]
    assert aside.against_previous is None
    assert aside.against_first is not None
    assert abs(aside.against_first.pct) < 4


def test_intervals_need_six_trials(report: Report) -> None:
    ladder = {step.topology: step for step in steps(report, "randrw-4k")}
    single, mirror = ladder["single"], ladder["mirror"]
    assert single.rate is not None
    assert single.rate.low is not None
    assert (mirror.trials_valid, mirror.left_out) == (5, {"degraded": 1})
    assert mirror.rate is not None
    assert mirror.rate.low is None
    assert mirror.against_previous is not None
    assert (mirror.against_previous.blocks, mirror.against_previous.low_pct) == (5, None)


def test_latencies_split_by_direction_and_cpu_by_role(report: Report) -> None:
    ladder = {step.topology: step for step in steps(report, "randrw-4k")}
    across = ladder["mirror-across-azs"]
    assert set(across.latency) == {"all", "read", "write"}
    assert across.latency["write"].p50_us > 3 * across.latency["read"].p50_us
    assert across.latency["all"].operations == across.latency["read"].operations + across.latency["write"].operations
    assert across.cpu_pct is not None
    assert across.peer_cpu_pct is not None
    assert ladder["single"].peer_cpu_pct is None
    assert across.rtt_us is not None
    assert across.rtt_us.median == pytest.approx(1010, rel=0.06)


def test_from_a_load_that_sat_on_a_limit_no_ladder_is_read(report: Report) -> None:
    (panel,) = [panel for panel in report.panels if panel.workload == "randread-4k-deep"]
    assert panel.refusal == "Every topology sat on a limit (volume IOPS): no ladder may be read from this load."
    assert words.finding(panel) == panel.refusal
    assert words.remaining(panel) is None
    assert panel.ceilings[0].iops == 3000
    assert all(step.rate is None and step.left_out == {"capped": 6} for step in panel.steps)
    assert any(panel.refusal in warning for warning in report.warnings)


def test_a_panel_says_what_is_left_and_which_step_costs_most(report: Report) -> None:
    panel = report.panels[0]
    left, last = words.remaining(panel), panel.rungs[-1]
    assert last.against_first is not None
    assert left == 100 - last.against_first.pct
    assert words.finding(panel).startswith(
        f"mirror-across-azs keeps {left:.0f}\N{NO-BREAK SPACE}% of what single reaches: "
    )
    assert "The costliest step is mirror-across-azs (AZs: 1 → 2): " in words.finding(panel)


def test_a_tuning_is_compared_with_the_first_on_the_same_topology(report: Report) -> None:
    told = [(effect.topology, effect.base, effect.tuning) for effect in report.tunings]
    assert told == [("mirror-two-links", "stock", "mtu-1500"), ("mirror-across-azs", "stock", "mtu-1500")]
    assert all(effect.cost.pct == pytest.approx(100 * (1 - 1 / 1.14), abs=4) for effect in report.tunings)
    sweep = steps(report, "seqwrite-64k", "mtu-1500")
    assert [step.number for step in sweep] == [4, 5]
    assert sweep[0].against_previous is None  # the step before was not run with this tuning


def test_topologies_that_are_planned_alike_are_an_arm_of_equals(report: Report) -> None:
    told = [(pair.workload, pair.one, pair.other, pair.called_different) for pair in report.equals]
    assert told == [
        ("randrw-4k", "single", "single-again", False),
        ("seqwrite-64k", "single", "single-again", False),
    ]
    pair = report.equals[0]
    assert replace(pair, cost=Cost(5.0, 4.0, 6.0, 6)).called_different is True
    assert replace(pair, cost=Cost(5.0, None, None, 5)).called_different is None


def test_what_was_left_out_is_told_attempt_by_attempt(report: Report) -> None:
    told = {(attempt.topology, attempt.attempt, attempt.verdict, attempt.reason) for attempt in report.left_out}
    assert ("shared", 1, "superseded, failed", "host2 uploaded no manifest") in told
    assert ("mirror", 1, "degraded", "the connection to host2 was lost during the trial") in told
    assert (report.trials, report.trials_valid, report.planned, report.attempts) == (120, 82, 120, 121)
    assert "38 of 120 trials are left out of every comparison: 36 capped, 1 degraded, 1 unsteady." in report.warnings


def test_series_curves_and_drift(report: Report) -> None:
    assert len(report.series) == 120
    assert {len(series.points) for series in report.series} == {30}
    assert {series.verdict for series in report.series} == {"valid", "capped", "degraded", "unsteady"}
    assert len(report.curves) == 14  # of cells with valid trials
    assert all(curve.points[-1][0] == 1.0 for curve in report.curves)
    assert len(report.deviations) == 82
    assert report.drift_pct_per_hour == pytest.approx(-2.2, abs=1)


def test_provenance_is_told_by_topology(report: Report) -> None:
    facts = {one.topology: one.facts for one in report.provenance}
    assert list(facts) == [*synthetic.CAMPAIGN["ladder"], "single-again"]
    assert facts["mirror-across-azs"]["AZ ids"] == "local1-az1, local1-az2"
    assert facts["mirror"]["parameters"] == "quorum 2, links 1"
    assert facts["mirror"]["first sync skipped"] == "yes"
    assert "parameters" not in facts["single"]


def test_a_report_of_the_local_region_says_what_its_figures_are_not(report: Report) -> None:
    assert report.warnings[0].startswith("Measured in the local region: its round-trip times are inputs")
    assert "these are not figures of EBS" in report.warnings[1]


def test_three_repetitions_give_no_interval_and_say_so(tmp_path: Path) -> None:
    report = synthetic.analyse(
        synthetic.make(tmp_path, repetitions=3, matrix=[{"workloads": ["randrw-4k"], "tunings": ["stock"]}])
    )
    costs = [step.against_first for step in report.panels[0].steps if step.against_first]
    assert costs
    assert all(cost.low_pct is None for cost in costs)
    assert [pair.called_different for pair in report.equals] == [None]
    assert any("6 of 6 cells have fewer than 6 valid trials" in warning for warning in report.warnings)


def test_an_execution_that_left_nothing(tmp_path: Path) -> None:
    made = synthetic.make(tmp_path / "made", repetitions=1)
    nothing = replace(made, query=synthetic.port(tmp_path / "nothing"))
    report = synthetic.analyse(nothing)
    assert (report.trials, report.series, report.equals, report.ended) == (0, (), (), None)
    assert report.warnings == ("20 of 20 planned trials left no result.",)
    assert {words.finding(panel) for panel in report.panels} == {"No valid trial: nothing can be said."}


def test_a_step_that_changes_two_things_is_named(tmp_path: Path) -> None:
    campaign: dict[str, Any] = {
        "ladder": ["single", "mirror-across-azs", "mirror"],
        "matrix": [{"workloads": ["randrw-4k"], "tunings": ["stock"]}],
    }
    report = synthetic.analyse(synthetic.make(tmp_path, repetitions=1, **campaign))
    told = [warning for warning in report.warnings if "things" in warning]
    assert told == [
        "The step to mirror-across-azs changes 3 things, and its cost is theirs together: stack: local → nbd-mirror; "
        "AZs: 1 → 2; links: 1 → 2.",
        "The step to mirror changes 2 things, and its cost is theirs together: AZs: 2 → 1; links: 2 → 1.",
    ]
    assert [step.number for step in report.panels[0].steps] == [1, 2, 3, None, None, None]


def planned(**topologies: dict[str, Any]) -> Plan:
    load = {"fio": {"rw": "randwrite", "size": "64m", "runtime": "3s"}}
    return plan(check_campaign({"campaign": "x", "topologies": topologies, "workloads": {"w": load}}), AWS)


def test_a_step_may_change_what_is_on_the_volume_and_under_it() -> None:
    made = planned(
        bare={"stack": "drbd"},
        other={"stack": "drbd", "filesystem": "xfs", "drbd": {"protocol": "A"}, "kernel": "linux-image-cloud-amd64"},
        plain={"stack": "local"},
    ).topologies
    assert list(ladders.changes(made["bare"], made["other"])) == [
        "kernel: the image's → linux-image-cloud-amd64",
        "file system: none → xfs",
        "DRBD protocol: C → A",
    ]
    assert list(ladders.changes(made["plain"], made["bare"])) == ["stack: local → drbd"]


def test_equals_in_a_group_are_equal_whatever_their_hosts_are_called() -> None:
    mirror = {"stack": "drbd", "together": "pair"}
    made = planned(one=mirror, other=mirror, far=mirror | {"azs": ["a", "b"]}, alone={"stack": "drbd"})
    assert ladders.kind(made, "one") == ladders.kind(made, "other")
    # Another place, or a host of its own, is another thing.
    assert ladders.kind(made, "one") != ladders.kind(made, "far")
    assert ladders.kind(made, "one") != ladders.kind(made, "alone")


def test_long_executions_are_told_in_longer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_time, "MAX_SERIES_POINTS", 360)
    report = synthetic.analyse(
        synthetic.make(tmp_path, repetitions=3, matrix=[{"workloads": ["randrw-4k"], "tunings": ["stock"]}])
    )
    assert report.series_step_s == 2  # 18 trials of 30 s
    assert {len(series.points) for series in report.series} == {15}


def test_parameters_cannot_end_their_literal() -> None:
    sql = analysis.statement("cells", execution="x' OR '1' = '1", dt="2026-11-20")
    assert "execution = 'x'' OR ''1'' = ''1'" in sql


def test_the_partition_is_that_of_the_executions_begin() -> None:
    late = datetime.fromisoformat("2026-11-20T23:30:00-05:00")
    assert partition(late) == "2026-11-21"
    assert partition(datetime(2026, 11, 20, tzinfo=UTC)) == "2026-11-20"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, words.NONE), (1890.4, "1,890"), (12.34, "12.3"), (0.0, "0"), (2_024_000.0, "2,024,000"), (100.0, "100")],
)
def test_counts_in_words(value: float | None, text: str) -> None:
    assert words.count(value) == text


@pytest.mark.parametrize(
    ("us", "text"), [(None, words.NONE), (514.05, "514 µs"), (1138.7, "1.14 ms"), (2.5e6, "2.5 s")]
)
def test_latencies_in_words(us: float | None, text: str) -> None:
    assert words.latency(us).replace("\N{NO-BREAK SPACE}", " ") == text


def test_changes_in_words() -> None:
    def plain(text: str) -> str:
        return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")

    lost, gained, nothing = Cost(29.94, 28.2, 31.0, 6), Cost(-4.6, None, None, 5), Cost(0.01, -1.0, 1.0, 6)
    assert [plain(words.change(cost)) for cost in (lost, gained, nothing)] == ["-29.9 %", "+4.6 %", "0.0 %"]
    assert plain(words.change_interval(lost)) == "-31.0 to -28.2 %"
    assert words.change_interval(gained) == ""
    assert [words.way(cost) for cost in (lost, gained, nothing, None)] == ["lost", "level", "level", "level"]
