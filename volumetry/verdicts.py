"""What may be said of a trial: one verdict, and the reason a person reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from volumetry.ceilings import Ceiling, sat_on
from volumetry.statistics import Steadiness

Word = Literal["valid", "capped", "unsteady", "degraded", "failed", "indeterminate"]
WORDS: tuple[Word, ...] = ("valid", "capped", "unsteady", "degraded", "failed", "indeterminate")

# Foreign work on the same processors, in processors: above it a result measures the neighbour as well.
DISTURBED_PROCESSORS = 0.5


@dataclass(frozen=True)
class Verdict:
    """A verdict and its reason, one sentence; the reason of ``valid`` is empty."""

    word: Word
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """What a trial that ended is judged by. ``stolen_processors`` None: not measured."""

    iops: float
    ceilings: Sequence[Ceiling]
    steadiness: Steadiness | None
    stolen_processors: float | None
    processors: int | None
    mirror_broken: str  # why the mirror is no longer whole; empty: it is, or there is none
    fio_error: int


def judge(facts: Facts) -> Verdict:
    """The verdict of a trial whose evidence is complete, the gravest first."""
    if facts.fio_error:
        return Verdict("failed", f"fio reported error {facts.fio_error} on the volume under test")
    if facts.iops == 0:
        return Verdict("failed", "no I/O completed in the measured part")
    if facts.mirror_broken:
        return Verdict("degraded", facts.mirror_broken)
    ceiling = sat_on(facts.iops, facts.ceilings)
    if ceiling is not None:
        return Verdict("capped", f"{facts.iops:.0f} IOPS sit on the limit of {ceiling.iops:.0f}: {ceiling.cause}")
    if facts.stolen_processors is not None and facts.stolen_processors > DISTURBED_PROCESSORS:
        taken = f"{facts.stolen_processors:.1f} of {facts.processors}"
        return Verdict("unsteady", f"disturbed: others took {taken} processors during the trial")
    if facts.steadiness is not None and not facts.steadiness.steady:
        return Verdict("unsteady", facts.steadiness.reason)
    return Verdict("valid")
