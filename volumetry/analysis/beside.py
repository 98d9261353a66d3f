"""What is set beside measured figures: the parts of a write's path, and what a study published."""

from collections.abc import Iterator
from dataclasses import dataclass

from volumetry.analysis.asking import Asked, StepRow, cell_of, order, rates
from volumetry.plan import Plan
from volumetry.report.model import Path, Provenance, Published, PublishedRatio
from volumetry.spec import PublishedRatio as PlannedRatio


@dataclass(frozen=True)
class _PathRow:
    topology: str
    tuning: str
    workload: str
    trials: int
    trials_valid: int
    rtt_us: float | None
    local_us: float | None
    mirrored_us: float | None
    foretold_us: float | None
    beyond_us: float | None
    beyond_us_low: float | None
    beyond_us_high: float | None


def paths(asked: Asked, plan: Plan) -> Iterator[Path]:
    """The path of a write, of each cell whose load ran without the peer first."""
    for row in sorted(asked.rows("path", _PathRow), key=lambda row: order(plan, cell_of(row))):
        yield Path(
            topology=row.topology,
            tuning=row.tuning,
            workload=row.workload,
            trials=row.trials,
            trials_valid=row.trials_valid,
            rtt_us=row.rtt_us,
            local_us=row.local_us,
            mirrored_us=row.mirrored_us,
            foretold_us=row.foretold_us,
            beyond_us=row.beyond_us,
            beyond_low_us=row.beyond_us_low,
            beyond_high_us=row.beyond_us_high,
        )


def published(asked: Asked, plan: Plan, provenance: tuple[Provenance, ...]) -> Published | None:
    """What a study published beside what was measured here, with the first tuning; the two are never mixed."""
    if plan.published is None:
        return None
    ratios = tuple(_ratio(asked, plan, ratio) for ratio in plan.published.ratios)
    return Published(plan.published.source, plan.published.differs, tuple(_here(plan, provenance)), ratios)


def _ratio(asked: Asked, plan: Plan, ratio: PlannedRatio) -> PublishedRatio:
    here = _measured(asked, plan, ratio)
    found = None if here is None else here.against_first
    return PublishedRatio(ratio.workload, ratio.topology, ratio.base, ratio.percent, found)


def _measured(asked: Asked, plan: Plan, ratio: PlannedRatio) -> StepRow | None:
    wanted = ratio.workload, next(iter(plan.tunings)), ratio.topology
    return next((row for row in rates(asked, (ratio.base, ratio.topology)) if cell_of(row) == wanted), None)


def _here(plan: Plan, provenance: tuple[Provenance, ...]) -> Iterator[str]:
    """What is known of the hosts here, for a reader who sets the study's beside it."""
    assert plan.published is not None
    named = {name for ratio in plan.published.ratios for name in (ratio.topology, ratio.base)}
    facts = [one.facts for one in provenance if one.topology in named]
    for fact in (
        "hosts",
        "instance types",
        "operating system",
        "kernel",
        "driver",
        "volume type",
        "first sync skipped",
    ):
        values = sorted({one[fact] for one in facts if fact in one} - {"none"})
        if values:
            yield f"{fact}: {'; '.join(values)}"
