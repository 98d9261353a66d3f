"""How trials ran, second by second and over the hours of the execution, and how their latencies were distributed."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from volumetry.analysis.asking import Asked, Cell, cell_of, order, unit_of
from volumetry.plan import Plan
from volumetry.report.model import Curve, Deviation, Series

# So many points draw at once and keep the page below 1.5 MB.
MAX_SERIES_POINTS = 8_000


@dataclass(frozen=True)
class _SeriesRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    verdict: str
    from_second: int
    rate: float | None


@dataclass(frozen=True)
class _CurveRow:
    topology: str
    tuning: str
    workload: str
    n: int
    share: float
    latency_us: float


@dataclass(frozen=True)
class DriftRow:
    """A row of ``drift``: a trial, and the slope of all of them."""

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


def series_step_s(plan: Plan) -> int:
    """Seconds that one point stands for, so that all trials together stay below the limit."""
    seconds = sum(plan.workloads[trial.workload].runtime_s for trial in plan.trials)
    return max(1, math.ceil(seconds / MAX_SERIES_POINTS))


def series(asked: Asked, plan: Plan, step_s: int) -> Iterator[Series]:
    """Every trial's rate over time, but for trials under a failure."""
    points: dict[tuple[Cell, int, str], list[tuple[int, float]]] = defaultdict(list)
    for row in asked.rows("iops_over_time", _SeriesRow, step_s=str(step_s)):
        if row.rate is not None:
            rate = unit_of(plan, row.workload).scale * row.rate
            points[cell_of(row), row.repetition, row.verdict].append((row.from_second, round(rate, 1)))
    for (cell, repetition, verdict), found in sorted(
        points.items(), key=lambda item: (order(plan, item[0][0]), item[0][1])
    ):
        workload, tuning, topology = cell
        yield Series(workload, tuning, topology, repetition, verdict, tuple(found))


def curves(asked: Asked, plan: Plan) -> Iterator[Curve]:
    """The latency distribution of each cell."""
    points: dict[tuple[Cell, int], list[tuple[float, float]]] = defaultdict(list)
    for row in asked.rows("latency_distribution", _CurveRow):
        points[cell_of(row), row.n].append((row.share, round(row.latency_us, 2)))
    for (cell, operations), found in sorted(points.items(), key=lambda item: order(plan, item[0][0])):
        workload, tuning, topology = cell
        yield Curve(workload, tuning, topology, operations, tuple(found))
