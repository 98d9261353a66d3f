"""Statistics: known values, and what must hold for any values."""

import math
import random
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetry.statistics import (
    Interval,
    Ratio,
    false_alarm_rate,
    median_interval,
    median_ranks,
    percentile,
    ratio,
    steady_state,
)

positive = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


# Published tables of the exact interval.
@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        (0, None),
        (1, None),
        (5, None),
        (6, (1, 6)),
        (9, (2, 8)),
        (15, (4, 12)),
        (20, (6, 15)),
        (30, (10, 21)),
        (50, (18, 33)),
    ],
)
def test_ranks_that_bound_a_median(n: int, ranks: tuple[int, int] | None) -> None:
    assert median_ranks(n) == ranks


@given(st.integers(6, 300))
def test_ranks_cover_95_percent_and_narrower_ones_do_not(n: int) -> None:
    ranks = median_ranks(n)
    assert ranks is not None
    low, high = ranks

    def covered(k: int) -> Fraction:
        return 1 - 2 * sum(Fraction(math.comb(n, i), 2**n) for i in range(k))

    assert low + high == n + 1
    assert covered(low) >= Fraction(95, 100) > covered(low + 1)


@given(st.lists(positive, min_size=1, max_size=60))
def test_an_interval_holds_the_median_of_its_sample(values: list[float]) -> None:
    interval = median_interval(values)
    if len(values) < 6:
        assert interval is None
    else:
        assert interval is not None
        assert statistics.median(values) in interval
        assert {interval.low, interval.high} <= set(values)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    draw = random.Random(20141)
    samples = ([draw.lognormvariate(0, 1) for _ in range(15)] for _ in range(2000))
    covered = sum(1.0 in interval for sample in samples if (interval := median_interval(sample)))
    assert 0.95 <= covered / 2000 <= 0.985  # exactly 0.9648 is expected of 15 values


def test_steady_state_at_the_limits() -> None:
    assert steady_state([100, 90, 110, 100, 100]).steady  # the range is 20 % exactly
    assert steady_state([95, 97.5, 100, 102.5, 105]).steady  # the rise is 10 % exactly
    found = steady_state([100, 100, 100, 100, 125])
    assert not found.steady
    assert found.range_pct == pytest.approx(100 * 25 / 105)
    assert found.slope_pct == pytest.approx(100 * 5 * 4 / 105)
    assert found.reason.startswith(
        "the last five rounds range over 23.8 % of their mean (20 % allowed); they rise by 19.0 %"
    )


def test_a_slow_drift_is_not_steady_although_its_range_is_small() -> None:
    found = steady_state([100, 97, 94, 91, 88])
    assert (found.steady, found.reason) == (False, "they fall by 12.8 % of their mean (10 % allowed)")
    assert found.range_pct == pytest.approx(100 * 12 / 94)


def test_only_the_last_five_rounds_count() -> None:
    assert steady_state([1, 5000, 100, 100, 100, 100, 100]).steady
    assert not steady_state([100, 100, 100, 100, 100, 1]).steady
    assert steady_state([0.0] * 5).steady
    with pytest.raises(ValueError, match="needs 5 rounds, not 4"):
        steady_state([1, 2, 3, 4])


@given(st.lists(positive, min_size=5, max_size=9), st.floats(1e-3, 1e3))
def test_steadiness_does_not_depend_on_the_unit(rounds: list[float], factor: float) -> None:
    one, other = steady_state(rounds), steady_state([value * factor for value in rounds])
    assert one.range_pct == pytest.approx(other.range_pct, rel=1e-6, abs=1e-6)
    assert one.slope_pct == pytest.approx(other.slope_pct, rel=1e-6, abs=1e-6)


def test_percentiles_of_a_merged_histogram() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({7: 1}, 0.001) == 7
    assert percentile({10: 999, 20: 1}, 0.999) == 10  # the 999th of 1,000 is still in the first bucket
    assert percentile({10: 998, 20: 2}, 0.999) == 20
    slow_node, others = {8_000_000: 1000}, {1_000_000: 31_000}
    assert percentile(others | slow_node, 0.99) == 8_000_000


@given(st.dictionaries(st.integers(0, 10**9), st.integers(1, 50), min_size=1, max_size=30), st.floats(0.001, 1))
def test_a_percentile_is_the_value_at_its_rank(counts: dict[int, int], share: float) -> None:
    values = sorted(value for value, count in counts.items() for _ in range(count))
    rank = math.ceil(Fraction(str(share)) * len(values))
    assert percentile(counts, share) == values[rank - 1]


def test_a_ratio_pairs_the_trials_of_a_block() -> None:
    base = {block: 1000.0 * block for block in range(1, 8)}  # drifts sevenfold
    found = ratio(base, {block: value / 2 for block, value in base.items() if block != 3} | {99: 1.0})
    assert found == Ratio(0.5, Interval(0.5, 0.5), 6)
    assert ratio({1: 1.0}, {2: 1.0}) is None
    assert ratio({1: 0.0}, {1: 5.0}) is None
    few = ratio({1: 10.0, 2: 10.0}, {1: 4.0, 2: 6.0})
    assert few == Ratio(0.5, None, 2)


@given(st.dictionaries(st.integers(1, 9), st.tuples(positive, positive), min_size=1))
def test_a_ratio_lies_between_the_blocks_ratios(pairs: dict[int, tuple[float, float]]) -> None:
    found = ratio({b: one for b, (one, _) in pairs.items()}, {b: other for b, (_, other) in pairs.items()})
    quotients = [other / one for one, other in pairs.values()]
    assert found is not None
    assert min(quotients) <= found.value <= max(quotients)
    assert found.blocks == len(pairs)
    assert (found.interval is None) == (len(pairs) < 6)


def test_equal_configurations_are_rarely_called_different() -> None:
    draw = random.Random(7)

    def equal() -> Ratio:
        drift = [draw.uniform(1, 3) for _ in range(10)]
        one, other = ({b: d * draw.gauss(1000, 50) for b, d in enumerate(drift)} for _ in range(2))
        found = ratio(one, other)
        assert found is not None
        return found

    alarms = false_alarm_rate(equal() for _ in range(1000))
    assert alarms is not None
    assert alarms < 0.05
    assert false_alarm_rate([Ratio(2.0, None, 3)]) is None
    assert false_alarm_rate([Ratio(2.0, Interval(1.5, 2.5), 6), Ratio(1.0, Interval(0.9, 1.1), 6)]) == 0.5
