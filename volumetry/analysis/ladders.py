"""Ladders, tunings and equals: what may be compared with what, and by how much it differs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from typing import Any

from volumetry.analysis.asking import (
    Asked,
    Cell,
    StepRow,
    cell_of,
    cost,
    only,
    order,
    rates,
    topologies,
    unit_of,
)
from volumetry.plan import Plan, PlannedLoad, PlannedTopology
from volumetry.report.model import Ceiling, EqualPair, Panel, Percentiles, Step, Trial, TuningEffect


@dataclass(frozen=True)
class TrialRow:
    """A row of ``trials``: the last attempt at a trial."""

    topology: str
    tuning: str
    workload: str
    repetition: int
    attempt: int
    verdict: str
    failure: str | None
    rate: float | None
    ended_at: datetime | None
    ceiling_iops: float | None
    ceiling_cause: str | None
    host_kind: str | None
    region: str | None


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


def panels(asked: Asked, plan: Plan, trials: Sequence[TrialRow]) -> Iterator[Panel]:
    """One panel a load and tuning, of the topologies that are planned for it; none for loads under a failure."""
    compared = {cell_of(trial) for trial in plan.trials if plan.workloads[trial.workload].failure is None}
    planned = sorted(compared, key=lambda cell: order(plan, cell))
    figures = _figures(asked, plan)
    latencies: dict[Cell, dict[str, Percentiles]] = defaultdict(dict)
    for row in asked.rows("latency", _LatencyRow):
        latencies[cell_of(row)][row.direction] = Percentiles(row.n, row.p50_us, row.p99_us, row.p999_us)
    told: dict[Cell, list[TrialRow]] = defaultdict(list)
    for trial in trials:
        told[cell_of(trial)].append(trial)
    for workload, tuning in dict.fromkeys(cell[:2] for cell in planned):
        cells = [cell for cell in planned if cell[:2] == (workload, tuning)]
        steps = tuple(_step(plan, cell, figures.get(cell, {}), told[cell], latencies[cell]) for cell in cells)
        yield Panel(
            workload=workload,
            tuning=tuning,
            load=load_words(plan.workloads[workload]),
            unit=unit_of(plan, workload).name,
            steps=steps,
            ceilings=tuple(_ceilings(cells, told)),
            refusal=_refusal(steps, only(trial.ceiling_cause for cell in cells for trial in told[cell])),
        )


def _figures(asked: Asked, plan: Plan) -> dict[Cell, dict[str, StepRow]]:
    """Figures of each cell by metric; a topology outside the ladder is compared with the first of it alone."""
    figures: dict[Cell, dict[str, StepRow]] = defaultdict(dict)
    for row in asked.rows("ladder", StepRow, ladder=",".join(plan.ladder)):
        figures[cell_of(row)][row.metric] = row
    for other in set(plan.topologies) - set(plan.ladder):
        for row in asked.rows("ladder", StepRow, ladder=f"{plan.ladder[0]},{other}"):
            if row.topology == other:
                figures[cell_of(row)][row.metric] = replace(row, of_previous=None)
    return figures


def _step(
    plan: Plan,
    cell: Cell,
    figures: Mapping[str, StepRow],
    trials: Sequence[TrialRow],
    latency: Mapping[str, Percentiles],
) -> Step:
    workload, _, topology = cell
    number = plan.ladder.index(topology) + 1 if topology in plan.ladder else None
    previous = plan.ladder[number - 2] if number and number > 1 else None
    estimates = {metric: row.estimate() for metric, row in figures.items()}
    rate, scale = figures.get("rate"), unit_of(plan, workload).scale
    return Step(
        number=number,
        topology=topology,
        changes=tuple(changes(plan.topologies[previous], plan.topologies[topology])) if previous else (),
        trials=tuple(
            Trial(trial.repetition, trial.verdict, None if trial.rate is None else scale * trial.rate)
            for trial in trials
        ),
        rate=rate.estimate(scale) if rate else None,
        bw_bytes_per_s=estimates.get("bw_bytes_per_s"),
        cpu_pct=estimates.get("cpu_pct"),
        peer_cpu_pct=estimates.get("peer_cpu_pct"),
        cpu_pct_per_kiops=estimates.get("cpu_pct_per_kiops"),
        rtt_us=estimates.get("rtt_us"),
        against_previous=rate.against_previous if rate else None,
        against_first=rate.against_first if rate else None,
        latency=latency,
    )


def changes(before: PlannedTopology, after: PlannedTopology) -> Iterator[str]:
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
            (f"volume {field.replace('_', ' ')}", before.volume.get(field), after.volume.get(field))
            for field in sorted({*before.volume, *after.volume})
        ),
        *(
            (f"DRBD {field.replace('_', ' ')}", before.drbd[field], after.drbd[field])
            for field in sorted(before.drbd.keys() & after.drbd.keys())
        ),
    )
    for name, old, new in facts:
        if old != new and not (name == "hosts" and before.stack != after.stack):
            yield f"{name}: {old} → {new}"


def _ceilings(cells: Sequence[Cell], trials: Mapping[Cell, Sequence[TrialRow]]) -> Iterator[Ceiling]:
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


def load_words(load: PlannedLoad) -> str:
    """The load in its tool's words."""
    if load.tool == "pgbench":
        return _pgbench_words(load.options)
    if load.tool == "dbench":
        return f"dbench, {load.options['clients']} clients, {load.runtime_s:g} s"
    if len(load.sections) > 1:
        return f"{len(load.sections)} jobs at once, {load.runtime_s:g} s"
    (_, options), *_ = load.sections
    mix = f" ({options['rwmixread']} % read)" if "rwmixread" in options else ""
    jobs = f", numjobs {options['numjobs']}" if "numjobs" in options else ""
    words = f"{options.get('rw', '')}{mix}, bs {options.get('bs', '4k')}, iodepth {options.get('iodepth', '1')}{jobs}"
    return f"{words}, {load.runtime_s:g} s"


def _pgbench_words(options: Mapping[str, str]) -> str:
    """As "pgbench, scale 1, client 10, jobs 1, transactions 1000": its options by its own names."""
    return ", ".join(["pgbench", *(f"{name} {value}" for name, value in options.items())])


def tunings(asked: Asked, plan: Plan) -> Iterator[TuningEffect]:
    """Each tuning against the first of the plan's that its topology and workload were measured with."""
    known = list(plan.tunings)
    rows = [row for row in asked.rows("tunings", _TuningRow) if known.index(row.base_tuning) < known.index(row.tuning)]
    base = {
        (row.workload, row.topology): row.base_tuning
        for row in sorted(rows, key=lambda row: known.index(row.base_tuning), reverse=True)
    }
    for row in sorted(rows, key=lambda row: order(plan, cell_of(row))):
        effect = cost(row.ratio, row.ratio_low, row.ratio_high, row.blocks)
        if effect and row.base_tuning == base[row.workload, row.topology]:
            yield TuningEffect(row.workload, row.topology, row.base_tuning, row.tuning, effect)


def equals(asked: Asked, plan: Plan) -> Iterator[EqualPair]:
    """Every pair of topologies that are planned alike: an A/A arm."""
    for one, other in combinations(topologies(plan), 2):
        if kind(plan, one) != kind(plan, other):
            continue
        for row in sorted(rates(asked, (one, other)), key=lambda row: order(plan, cell_of(row))):
            if row.against_first:
                yield EqualPair(row.workload, row.tuning, one, other, row.against_first)


def kind(plan: Plan, name: str) -> tuple[dict[str, Any], list[str], int]:
    """What a topology is, whatever it and its hosts are called: (its fields, its AZs, how many share host1)."""
    topology = plan.topologies[name]
    fields = topology.model_dump(exclude={"launch", "number", "hosts"})
    return fields, list(topology.hosts.values()), len(plan.members(topology.launch))
