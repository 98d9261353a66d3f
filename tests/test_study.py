"""What a study of DRBD adds to queries, analysis, page and terminal: failures, the path of a write, other tools,
provenance of a stack in the kernel, published figures.
"""

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
import synthetic_drbd
from rich.console import Console
from test_report import Elements

from volumetry.analysis import statement
from volumetry.report import page, words
from volumetry.report.charts import charts
from volumetry.report.model import Failure, Panel, Report, State
from volumetry.report.terminal import ladders
from volumetry.tables import partition


@pytest.fixture(scope="module")
def report() -> Report:
    return synthetic_drbd.study_report()


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return page.render(report, "/* the charts' script */")


def asked(name: str, **parameters: str) -> list[dict[str, Any]]:
    sql = statement(name, execution=synthetic.EXECUTION, dt=partition(synthetic.BEGAN), **parameters)
    return synthetic_drbd.study().query(sql)


def under(report: Report, event: str) -> Failure:
    return next(failure for failure in report.failures if failure.event == event)


def panel(report: Report, workload: str) -> Panel:
    return next(one for one in report.panels if (one.workload, one.tuning) == (workload, "stock"))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


# --- failures ---------------------------------------------------------------------------------------------------


def test_a_trial_under_a_failure_is_in_no_comparison() -> None:
    struck = set(synthetic_drbd.ORDEALS)
    for name in ("cells", "latency", "latency_distribution", "iops_over_time", "left_out", "drift", "telemetry"):
        assert not struck & {row["workload"] for row in asked(name)}, name
    view = synthetic_drbd.study().query("SELECT DISTINCT workload FROM samples")
    assert view
    assert not struck & {row["workload"] for row in view}
    (execution,) = asked("executions")
    told = [execution[column] for column in ("trials", "trials_valid", "trials_under_failure")]
    assert told == ["21", "18", "3"]


def test_what_a_failure_did_is_told_as_it_was_put_in(report: Report) -> None:
    assert [failure.event for failure in report.failures] == list(synthetic_drbd.ORDEALS)
    for failure in report.failures:
        ordeal = synthetic_drbd.ORDEALS[failure.event]
        assert (failure.stall_s, failure.before_rate, failure.degraded_rate) == (
            ordeal.stall_s,
            ordeal.before,
            ordeal.degraded,
        )
        assert failure.degraded_pct == pytest.approx(100 * ordeal.degraded / ordeal.before)
        assert len(failure.seconds) == 40
        assert failure.fault == (8.0, ordeal.back_s)
    (row,) = [row for row in asked("failures") if row["failure"] == "cut-all-links"]
    assert (float(row["degraded_pct"]), float(row["resync_pct"])) == (175.0, 37.5)


def test_the_resync_is_where_the_mirror_said_that_it_copies(report: Report) -> None:
    cut = under(report, "cut-all-links")
    assert cut.resync == pytest.approx((18.2, 24.5))
    assert under(report, "freeze-peer").resync is None
    # That less is left to copy is no new state; what is read back later is not on the line of time.
    assert [state.word for state in cut.states] == ["Connected", "WFConnection", "SyncSource", "Connected"]
    assert [state.kind for state in cut.states] == ["whole", "apart", "resync", "whole"]
    assert cut.states[1].end_s == cut.states[2].begin_s
    assert cut.ends_s == 40


def test_a_stack_that_tells_no_states_has_none(tmp_path: Path) -> None:
    study = synthetic_drbd.study()
    silent = [row for row in study.rows["events"] if row["event"] != "state"]
    synthetic.write(tmp_path, study.rows | {"events": silent})
    report = synthetic.analyse(replace(study, query=synthetic.port(tmp_path)))
    assert {failure.states for failure in report.failures} == {()}
    assert {failure.resync for failure in report.failures} == {None}
    assert under(report, "cut-all-links").fault == (8.0, 18.0)
    assert "failure-cut-all-links-stock-raw-mirror-1" in {chart.id for chart in charts(report)}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Connected Primary/Secondary UpToDate/UpToDate oos=0", "whole"),
        ("PausedSyncS Primary/Secondary UpToDate/Inconsistent oos=8", "resync"),
        ("clean recovering", "resync"),
        ("degraded", "apart"),
        ("StandAlone Primary/Unknown UpToDate/DUnknown oos=8", "apart"),
    ],
)
def test_states_in_the_words_of_drbd_and_md(text: str, kind: str) -> None:
    assert State(0.0, None, "host1", text).kind == kind


def test_checked_and_not_checked_are_not_the_same(report: Report) -> None:
    cut, killed, frozen = (under(report, event) for event in ("cut-all-links", "kill-peer", "freeze-peer"))
    assert words.writes(cut) == "31,337 acknowledged writes were read back from every leg: none lost or altered."
    assert words.legs(cut) == "The legs are byte-identical."
    assert words.writes(killed).endswith(": 2 lost or altered.")
    assert words.legs(killed) == "The legs DIFFER."
    assert words.writes(frozen) == "Acknowledged writes: not checked."
    assert words.legs(frozen) == "Whether the legs are byte-identical: not checked."
    unread = replace(cut, writes_lost=None)
    assert words.writes(unread) == "31,337 acknowledged writes: not all could be read back, so nobody knows."
    lost = [warning for warning in report.warnings if "lost or altered" in warning]
    assert tuple(lost) == report.warnings[:1]  # the gravest
    assert lost[0].startswith("raw-mirror under kill-peer, repetition 1: ")


def test_a_failures_section_has_a_chart_and_every_figure_in_words(report: Report, html: str) -> None:
    parsed = Elements(html)
    text = plain(" ".join(parsed.text))
    values = {float(element["value"] or "nan") for element in parsed.of("data")}
    for failure in report.failures:
        assert plain(words.failure(failure)) in text
        assert failure.reason in text
        assert {failure.stall_s, failure.before_rate, failure.degraded_rate} <= values
        for event in failure.events:
            assert event.event in text
    drawn = {chart.id: chart for chart in charts(report)}
    cut = drawn["failure-cut-all-links-stock-raw-mirror-1"]
    assert words.failure(under(report, "cut-all-links")) in cut.label
    spans = next(one["data"]["values"] for one in cut.spec["layer"] if one.get("name") == "spans")
    assert [(span["kind"], span["from"], span["to"]) for span in spans] == [
        ("fault", 8.0, 18.0),
        ("resync", pytest.approx(18.2), 24.5),
    ]
    assert "not checked" in text


def test_a_campaign_of_failures_alone_is_a_page(report: Report) -> None:
    alone = replace(
        report, panels=(), tunings=(), equals=(), series=(), curves=(), deviations=(), verdicts=(), hosts=(), paths=(),
        published=None, drift_pct_per_hour=None, planned=3,
    )  # fmt: skip
    parsed = Elements(page.render(alone, ""))
    assert [section["id"] for section in parsed.of("section")] == ["answer", "failures", "provenance", "again"]
    assert {link["href"] for link in parsed.of("a")} >= {"#failures"}
    assert "#ladder" not in {link["href"] for link in parsed.of("a")}


def test_a_failed_trial_without_a_load_has_no_chart(report: Report) -> None:
    lost = replace(
        report.failures[0], seconds=(), events=(), states=(), verdict="failed", reason="host2 uploaded no manifest",
        stall_s=None, before_rate=None, degraded_rate=None, resync_rate=None, resync_s=None,
    )  # fmt: skip
    empty = replace(report, failures=(lost,))
    assert not [chart for chart in charts(empty) if chart.id.startswith("failure-")]
    assert "failed: host2 uploaded no manifest" in " ".join(Elements(page.render(empty, "")).text)


# --- the path of a write ----------------------------------------------------------------------------------------


def test_the_path_is_medians_of_each_trials_own_parts(report: Report) -> None:
    rows = [row for row in synthetic_drbd.study().rows["trials"] if row["workload"] == "path-4k"]
    (path,) = report.paths
    assert (path.topology, path.trials, path.trials_valid) == ("raw-mirror", 3, 3)
    assert path.rtt_us == statistics.median(row["rtt_us"] for row in rows)
    assert path.local_us == statistics.median(row["alone_clat_p50_us"] for row in rows)
    assert path.mirrored_us == statistics.median(row["clat_p50_us"] for row in rows)
    beyond = [row["clat_p50_us"] - row["alone_clat_p50_us"] - row["rtt_us"] for row in rows]
    assert path.beyond_us == pytest.approx(statistics.median(beyond))
    assert path.beyond_low_us is None  # three trials


def test_the_path_in_words(report: Report) -> None:
    (path,) = report.paths
    assert plain(words.path(path)) == (
        "On raw-mirror a mirrored write takes 1.89 ms: the round trip (1.01 ms) and a write without the peer (642 µs) "
        "make 1.65 ms of it; the other 238 µs (13 %) are neither."
    )
    overlapping = replace(path, mirrored_us=1500.0, beyond_us=-154.0)
    assert plain(words.path(overlapping)).endswith("together would be 1.65 ms, 154 µs more: they overlap.")
    assert words.path(replace(path, rtt_us=None, foretold_us=None, beyond_us=None)).endswith("nothing can be said.")


# --- other tools ------------------------------------------------------------------------------------------------


def test_each_tool_is_told_in_its_own_unit(report: Report) -> None:
    database, files = panel(report, "pgbench"), panel(report, "dbench-5")
    assert (database.unit, files.unit, panel(report, "path-4k").unit) == ("TPS", "MB/s", "IOPS")
    assert database.load == "pgbench, scale 1, client 10, jobs 1, transactions 1000"
    assert files.load == "dbench, 5 clients, 30 s"
    rates = {step.topology: step.rate.median for step in files.steps if step.rate}
    assert rates == pytest.approx({name: rate / 1e6 for name, rate in synthetic_drbd.BYTES_PER_S.items()})
    assert plain(words.finding(database)).startswith("mirror keeps 27 % of what plain reaches: 174 of 640 TPS.")
    assert plain(words.finding(files)).startswith("mirror keeps 31 % of what plain reaches: 61.2 of 198 MB/s.")
    assert database.steps[0].latency["all"].operations == 30_000
    assert files.steps[0].latency == {}


def test_a_tool_that_counts_no_operations_is_compared_by_its_bytes(report: Report) -> None:
    (effect,) = report.tunings
    assert (effect.workload, effect.base, effect.tuning, effect.cost.pct) == ("dbench-5", "stock", "nobarrier", 0.0)
    series = [one for one in report.series if one.workload == "dbench-5" and one.topology == "plain"]
    assert series[0].points[1][1] == pytest.approx(196.4, abs=0.1)
    assert {row["workload"] for row in asked("drift")} == {"pgbench", "dbench-5", "path-4k"}


def test_nothing_is_called_iops_that_is_not(report: Report) -> None:
    other = replace(
        report, panels=tuple(one for one in report.panels if one.unit != "IOPS"), failures=(), paths=(), left_out=(),
        series=tuple(one for one in report.series if one.workload != "path-4k"),
    )  # fmt: skip
    html = page.render(other, "")
    assert "IOPS" not in html.replace("provisioned IOPS", "")
    assert "CPU per 1,000 TPS" in html
    assert "CPU per 1,000 MB/s" not in html


# --- published figures and provenance ---------------------------------------------------------------------------


def test_published_figures_stand_beside_measured_ones(report: Report, html: str) -> None:
    assert report.published is not None
    known, unknown = report.published.ratios
    assert known.published_pct == 26.9
    assert known.measured_pct == pytest.approx(100 * 174 / 640)
    assert plain(words.measured_interval(known)) == "no interval: 3 of the six blocks that it needs"
    assert unknown.measured_pct is None
    assert words.measured_interval(unknown) == "no block with valid trials of both"
    assert "first sync skipped: yes" in report.published.here
    text = plain(" ".join(Elements(html).text))
    assert report.published.source in text
    assert report.published.differs in text
    assert "Hosts were virtual machines on an emulated CPU: read ratios, not absolute figures." in text
    # It is in no other figure.
    without = replace(report, published=None)
    assert [chart.spec for chart in charts(without)] == [chart.spec for chart in charts(report)]
    assert Elements(html).of("data").count({"value": "26.9"}) == 1


def test_with_six_blocks_a_measured_ratio_has_its_interval(report: Report) -> None:
    assert report.published is not None
    known = report.published.ratios[0]
    assert known.measured is not None
    enough = replace(known, measured=replace(known.measured, pct=72.8, low_pct=72.0, high_pct=73.5, blocks=6))
    assert plain(words.measured_interval(enough)) == "26.5 % to 28.0 %"


def test_provenance_names_the_stack_in_the_kernel(report: Report) -> None:
    facts = {one.topology: one.facts for one in report.provenance}
    mirror, single = facts["mirror"], facts["plain"]
    assert mirror["operating system"] == "Debian GNU/Linux 12 (bookworm)"
    assert mirror["driver"].startswith("DRBD 8.4.11, in-tree module (srcversion ")
    assert mirror["parameters"] == "protocol C, max-buffers 2048"
    assert mirror["first sync skipped"] == "yes"
    assert mirror["state of the stack, first trial"].count("cs:Connected") == 1
    assert (single["file system"], single["mount options"]) == ("ext4", "rw, relatime")
    assert "file system" not in facts["raw-mirror"]
    (tuned,) = report.tuned
    assert (tuned.topology, tuned.tuning) == ("plain", "nobarrier")
    assert tuned.values == {"barrier": "no"}
    assert tuned.seen == {"mounted": "rw,relatime,nobarrier"}


# --- the terminal -----------------------------------------------------------------------------------------------


def test_the_terminal_has_a_line_for_each(report: Report) -> None:
    console = Console(width=140, color_system=None)
    with console.capture() as captured:
        console.print(ladders(report, 140))
    lines = [plain(line.rstrip()) for line in captured.get().splitlines()]
    assert (
        "raw-mirror, cut-all-links: stood 6.2 s; 800 → 1,400 (175 %) → 300 (38 %) IOPS; resync 6.5 s; "
        "writes 0 of 31,337 lost; legs identical" in lines
    )
    assert any(line.endswith(f"resync {words.NONE}; writes not checked; legs not compared") for line in lines)
    assert (
        "pgbench, mirror of plain: published 26.9 %, measured 27.2 % (no interval: 3 of the six blocks that it needs)"
        in lines
    )


def test_the_page_stays_small(report: Report, tmp_path: Path) -> None:
    page.write_bundle(tmp_path / "bundle.js")
    assert len(page.render(report, (tmp_path / "bundle.js").read_text(encoding="utf-8")).encode()) < 1.5e6
