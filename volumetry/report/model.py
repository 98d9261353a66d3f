"""What a report holds. Units are in the names; what was not measured is None. Order is the order of showing."""

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
    """A trial as its last attempt left it."""

    repetition: int
    verdict: str
    iops: float | None


@dataclass(frozen=True)
class Step:
    """A topology under one load and tuning.

    ``number``, from 1, is None outside the ladder; ``changes`` are what it changes of the step before; costs are in
    operations a second.
    """

    number: int | None
    topology: str
    changes: tuple[str, ...]
    trials: tuple[Trial, ...]
    iops: Estimate | None
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
    """A ladder under one load and tuning; ``unit`` is what operations a second are called."""

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
        return tuple(step for step in self.steps if step.number is not None and step.iops is not None)

    @property
    def highest(self) -> float:
        """The highest median among the rungs; 0 where there is none."""
        return max((step.iops.median for step in self.rungs if step.iops), default=0.0)

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
    """A trial's operations a second over time: (second, mean from there on)."""

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
    """An attempt that enters no comparison."""

    topology: str
    tuning: str
    workload: str
    repetition: int
    attempt: int
    verdict: str
    reason: str
    iops: float | None
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
class Report:
    """An execution's report. ``planned`` counts trials; ``attempts``, those and what was tried before them."""

    campaign: str
    description: str
    execution: str
    began: datetime
    ended: datetime | None
    region: str
    host_kind: str
    seed: int
    command: str
    ladder: tuple[str, ...]
    planned: int
    attempts: int
    panels: tuple[Panel, ...]
    tunings: tuple[TuningEffect, ...]
    equals: tuple[EqualPair, ...]
    series: tuple[Series, ...]
    series_step_s: int
    curves: tuple[Curve, ...]
    deviations: tuple[Deviation, ...]
    drift_pct_per_hour: float | None
    verdicts: tuple[VerdictCount, ...]
    left_out: tuple[LeftOut, ...]
    hosts: tuple[HostLoad, ...]
    provenance: tuple[Provenance, ...]
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
        return sum(sum(count.counts.values()) for count in self.verdicts)

    @property
    def trials_valid(self) -> int:
        return sum(count.counts.get("valid", 0) for count in self.verdicts)
