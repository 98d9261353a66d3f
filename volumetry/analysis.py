"""What an execution found: the data of its report, asked of ``queries/named`` and put in the order of its plan."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from volumetry.plan import Plan, PlannedLoad, PlannedTopology
from volumetry.report.model import (
    Ceiling,
    Cost,
    Curve,
    Deviation,
    EqualPair,
    Estimate,
    HostLoad,
    LeftOut,
    Panel,
    Percentiles,
    Provenance,
    Report,
    Series,
    Step,
    Trial,
    TuningEffect,
    VerdictCount,
)
from volumetry.report.warnings import warnings
from volumetry.tables import partition

Query = Callable[[str], Sequence[Mapping[str, Any]]]
"""Runs a statement and gives its rows by column name; values typed, or text as Athena returns them."""

NAMED = Path(__file__).resolve().parent.parent / "queries" / "named"

# So many points draw at once and keep the page below 1.5 MB.
MAX_SERIES_POINTS = 8_000

Row = TypeVar("Row")
Cell = tuple[str, str, str]  # workload, tuning, topology


def statement(name: str, **parameters: str) -> str:
    """The SQL of a named query, its parameters filled in."""
    text = (NAMED / f"{name}.sql").read_text(encoding="utf-8")
    for parameter, value in parameters.items():
        text = text.replace(f"${{{parameter}}}", value.replace("'", "''"))
    return text


def build(query: Query, plan: Plan, *, execution: str, began: datetime, command: str) -> Report:
    """The report of ``execution``, which began then (time zone required); ``command`` is what runs it again."""
    asked = _Asked(query, {"execution": execution, "dt": partition(began)})
    trials = asked.rows("trials", _TrialRow)
    left_out = tuple(asked.rows("left_out", LeftOut))
    panels = tuple(_panels(asked, plan, trials))
    step_s = _series_step_s(plan)
    drift = asked.rows("drift", _DriftRow)
    report = Report(
        campaign=plan.campaign,
        description=plan.description,
        execution=execution,
        began=began,
        ended=max((trial.ended_at for trial in trials if trial.ended_at), default=None),
        region=_only(trial.region for trial in trials),
        host_kind=_only(trial.host_kind for trial in trials),
        seed=plan.seed,
        command=command,
        ladder=tuple(plan.ladder),
        planned=len(plan.trials),
        attempts=len(trials) + sum(attempt.verdict.startswith("superseded") for attempt in left_out),
        panels=panels,
        tunings=tuple(_tunings(asked, plan)),
        equals=tuple(_equals(asked, plan)),
        series=tuple(_series(asked, plan, step_s)),
        series_step_s=step_s,
        curves=tuple(_curves(asked, plan)),
        deviations=tuple(row.deviation for row in drift),
        drift_pct_per_hour=drift[0].drift_pct_per_hour if drift else None,
        verdicts=tuple(_verdicts(plan, trials)),
        left_out=left_out,
        hosts=tuple(sorted(asked.rows("telemetry", HostLoad), key=lambda host: (_order(plan, _cell(host)), host.host))),
        provenance=tuple(_provenance(asked, plan)),
        warnings=(),
    )
    return replace(report, warnings=tuple(warnings(report)))


# --- rows of the queries ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """The queries about one execution."""

    query: Query
    parameters: Mapping[str, str]

    def rows(self, name: str, kind: type[Row], **parameters: str) -> list[Row]:
        """The rows of a named query, each a ``kind``; text becomes what the fields say."""
        adapter = TypeAdapter(kind)
        found = self.query(statement(name, **self.parameters, **parameters))
        return [adapter.validate_python(dict(row)) for row in found]


@dataclass(frozen=True)
class _TrialRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    verdict: str
    iops: float | None
    ended_at: datetime | None
    ceiling_iops: float | None
    ceiling_cause: str | None
    tool: str | None
    host_kind: str | None
    region: str | None


@dataclass(frozen=True)
class _StepRow:
    """A row of ``ladder``: one metric of one step."""

    workload: str
    tuning: str
    topology: str
    metric: str
    step: int
    median: float | None
    low: float | None
    high: float | None
    smallest: float | None
    largest: float | None
    of_previous: float | None
    of_previous_low: float | None
    of_previous_high: float | None
    of_previous_blocks: int | None
    of_first: float | None
    of_first_low: float | None
    of_first_high: float | None
    of_first_blocks: int | None

    @property
    def estimate(self) -> Estimate | None:
        if self.median is None or self.smallest is None or self.largest is None:
            return None
        return Estimate(self.median, self.low, self.high, self.smallest, self.largest)

    @property
    def against_previous(self) -> Cost | None:
        return _cost(self.of_previous, self.of_previous_low, self.of_previous_high, self.of_previous_blocks)

    @property
    def against_first(self) -> Cost | None:
        return _cost(self.of_first, self.of_first_low, self.of_first_high, self.of_first_blocks)


@dataclass(frozen=True)
class _LatencyRow:
    topology: str
    tuning: str
    workload: str
    direction: str
    n: int
    p50_us: float
    p99_us: float
    p999_us: float


@dataclass(frozen=True)
class _TuningRow:
    workload: str
    topology: str
    base_tuning: str
    tuning: str
    blocks: int
    ratio: float
    ratio_low: float | None
    ratio_high: float | None


@dataclass(frozen=True)
class _SeriesRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    verdict: str
    from_second: int
    iops: float | None


@dataclass(frozen=True)
class _CurveRow:
    topology: str
    tuning: str
    workload: str
    n: int
    share: float
    latency_us: float


@dataclass(frozen=True)
class _DriftRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    hours: float
    deviation_pct: float
    drift_pct_per_hour: float | None

    @property
    def deviation(self) -> Deviation:
        return Deviation(
            self.workload, self.tuning, self.topology, self.repetition, self.hours, round(self.deviation_pct, 3)
        )


def _cost(ratio: float | None, low: float | None, high: float | None, blocks: int | None) -> Cost | None:
    """A ratio to a base as what is lost against it."""
    if ratio is None or blocks is None:
        return None

    def lost(share: float | None) -> float | None:
        return None if share is None else 100 * (1 - share)

    return Cost(100 * (1 - ratio), lost(high), lost(low), blocks)


def _only(values: Iterable[str | None]) -> str:
    """The one value that is meant, or all of them where there are several."""
    return ", ".join(sorted({value for value in values if value}))


def _cell(row: Any) -> Cell:
    return row.workload, row.tuning, row.topology


def _order(plan: Plan, cell: Cell) -> tuple[int, int, int]:
    """The place of a cell: workloads and tunings as the plan has them, the ladder's topologies before all others."""
    workload, tuning, topology = cell
    return list(plan.workloads).index(workload), list(plan.tunings).index(tuning), _topologies(plan).index(topology)


def _topologies(plan: Plan) -> list[str]:
    return [*plan.ladder, *(name for name in plan.topologies if name not in plan.ladder)]


# --- ladders ----------------------------------------------------------------------------------------------------


def _panels(asked: _Asked, plan: Plan, trials: Sequence[_TrialRow]) -> Iterator[Panel]:
    """One panel a load and tuning, of the topologies that are planned for it."""
    planned = sorted({_cell(trial) for trial in plan.trials}, key=lambda cell: _order(plan, cell))
    figures = _figures(asked, plan)
    latencies: dict[Cell, dict[str, Percentiles]] = defaultdict(dict)
    for row in asked.rows("latency", _LatencyRow):
        latencies[_cell(row)][row.direction] = Percentiles(row.n, row.p50_us, row.p99_us, row.p999_us)
    told: dict[Cell, list[_TrialRow]] = defaultdict(list)
    for trial in trials:
        told[_cell(trial)].append(trial)
    for workload, tuning in dict.fromkeys(cell[:2] for cell in planned):
        cells = [cell for cell in planned if cell[:2] == (workload, tuning)]
        steps = tuple(_step(plan, cell, figures.get(cell, {}), told[cell], latencies[cell]) for cell in cells)
        yield Panel(
            workload=workload,
            tuning=tuning,
            load=_load(plan.workloads[workload]),
            unit=_unit(_only(trial.tool for cell in cells for trial in told[cell])),
            steps=steps,
            ceilings=tuple(_ceilings(cells, told)),
            refusal=_refusal(steps, _only(trial.ceiling_cause for cell in cells for trial in told[cell])),
        )


def _figures(asked: _Asked, plan: Plan) -> dict[Cell, dict[str, _StepRow]]:
    """Figures of each cell by metric; a topology outside the ladder is compared with the first of it alone."""
    figures: dict[Cell, dict[str, _StepRow]] = defaultdict(dict)
    for row in asked.rows("ladder", _StepRow, ladder=",".join(plan.ladder)):
        figures[_cell(row)][row.metric] = row
    for other in set(plan.topologies) - set(plan.ladder):
        for row in asked.rows("ladder", _StepRow, ladder=f"{plan.ladder[0]},{other}"):
            if row.topology == other:
                figures[_cell(row)][row.metric] = replace(row, of_previous=None)
    return figures


def _step(
    plan: Plan,
    cell: Cell,
    figures: Mapping[str, _StepRow],
    trials: Sequence[_TrialRow],
    latency: Mapping[str, Percentiles],
) -> Step:
    topology = cell[2]
    number = plan.ladder.index(topology) + 1 if topology in plan.ladder else None
    previous = plan.ladder[number - 2] if number and number > 1 else None
    estimates = {metric: row.estimate for metric, row in figures.items()}
    compared = _compared(figures)
    return Step(
        number=number,
        topology=topology,
        changes=tuple(_changes(plan.topologies[previous], plan.topologies[topology])) if previous else (),
        trials=tuple(Trial(trial.repetition, trial.verdict, trial.iops) for trial in trials),
        iops=estimates.get("iops"),
        bw_bytes_per_s=estimates.get("bw_bytes_per_s"),
        cpu_pct=estimates.get("cpu_pct"),
        peer_cpu_pct=estimates.get("peer_cpu_pct"),
        cpu_pct_per_kiops=estimates.get("cpu_pct_per_kiops"),
        rtt_us=estimates.get("rtt_us"),
        against_previous=compared.against_previous if compared else None,
        against_first=compared.against_first if compared else None,
        latency=latency,
    )


def _compared(figures: Mapping[str, _StepRow]) -> _StepRow | None:
    """The metric that steps are compared by: operations, or bytes where the tool counts no operations."""
    counted = figures.get("iops")
    return counted if counted and counted.median is not None else figures.get("bw_bytes_per_s")


def _changes(before: PlannedTopology, after: PlannedTopology) -> Iterator[str]:
    """What differs between two topologies, in words; that another stack needs other hosts is one change, not two."""
    facts = (
        ("stack", before.stack, after.stack),
        ("hosts", len(before.hosts), len(after.hosts)),
        ("AZs", len(set(before.hosts.values())), len(set(after.hosts.values()))),
        ("links", before.links, after.links),
        ("instance type", before.instance_type, after.instance_type),
        ("image", before.image, after.image),
        ("kernel", before.kernel or "the image's", after.kernel or "the image's"),
        ("file system", before.filesystem or "none", after.filesystem or "none"),
        *(
            (f"DRBD {field.replace('_', ' ')}", before.drbd[field], after.drbd[field])
            for field in sorted(before.drbd.keys() & after.drbd.keys())
        ),
        *(
            (f"volume {field.replace('_', ' ')}", before.volume.get(field), after.volume.get(field))
            for field in sorted({*before.volume, *after.volume})
        ),
    )
    for name, old, new in facts:
        if old != new and not (name == "hosts" and before.stack != after.stack):
            yield f"{name}: {old} → {new}"


def _ceilings(cells: Sequence[Cell], trials: Mapping[Cell, Sequence[_TrialRow]]) -> Iterator[Ceiling]:
    for cell in cells:
        known = [(trial.ceiling_iops, trial.ceiling_cause or "") for trial in trials[cell] if trial.ceiling_iops]
        if known:
            yield Ceiling(cell[2], *min(known))


def _refusal(steps: Sequence[Step], cause: str) -> str:
    """Why no ladder may be read: a step that only ever sat on a limit says nothing of its topology."""
    ladder = [step for step in steps if step.number]
    capped = [step.topology for step in ladder if not step.trials_valid and "capped" in step.left_out]
    if not capped:
        return ""
    which = "Every topology" if len(capped) == len(ladder) else ", ".join(capped)
    return f"{which} sat on a limit ({cause}): no ladder may be read from this load."


def _load(load: PlannedLoad) -> str:
    """The load in fio's words."""
    if len(load.sections) > 1:
        return f"{len(load.sections)} jobs at once, {load.runtime_s:g} s"
    (_, options), *_ = load.sections
    mix = f" ({options['rwmixread']} % read)" if "rwmixread" in options else ""
    jobs = f", numjobs {options['numjobs']}" if "numjobs" in options else ""
    words = f"{options.get('rw', '')}{mix}, bs {options.get('bs', '4k')}, iodepth {options.get('iodepth', '1')}{jobs}"
    return f"{words}, {load.runtime_s:g} s"


def _unit(tool: str) -> str:
    return {"fio": "IOPS", "": "IOPS", "wrk": "requests/s"}.get(tool, "transactions/s")


# --- the other sections -----------------------------------------------------------------------------------------


def _tunings(asked: _Asked, plan: Plan) -> Iterator[TuningEffect]:
    """Each tuning against the first of the plan's that its topology and workload were measured with."""
    order = list(plan.tunings)
    rows = [row for row in asked.rows("tunings", _TuningRow) if order.index(row.base_tuning) < order.index(row.tuning)]
    base = {
        (row.workload, row.topology): row.base_tuning
        for row in sorted(rows, key=lambda row: order.index(row.base_tuning), reverse=True)
    }
    for row in sorted(rows, key=lambda row: _order(plan, _cell(row))):
        cost = _cost(row.ratio, row.ratio_low, row.ratio_high, row.blocks)
        if cost and row.base_tuning == base[row.workload, row.topology]:
            yield TuningEffect(row.workload, row.topology, row.base_tuning, row.tuning, cost)


def _equals(asked: _Asked, plan: Plan) -> Iterator[EqualPair]:
    """Every pair of topologies that are planned alike: an A/A arm."""
    for one, other in combinations(_topologies(plan), 2):
        if _kind(plan, one) != _kind(plan, other):
            continue
        rows = asked.rows("ladder", _StepRow, ladder=f"{one},{other}")
        for row in sorted(rows, key=lambda row: _order(plan, _cell(row))):
            if row.metric == "iops" and row.against_first:
                yield EqualPair(row.workload, row.tuning, one, other, row.against_first)


def _kind(plan: Plan, name: str) -> tuple[dict[str, Any], list[str], int]:
    """What a topology is, whatever it and its hosts are called: (its fields, its AZs, how many share host1)."""
    topology = plan.topologies[name]
    fields = topology.model_dump(exclude={"launch", "number", "hosts"})
    return fields, list(topology.hosts.values()), len(plan.members(topology.launch))


def _series_step_s(plan: Plan) -> int:
    """Seconds that one point stands for, so that all trials together stay below the limit."""
    seconds = sum(plan.workloads[trial.workload].runtime_s for trial in plan.trials)
    return max(1, math.ceil(seconds / MAX_SERIES_POINTS))


def _series(asked: _Asked, plan: Plan, step_s: int) -> Iterator[Series]:
    points: dict[tuple[Cell, int, str], list[tuple[int, float]]] = defaultdict(list)
    for row in asked.rows("iops_over_time", _SeriesRow, step_s=str(step_s)):
        if row.iops is not None:
            points[_cell(row), row.repetition, row.verdict].append((row.from_second, round(row.iops, 1)))
    for (cell, repetition, verdict), found in sorted(
        points.items(), key=lambda item: (_order(plan, item[0][0]), item[0][1])
    ):
        workload, tuning, topology = cell
        yield Series(workload, tuning, topology, repetition, verdict, tuple(found))


def _curves(asked: _Asked, plan: Plan) -> Iterator[Curve]:
    points: dict[tuple[Cell, int], list[tuple[float, float]]] = defaultdict(list)
    for row in asked.rows("latency_distribution", _CurveRow):
        points[_cell(row), row.n].append((row.share, round(row.latency_us, 2)))
    for (cell, operations), found in sorted(points.items(), key=lambda item: _order(plan, item[0][0])):
        workload, tuning, topology = cell
        yield Curve(workload, tuning, topology, operations, tuple(found))


def _verdicts(plan: Plan, trials: Sequence[_TrialRow]) -> Iterator[VerdictCount]:
    counts: dict[Cell, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for trial in trials:
        counts[_cell(trial)][trial.verdict] += 1
    for cell in sorted(counts, key=lambda cell: _order(plan, cell)):
        workload, tuning, topology = cell
        yield VerdictCount(topology, tuning, workload, dict(counts[cell]))


# What each column of ``provenance`` is called on the page.
_FACTS = {
    "stack": "storage stack",
    "stack_driver": "driver",
    "stack_parameters": "parameters",
    "first_sync_skipped": "first sync skipped",
    "instance_types": "instance types",
    "az_ids": "AZ ids",
    "volume_type": "volume type",
    "volume_size_gib": "volume size, GiB",
    "volume_iops": "provisioned IOPS",
    "volume_throughput_mibps": "provisioned MiB/s",
    "kernel": "kernel",
    "fio_version": "fio",
    "ioengine": "I/O engine",
    "ami": "AMI",
    "instance_ids": "instances",
    "volume_ids": "volumes",
    "host_kind": "hosts",
    "region": "region",
}


def _provenance(asked: _Asked, plan: Plan) -> Iterator[Provenance]:
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in asked.query(statement("provenance", **asked.parameters)):
        rows[row["topology"]].append(row)
    for topology in sorted(rows, key=_topologies(plan).index):
        facts = {}
        for column, name in _FACTS.items():
            values = {_words(row[column]) for row in rows[topology] if row[column] is not None}
            if values - {""}:
                facts[name] = "; ".join(sorted(values - {""}))
        yield Provenance(topology, facts)


def _words(value: Any) -> str:
    """A fact as a person reads it: a JSON object as its fields, a list with room to wrap."""
    text = {"true": "yes", "false": "no"}.get(str(value).lower(), str(value))
    if text.startswith("{"):
        return ", ".join(f"{name} {setting}" for name, setting in json.loads(text).items())
    return ", ".join(dict.fromkeys(text.split(",")))
