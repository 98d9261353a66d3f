"""The statistics behind verdicts and comparisons. Pure; units are those of the values given.

The queries compute medians, intervals, percentiles and ratios by the same rules in SQL; tests hold the two together.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

CONFIDENCE = Fraction(95, 100)
MIN_FOR_INTERVAL = 6
"""With five values, even from the smallest to the largest covers the median in only 93.75 % of all cases."""

STEADY_ROUNDS = 5
STEADY_RANGE_PCT = 20.0
STEADY_SLOPE_PCT = 10.0


@dataclass(frozen=True)
class Interval:
    """A confidence interval of at least 95 %."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def median_ranks(n: int) -> tuple[int, int] | None:
    """Ranks (from 1) of the order statistics that bound the median of ``n`` values; None where no two of them do.

    Exact and free of distribution: [x(k), x(n+1-k)] misses the median only if fewer than k of n values fall on one
    side, a binomial probability (David & Nagaraja, *Order Statistics*, 7.1). The narrowest of at least 95 %.
    """
    tail, k = Fraction(0), 0
    while True:
        tail += Fraction(math.comb(n, k), 2**n)
        if 2 * tail > 1 - CONFIDENCE:
            return (k, n + 1 - k) if k else None
        k += 1


def median_interval(values: Sequence[float]) -> Interval | None:
    """The interval of the median by ``median_ranks``; None for fewer than six values."""
    ranks = median_ranks(len(values))
    if ranks is None:
        return None
    ordered = sorted(values)
    return Interval(ordered[ranks[0] - 1], ordered[ranks[1] - 1])


@dataclass(frozen=True)
class Steadiness:
    """Whether the last five rounds are a steady state, the figures (per cent of the rounds' mean) and the reason."""

    steady: bool
    range_pct: float
    slope_pct: float
    reason: str


def steady_state(rounds: Sequence[float]) -> Steadiness:
    """Steady state by SNIA's Solid State Storage Performance Test Specification 2.0.2 over the last five rounds.

    (a) largest - smallest <= 20 % of their mean, and (b) the least-squares line rises or falls over the window by at
    most 10 % of their mean. Raises ValueError for fewer than five rounds.
    """
    window = rounds[-STEADY_ROUNDS:]
    if len(window) < STEADY_ROUNDS:
        raise ValueError(f"steady state needs {STEADY_ROUNDS} rounds, not {len(window)}")
    mean = statistics.fmean(window)
    if mean == 0:
        return Steadiness(True, 0.0, 0.0, "nothing happened in any round")
    slope = statistics.linear_regression(range(STEADY_ROUNDS), window).slope
    range_pct = 100 * (max(window) - min(window)) / mean
    slope_pct = 100 * abs(slope) * (STEADY_ROUNDS - 1) / mean
    faults = []
    if range_pct > STEADY_RANGE_PCT:
        faults.append(
            f"the last five rounds range over {range_pct:.1f} % of their mean ({STEADY_RANGE_PCT:.0f} % allowed)"
        )
    if slope_pct > STEADY_SLOPE_PCT:
        way = "rise" if slope > 0 else "fall"
        faults.append(f"they {way} by {slope_pct:.1f} % of their mean ({STEADY_SLOPE_PCT:.0f} % allowed)")
    reason = "; ".join(faults) or f"range {range_pct:.1f} %, slope {slope_pct:.1f} % of the mean"
    return Steadiness(not faults, range_pct, slope_pct, reason)


def percentile(counts: Mapping[int, int], share: float) -> int | None:
    """The first value whose cumulative count reaches ``share`` (0 to 1) of all; None of an empty histogram.

    ``counts`` maps a bucket's value to its count; histograms are merged by adding counts before, never by averaging
    percentiles. fio's own rule, and exact: 0.999 of 1,000 is the 999th, whatever floating point makes of it.
    """
    wanted, seen = Fraction(str(share)) * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen and seen >= wanted:
            return value
    return None


@dataclass(frozen=True)
class Ratio:
    """A cell against its base: median of the blocks' ratios, its interval from six blocks on, and how many blocks."""

    value: float
    interval: Interval | None
    blocks: int


def ratio(base: Mapping[int, float], other: Mapping[int, float]) -> Ratio | None:
    """``other`` against ``base``, both by block of the randomised order; None without a block that has both.

    Trials of one block ran close to each other, so what drifts over an execution falls out of their quotient
    (randomised interleaved trials: Abedi & Brecht, ICPE 2017); the interval is that of the median of the quotients.
    """
    quotients = [other[block] / base[block] for block in base.keys() & other.keys() if base[block]]
    if not quotients:
        return None
    return Ratio(statistics.median(quotients), median_interval(quotients), len(quotients))


def false_alarm_rate(equals: Iterable[Ratio]) -> float | None:
    """The share (0 to 1) of comparisons of *equal* configurations whose interval denies that they are equal.

    A sound method stays near 0.05; None where no comparison had an interval.
    """
    judged = [one.interval for one in equals if one.interval is not None]
    return sum(1.0 not in interval for interval in judged) / len(judged) if judged else None
