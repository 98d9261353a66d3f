"""A failure under load: what befell the mirror and when, how the load went on, and what became of its writes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from volumetry.evidence.fio import read_json

# fio's number of a block that is not what was written (EILSEQ), on Linux.
NOT_AS_WRITTEN = 84
# How DRBD and md name a leg that is being copied to.
_COPYING = re.compile(r"Sync(Source|Target)|PausedSync|resync|recover", re.I)
# Shorter than this a rate is noise.
LEAST_S = 0.2


@dataclass(frozen=True)
class Event:
    """Something that a host noted: ``at_s`` is Unix time by that host's clock."""

    at_s: float
    name: str
    detail: str


def parse_events(text: bytes) -> list[Event]:
    """``EPOCH NAME DETAIL...`` lines, in order of time; a line that was cut short is left out."""
    found = []
    for line in text.decode("utf-8", "replace").splitlines():
        at, _, rest = line.partition(" ")
        name, _, detail = rest.partition(" ")
        if re.fullmatch(r"\d+\.\d+", at) and name:
            found.append(Event(float(at), name, detail))
    return sorted(found, key=lambda event: event.at_s)


@dataclass(frozen=True)
class Verification:
    """What was read back of a leg: blocks ``checked``, and the offsets of those that are not what was written.

    ``error`` is fio's number of another error, which ended the reading (0: none).
    """

    checked: int
    wrong: frozenset[int]
    error: int


def parse_verification(text: bytes) -> Verification:
    """fio's json output of a verification, each wrong block named before it; raises EvidenceMissing."""
    jobs = read_json(text)["jobs"]
    errors = [job["error"] for job in jobs if job["error"] != NOT_AS_WRITTEN]
    offsets = re.findall(rb"requested block: offset=(\d+)", text)
    return Verification(
        checked=sum(job["read"]["total_ios"] for job in jobs),
        wrong=frozenset(map(int, offsets)),
        error=max(errors, default=0),
    )


@dataclass(frozen=True)
class Course:
    """How a load went through a failure: seconds, and operations a second. None: there was no such part, or it was not
    measured."""

    began_s: float | None = None  # the failure, Unix time
    ended_s: float | None = None
    stall_s: float | None = None
    before_iops: float | None = None
    degraded_iops: float | None = None
    resync_began_s: float | None = None
    resync_s: float | None = None
    resync_iops: float | None = None


def course(
    times_s: Sequence[float], load_s: tuple[float, float], events: Iterable[Event], states: Sequence[Event]
) -> Course:
    """``times_s``: when each operation completed, in order; ``load_s``: when the load began and ended.

    The stall is the longest time without a completion that reaches into the failure or comes after it. Degraded is the
    rate while the failure lasts, its stall left out. A resynchronisation shorter than the states are watched for is
    not seen.
    """
    listed = list(events)
    began = min((event.at_s for event in listed if event.name == "fault-begin"), default=None)
    ended = max((event.at_s for event in listed if event.name == "fault-end"), default=None)
    if began is None or ended is None:
        return Course(began, ended)
    over = min(ended, load_s[1])
    gaps = list(pairwise([load_s[0], *times_s, load_s[1]]))
    within = [(max(first, began), min(last, over)) for first, last in gaps if last > began and first < over]
    stalled = max(((last - first) for first, last in within), default=0.0)
    copying = _copying(states, began)
    return Course(
        began_s=began,
        ended_s=ended,
        stall_s=max(((last - first) for first, last in gaps if last > began), default=None),
        before_iops=_rate(times_s, load_s[0], began),
        degraded_iops=_rate(times_s, began, over, without_s=stalled),
        resync_began_s=copying[0] if copying else None,
        resync_s=copying[1] - copying[0] if copying else None,
        resync_iops=_rate(times_s, copying[0], min(copying[1], load_s[1])) if copying else None,
    )


def _rate(times_s: Sequence[float], first_s: float, last_s: float, without_s: float = 0.0) -> float | None:
    span = last_s - first_s - without_s
    if span < LEAST_S:
        return None
    return sum(first_s <= time < last_s for time in times_s) / span


def _copying(states: Sequence[Event], after_s: float) -> tuple[float, float] | None:
    """From the first to the last moment of copying after the failure began, or None: not seen, or not seen to end."""
    later = [state for state in states if state.at_s >= after_s]
    busy = [place for place, state in enumerate(later) if _COPYING.search(state.detail)]
    if not busy or busy[-1] + 1 == len(later):
        return None
    return later[busy[0]].at_s, later[busy[-1] + 1].at_s


@dataclass(frozen=True)
class Writes:
    """What became of the acknowledged writes. None: not known."""

    acknowledged: int | None = None
    wrong: Mapping[str, int] | None = None  # host -> blocks of its leg that are lost or altered
    lost: int | None = None  # blocks that are, on either leg
    unread: str = ""  # why not every one of them was read back
    legs_identical: bool | None = None


def writes(acknowledged: int | None, legs: Mapping[str, Verification | None], sums: Mapping[str, str | None]) -> Writes:
    """``acknowledged`` None: the load did not write, or not each block once. Every leg must have been read in full."""
    known = [total for total in sums.values() if total]
    identical = len(set(known)) == 1 if len(known) == len(sums) > 1 else None
    if acknowledged is None:
        return Writes(legs_identical=identical)
    for host, leg in legs.items():
        if leg is None or leg.error or leg.checked != acknowledged:
            read = "none" if leg is None else str(leg.checked)
            unread = f"of {acknowledged} acknowledged writes {read} could be read back on {host}"
            return Writes(acknowledged, unread=unread, legs_identical=identical)
    wrong = {host: len(leg.wrong) for host, leg in legs.items() if leg is not None}
    lost = len(frozenset().union(*(leg.wrong for leg in legs.values() if leg is not None)))
    return Writes(acknowledged, wrong, lost, legs_identical=identical)
