"""What an execution found: the data of its report, asked of ``queries/named`` and put in the order of its plan."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from volumetry.analysis.asking import Asked, Cell, Query, cell_of, only, order, statement, unit_of
from volumetry.analysis.beside import paths, published
from volumetry.analysis.failures import failures
from volumetry.analysis.ladders import TrialRow, equals, panels, tunings
from volumetry.analysis.over_time import DriftRow, curves, series, series_step_s
from volumetry.analysis.provenance import provenance
from volumetry.plan import Plan
from volumetry.report.model import HostLoad, LeftOut, Report, VerdictCount
from volumetry.report.warnings import warnings
from volumetry.tables import partition

__all__ = ["Query", "build", "statement"]


def build(query: Query, plan: Plan, *, execution: str, began: datetime, command: str) -> Report:
    """The report of ``execution``, which began then (time zone required); ``command`` is what runs it again."""
    asked = Asked(query, {"execution": execution, "dt": partition(began)})
    every = asked.rows("trials", TrialRow)
    trials = [trial for trial in every if trial.failure is None]
    step_s = series_step_s(plan)
    drift = asked.rows("drift", DriftRow)
    facts, tuned = provenance(asked, plan)
    report = Report(
        campaign=plan.campaign,
        description=plan.description,
        execution=execution,
        began=began,
        ended=max((trial.ended_at for trial in every if trial.ended_at), default=None),
        region=only(trial.region for trial in every),
        host_kind=only(trial.host_kind for trial in every),
        seed=plan.seed,
        command=command,
        base_tuning=next(iter(plan.tunings)),
        ladder=tuple(plan.ladder),
        planned=len(plan.trials),
        planned_failures=sum(plan.workloads[trial.workload].failure is not None for trial in plan.trials),
        attempts=sum(trial.attempt for trial in every),
        panels=tuple(panels(asked, plan, trials)),
        tunings=tuple(tunings(asked, plan)),
        equals=tuple(equals(asked, plan)),
        failures=tuple(failures(asked, plan)),
        paths=tuple(paths(asked, plan)),
        published=published(asked, plan, facts),
        series=tuple(series(asked, plan, step_s)),
        series_step_s=step_s,
        curves=tuple(curves(asked, plan)),
        deviations=tuple(row.deviation for row in drift),
        drift_pct_per_hour=drift[0].drift_pct_per_hour if drift else None,
        verdicts=tuple(_verdicts(plan, trials)),
        left_out=tuple(_left_out(asked, plan)),
        hosts=tuple(sorted(asked.rows("telemetry", HostLoad), key=lambda h: (order(plan, cell_of(h)), h.host))),
        provenance=facts,
        tuned=tuned,
        warnings=(),
    )
    return replace(report, warnings=tuple(warnings(report)))


@dataclass(frozen=True)
class _LeftOutRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    attempt: int
    verdict: str
    reason: str
    rate: float | None
    ceiling_iops: float | None
    evidence: str | None


def _left_out(asked: Asked, plan: Plan) -> Iterator[LeftOut]:
    for row in asked.rows("left_out", _LeftOutRow):
        unit = unit_of(plan, row.workload)
        yield LeftOut(
            topology=row.topology,
            tuning=row.tuning,
            workload=row.workload,
            repetition=row.repetition,
            attempt=row.attempt,
            verdict=row.verdict,
            reason=row.reason,
            rate=None if row.rate is None else unit.scale * row.rate,
            unit=unit.name,
            ceiling_iops=row.ceiling_iops,
            evidence=row.evidence,
        )


def _verdicts(plan: Plan, trials: Sequence[TrialRow]) -> Iterator[VerdictCount]:
    counts: dict[Cell, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for trial in trials:
        counts[cell_of(trial)][trial.verdict] += 1
    for cell in sorted(counts, key=lambda cell: order(plan, cell)):
        workload, tuning, topology = cell
        yield VerdictCount(topology, tuning, workload, dict(counts[cell]))
