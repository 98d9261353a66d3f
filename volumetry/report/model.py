"""What a report holds. Units are in the names; what was not measured is None. Order is the order of showing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Estimate:
    """A median over valid trials, its 95 % interval (None: fewer than six), and the extremes."""

    median: float
    low: float | None
    high: float | None
    smallest: float
    largest: float


@dataclass(frozen=True)
class Cost:
    """What is lost against a base, per cent of it (negative: gained): median over blocks, and its 95 % interval."""

    pct: float
    low_pct: float | None
    high_pct: float | None
    blocks: int


@dataclass(frozen=True)
class Percentiles:
    """Completion latency of ``operations`` in the added histograms of valid trials."""

    operations: int
    p50_us: float
    p99_us: float
    p999_us: float


@dataclass(frozen=True)
class Trial:
    """A trial as its last attempt left it; ``rate`` is in the unit of its panel."""

    repetition: int
    verdict: str
    rate: float | None


@dataclass(frozen=True)
class Step:
    """A topology under one load and tuning.

    ``number``, from 1, is None outside the ladder; ``changes`` are what it changes of the step before; ``rate`` is in
    the panel's unit, and costs are of it.
    """

    number: int | None
    topology: str
    changes: tuple[str, ...]
    trials: tuple[Trial, ...]
    rate: Estimate | None
    bw_bytes_per_s: Estimate | None
    cpu_pct: Estimate | None
    peer_cpu_pct: Estimate | None
    cpu_pct_per_kiops: Estimate | None
    rtt_us: Estimate | None
    against_previous: Cost | None
    against_first: Cost | None
    latency: Mapping[str, Percentiles]  # by direction, and "all"

    @property
    def trials_valid(self) -> int:
        return sum(trial.verdict == "valid" for trial in self.trials)

    @property
    def left_out(self) -> Mapping[str, int]:
        """Trials that are not valid, by verdict."""
        words = [trial.verdict for trial in self.trials if trial.verdict != "valid"]
        return {word: words.count(word) for word in sorted(set(words))}


@dataclass(frozen=True)
class Panel:
    """A ladder under one load and tuning; ``unit`` is that of its rates: IOPS, TPS or MB/s."""

    workload: str
    tuning: str
    load: str
    unit: str
    steps: tuple[Step, ...]
    ceilings: tuple["Ceiling", ...]
    refusal: str  # why no ladder may be read from it; empty: one may

    @property
    def rungs(self) -> tuple[Step, ...]:
        """The steps of the ladder that were measured."""
        return tuple(step for step in self.steps if step.number is not None and step.rate is not None)

    @property
    def highest(self) -> float:
        """The highest median among the rungs; 0 where there is none."""
        return max((step.rate.median for step in self.rungs if step.rate), default=0.0)

    @property
    def costliest(self) -> Step | None:
        """The rung that costs most against the one before it, if any costs anything."""
        costs = [(step.against_previous.pct, step) for step in self.rungs if step.against_previous]
        pct, step = max(costs, key=lambda pair: pair[0], default=(0.0, None))
        return step if pct > 0 else None


@dataclass(frozen=True)
class Ceiling:
    """The lowest limit foretold for a topology's trials, in operations a second."""

    topology: str
    iops: float
    cause: str


@dataclass(frozen=True)
class TuningEffect:
    """A tuning against another on the same topology and workload."""

    workload: str
    topology: str
    base: str
    tuning: str
    cost: Cost


@dataclass(frozen=True)
class EqualPair:
    """Two topologies that are planned alike, compared as if they were not: how often does the method cry wolf?"""

    workload: str
    tuning: str
    one: str
    other: str
    cost: Cost

    @property
    def called_different(self) -> bool | None:
        """Whether the interval denies that they are equal; None without an interval."""
        if self.cost.low_pct is None or self.cost.high_pct is None:
            return None
        return not self.cost.low_pct <= 0 <= self.cost.high_pct


@dataclass(frozen=True)
class Series:
    """A trial's rate over time, in the unit of its panel: (second, mean from there on)."""

    workload: str
    tuning: str
    topology: str
    repetition: int
    verdict: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Curve:
    """A cell's latency distribution: (share of operations, the latency that they do not exceed in microseconds)."""

    workload: str
    tuning: str
    topology: str
    operations: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Deviation:
    """How far a valid trial lies from its cell's median, by the hour of the execution in which it began."""

    workload: str
    tuning: str
    topology: str
    repetition: int
    hours: float
    deviation_pct: float


@dataclass(frozen=True)
class LeftOut:
    """An attempt that enters no comparison; ``rate`` is in ``unit``."""

    topology: str
    tuning: str
    workload: str
    repetition: int
    attempt: int
    verdict: str
    reason: str
    rate: float | None
    unit: str
    ceiling_iops: float | None
    evidence: str | None


@dataclass(frozen=True)
class VerdictCount:
    """Trials of one cell by verdict."""

    topology: str
    tuning: str
    workload: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class HostLoad:
    """What the load took on a host: means over the seconds of valid trials."""

    topology: str
    tuning: str
    workload: str
    host: str
    cpu_pct: float | None
    iowait_pct: float | None
    steal_pct: float | None
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None


@dataclass(frozen=True)
class Provenance:
    """What a topology was measured on: name of a fact -> its value; several values where it changed on the way."""

    topology: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Tuned:
    """What a tuning was to set on a topology, and what the kernel then had that it has not under the first tuning:
    name of a setting -> its value."""

    topology: str
    tuning: str
    values: Mapping[str, str]
    seen: Mapping[str, str]


@dataclass(frozen=True)
class Event:
    """What happened on a host, ``second`` seconds after the measured part began (negative: before it)."""

    second: float
    host: str
    event: str
    detail: str


_WHOLE = {"connected", "established", "clean", "active"}
_COPYING = re.compile(r"Sync(Source|Target)|PausedSync|resync|recover", re.IGNORECASE)


@dataclass(frozen=True)
class State:
    """The mirror as a host saw it from ``begin_s`` until ``end_s`` (None: to the end), seconds of the measured part."""

    begin_s: float
    end_s: float | None
    host: str
    text: str

    @property
    def word(self) -> str:
        """The state of the connection, which the text begins with."""
        return self.text.split()[0]

    @property
    def kind(self) -> str:
        """``whole``, ``resync`` or ``apart``, by the words of DRBD and md."""
        if _COPYING.search(self.text):
            return "resync"
        return "whole" if self.word.lower() in _WHOLE else "apart"


Span = tuple[float, float]


@dataclass(frozen=True)
class Failure:
    """A trial under a failure. Rates are in ``unit``; what was not measured, or not checked, is None."""

    topology: str
    tuning: str
    workload: str
    repetition: int
    load: str
    unit: str
    event: str
    verdict: str
    reason: str
    stall_s: float | None
    before_rate: float | None
    degraded_rate: float | None
    resync_s: float | None
    resync_rate: float | None
    writes_acknowledged: int | None
    writes_lost: int | None
    legs_identical: bool | None
    seconds: tuple[tuple[int, float], ...]  # (second, rate within it)
    events: tuple[Event, ...]
    states: tuple[State, ...]

    @property
    def degraded_pct(self) -> float | None:
        """The rate without the peer, per cent of that before."""
        return _pct(self.degraded_rate, self.before_rate)

    @property
    def resync_pct(self) -> float | None:
        """The rate while the mirror was made whole, per cent of that before."""
        return _pct(self.resync_rate, self.before_rate)

    @property
    def ends_s(self) -> float:
        """The end of load, failure and resync; what is read back after that is not on their line of time."""
        ends = [event.second for event in self.events if event.event in ("fault-end", "peer-back")]
        copied = [state.end_s for state in self.states if state.kind == "resync" and state.end_s is not None]
        return max([0.0, *(second + 1 for second, _ in self.seconds), *ends, *copied])

    @property
    def fault(self) -> Span | None:
        """From when until when the failure lasted, seconds of the measured part."""
        begins = [event.second for event in self.events if event.event == "fault-begin"]
        ends = [event.second for event in self.events if event.event == "fault-end"]
        return (min(begins), max(ends, default=self.ends_s)) if begins else None

    @property
    def resync(self) -> Span | None:
        """From when until when the mirror copied after the failure had begun."""
        began = self.fault[0] if self.fault else 0.0
        copying = [state for state in self.states if state.kind == "resync" and state.begin_s >= began]
        if not copying:
            return None
        end_s = copying[-1].end_s
        return copying[0].begin_s, self.ends_s if end_s is None else end_s


def _pct(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else 100 * value / base


@dataclass(frozen=True)
class Path:
    """Of what a mirrored write is made: medians over valid trials of each trial's own median, microseconds.

    ``local_us``: a write without the peer; ``foretold_us``: that and the round trip together; ``beyond_us``: what a
    mirrored write takes more than that, and its 95 % interval (None: fewer than six valid trials).
    """

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
    beyond_low_us: float | None
    beyond_high_us: float | None


@dataclass(frozen=True)
class PublishedRatio:
    """What a study published of a topology against a base, per cent of the base's rate, and what was measured here."""

    workload: str
    topology: str
    base: str
    published_pct: float
    measured: Cost | None

    @property
    def measured_pct(self) -> float | None:
        return None if self.measured is None else 100 - self.measured.pct


@dataclass(frozen=True)
class Published:
    """A study's own figures; ``differs``: what was different there; ``here``: what is known of the hosts here."""

    source: str
    differs: str
    here: tuple[str, ...]
    ratios: tuple[PublishedRatio, ...]


@dataclass(frozen=True)
class Report:
    """An execution's report. ``planned`` counts trials, and ``planned_failures`` those of them under a failure;
    ``attempts``, those and what was tried before them."""

    campaign: str
    description: str
    execution: str
    began: datetime
    ended: datetime | None
    region: str
    host_kind: str
    seed: int
    command: str
    base_tuning: str
    ladder: tuple[str, ...]
    planned: int
    planned_failures: int
    attempts: int
    panels: tuple[Panel, ...]
    tunings: tuple[TuningEffect, ...]
    equals: tuple[EqualPair, ...]
    failures: tuple[Failure, ...]
    paths: tuple[Path, ...]
    published: Published | None
    series: tuple[Series, ...]
    series_step_s: int
    curves: tuple[Curve, ...]
    deviations: tuple[Deviation, ...]
    drift_pct_per_hour: float | None
    verdicts: tuple[VerdictCount, ...]
    left_out: tuple[LeftOut, ...]
    hosts: tuple[HostLoad, ...]
    provenance: tuple[Provenance, ...]
    tuned: tuple[Tuned, ...]
    warnings: tuple[str, ...]

    @property
    def span_hours(self) -> float:
        """From the first valid trial's beginning to the last one's."""
        return max((one.hours for one in self.deviations), default=0.0)

    @property
    def drift_pct(self) -> float | None:
        """How far the figures went over the execution's span, by their regression line."""
        return None if self.drift_pct_per_hour is None else self.drift_pct_per_hour * self.span_hours

    @property
    def trials(self) -> int:
        """Trials with a result, but for those under a failure."""
        return sum(sum(count.counts.values()) for count in self.verdicts)

    @property
    def trials_valid(self) -> int:
        return sum(count.counts.get("valid", 0) for count in self.verdicts)
