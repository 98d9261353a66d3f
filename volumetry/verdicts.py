"""What may be said of a trial: one verdict, and the reason a person reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from volumetry.ceilings import Ceiling, sat_on
from volumetry.evidence.failure import Course, Writes
from volumetry.statistics import Steadiness

Word = Literal["valid", "capped", "unsteady", "degraded", "failed", "indeterminate"]
WORDS: tuple[Word, ...] = ("valid", "capped", "unsteady", "degraded", "failed", "indeterminate")

# Foreign work on the same processors, in processors: above it a result measures the neighbour as well.
DISTURBED_PROCESSORS = 0.5


@dataclass(frozen=True)
class Verdict:
    """A verdict and its reason, one sentence; the reason of ``valid`` is empty, but under a failure it says what came
    of it."""

    word: Word
    reason: str = ""


@dataclass(frozen=True)
class Struck:
    """What a trial under a failure is judged by besides; ``load_s``: when the load began and ended, Unix time."""

    event: str
    load_s: tuple[float, float]
    course: Course
    writes: Writes


@dataclass(frozen=True)
class Facts:
    """What a trial that ended is judged by. ``stolen_processors`` None: not measured; ``iops`` None: the tool counts
    bytes alone."""

    iops: float | None
    ceilings: Sequence[Ceiling]
    steadiness: Steadiness | None
    stolen_processors: float | None
    processors: int | None
    mirror_broken: str  # why the mirror is no longer whole; empty: it is, or there is none
    fio_error: int
    bytes_per_s: float = 0.0
    struck: Struck | None = None


def judge(facts: Facts) -> Verdict:
    """The verdict of a trial whose evidence is complete, the gravest first."""
    if facts.fio_error:
        return Verdict("failed", f"fio reported error {facts.fio_error} on the volume under test")
    if not (facts.iops or facts.bytes_per_s):
        return Verdict("failed", "no I/O completed in the measured part")
    if facts.struck is not None:
        return _judge_struck(facts, facts.struck)
    if facts.mirror_broken:
        return Verdict("degraded", facts.mirror_broken)
    ceiling = None if facts.iops is None else sat_on(facts.iops, facts.ceilings)
    if ceiling is not None:
        return Verdict("capped", f"{facts.iops:.0f} IOPS sit on the limit of {ceiling.iops:.0f}: {ceiling.cause}")
    disturbed = _disturbed(facts)
    if disturbed is not None:
        return disturbed
    if facts.steadiness is not None and not facts.steadiness.steady:
        return Verdict("unsteady", facts.steadiness.reason)
    return Verdict("valid")


def _disturbed(facts: Facts) -> Verdict | None:
    if facts.stolen_processors is None or facts.stolen_processors <= DISTURBED_PROCESSORS:
        return None
    taken = f"{facts.stolen_processors:.1f} of {facts.processors}"
    return Verdict("unsteady", f"disturbed: others took {taken} processors during the trial")


def _judge_struck(facts: Facts, struck: Struck) -> Verdict:
    """``valid`` when the failure that was asked for took place under the load, and everything was measured that can be.

    What the failure did is the result, not a flaw of the trial: a mirror that broke is not ``degraded``, and writes
    that were lost do not make it ``failed``; the reason says both. A load under a failure is not steady, and sits on
    no limit. ``failed`` is a trial that tells nothing of the failure: it was not seen to begin and end while the load
    ran, or acknowledged writes could not be read back, so that nobody knows whether they are lost. Only a killed
    peer may come back after the load: it takes as long as it takes to boot.
    """
    course, (load_began_s, load_ended_s) = struck.course, struck.load_s
    if course.began_s is None or course.ended_s is None:
        missing = "begin" if course.began_s is None else "end"
        return Verdict("failed", f"{struck.event}: no host noted its {missing}")
    if course.began_s < load_began_s:
        return Verdict("failed", f"{struck.event} began {load_began_s - course.began_s:.1f} s before the load")
    if course.began_s > load_ended_s or (course.ended_s > load_ended_s and struck.event != "kill-peer"):
        return Verdict("failed", f"{struck.event} ended {course.ended_s - load_ended_s:.1f} s after the load")
    if struck.writes.unread:
        return Verdict("failed", struck.writes.unread)
    return _disturbed(facts) or Verdict("valid", "; ".join(_outcome(facts, struck)))


def _outcome(facts: Facts, struck: Struck) -> list[str]:
    found = [f"{struck.event}: nothing completed for {struck.course.stall_s or 0:.1f} s at most"]
    writes = struck.writes
    for host, count in (writes.wrong or {}).items():
        if count:
            found.append(f"{count} of {writes.acknowledged} acknowledged writes are lost or altered on {host}")
    if writes.lost == 0:
        found.append(f"all {writes.acknowledged} acknowledged writes are on both legs")
    if writes.legs_identical is False:
        found.append("the legs differ")
    if struck.course.ended_s is not None and struck.course.ended_s > struck.load_s[1]:
        found.append("the peer came back after the load")
    if facts.mirror_broken:
        found.append(f"in the end {facts.mirror_broken}")
    return found
