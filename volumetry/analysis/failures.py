"""Failures under load: what each did to the load, when, and what became of the writes that were acknowledged."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from volumetry.analysis.asking import Asked, Cell, cell_of, order, unit_of
from volumetry.analysis.ladders import load_words
from volumetry.plan import Plan
from volumetry.report.model import Event, Failure, State

STATE = "state"  # the event that tells how a host sees the mirror from then on


@dataclass(frozen=True)
class _FailureRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    failure: str
    verdict: str
    reason: str | None
    stall_s: float | None
    before_iops: float | None
    degraded_iops: float | None
    resync_s: float | None
    resync_iops: float | None
    writes_acknowledged: int | None
    writes_lost: int | None
    legs_identical: bool | None


@dataclass(frozen=True)
class _SecondRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    second: int
    iops: float | None


@dataclass(frozen=True)
class _EventRow:
    topology: str
    tuning: str
    workload: str
    repetition: int
    host: str
    second: float | None
    event: str
    detail: str | None


Key = tuple[Cell, int]  # a trial: its cell and repetition


def failures(asked: Asked, plan: Plan) -> Iterator[Failure]:
    """Every trial under a failure, as its last attempt left it."""
    rows = sorted(asked.rows("failures", _FailureRow), key=lambda row: (order(plan, cell_of(row)), row.repetition))
    if not rows:
        return
    seconds: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    for second in asked.rows("failure_timeline", _SecondRow):
        if second.iops is not None:
            seconds[cell_of(second), second.repetition].append((second.second, round(second.iops, 1)))
    happened: dict[Key, list[_EventRow]] = defaultdict(list)
    for event in asked.rows("failure_events", _EventRow):
        happened[cell_of(event), event.repetition].append(event)
    for row in rows:
        key = cell_of(row), row.repetition
        yield Failure(
            topology=row.topology,
            tuning=row.tuning,
            workload=row.workload,
            repetition=row.repetition,
            load=load_words(plan.workloads[row.workload]),
            unit=unit_of(plan, row.workload).name,
            event=row.failure,
            verdict=row.verdict,
            reason=row.reason or "",
            stall_s=row.stall_s,
            before_rate=row.before_iops,
            degraded_rate=row.degraded_iops,
            resync_s=row.resync_s,
            resync_rate=row.resync_iops,
            writes_acknowledged=row.writes_acknowledged,
            writes_lost=row.writes_lost,
            legs_identical=row.legs_identical,
            seconds=tuple(seconds[key]),
            events=tuple(_events(happened[key])),
            states=tuple(_states(happened[key], plan.topologies[row.topology].clients)),
        )


def _events(rows: Sequence[_EventRow]) -> Iterator[Event]:
    for row in rows:
        if row.event != STATE and row.second is not None:
            yield Event(row.second, row.host, row.event, row.detail or "")


def _states(rows: Sequence[_EventRow], clients: Sequence[str]) -> Iterator[State]:
    """The mirror as one host saw it, that which made the load where it tells; a state lasts until the next.

    That less is left to copy (oos) is no new state.
    """
    told = [row for row in rows if row.event == STATE and row.second is not None and row.detail]
    hosts = sorted({row.host for row in told}, key=lambda host: (host not in clients, host))
    mine: list[_EventRow] = []
    for row in told:
        if row.host == hosts[0] and (not mine or _known(row) != _known(mine[-1])):
            mine.append(row)
    for row, later in zip_longest(mine, mine[1:]):
        yield State(row.second or 0.0, later.second if later else None, row.host, row.detail or "")


def _known(row: _EventRow) -> list[str]:
    return [word for word in (row.detail or "").split() if not word.startswith("oos=")]
