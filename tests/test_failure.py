"""The course of a load through a failure, and what became of its writes: by figures made for it."""

import pytest

from volumetry.evidence.failure import Course, Event, Verification, Writes, course, writes

FAULT = [Event(110.0, "fault-begin", "cut-all-links"), Event(120.0, "fault-end", "cut-all-links")]
LOAD = (100.0, 140.0)


def every(first: float, last: float, step: float) -> list[float]:
    """Completions from ``first`` on, before ``last``."""
    return [first + step * number for number in range(round((last - first) / step))]


def test_a_standstill_is_told_apart_from_the_degraded_part() -> None:
    """100 a second; then nothing for 6 s, 20 a second for the rest of the failure, and 100 again."""
    times = every(100, 110, 0.01) + every(116, 120, 0.05) + every(120, 140, 0.01)
    found = course(times, LOAD, FAULT, [])
    assert found.stall_s == pytest.approx(6.0, abs=0.02)
    assert found.before_iops == pytest.approx(100)
    assert found.degraded_iops == pytest.approx(20, rel=0.01)
    assert (found.resync_s, found.resync_iops) == (None, None)


def test_a_load_that_stood_still_all_through_has_no_degraded_rate() -> None:
    times = every(100, 110, 0.01) + every(121, 140, 0.01)
    found = course(times, LOAD, FAULT, [])
    assert found.stall_s == pytest.approx(11.0, abs=0.02)
    assert found.degraded_iops is None


def test_a_load_that_never_went_on_stalls_to_its_end() -> None:
    assert course(every(100, 110, 0.01), LOAD, FAULT, []).stall_s == pytest.approx(30, abs=0.02)


def test_a_standstill_before_the_failure_is_not_its_work() -> None:
    times = every(100, 102, 0.01) + every(107, 140, 0.01)
    assert course(times, LOAD, FAULT, []).stall_s == pytest.approx(0.01)


def test_copying_is_from_its_first_state_to_the_first_without() -> None:
    lines = [
        (90, "Connected"),
        (111, "WFConnection"),
        (121, "SyncSource oos=8"),
        (123, "PausedSyncS"),
        (126, "Connected"),
    ]
    states = [Event(float(at), "state", line) for at, line in lines]
    found = course(every(100, 140, 0.1), LOAD, FAULT, states)
    assert (found.resync_began_s, found.resync_s) == (121, 5)
    assert found.resync_iops == pytest.approx(10, rel=0.03)


def test_copying_that_was_not_seen_to_end_has_no_length() -> None:
    states = [Event(121.0, "state", "SyncSource")]
    assert course(every(100, 140, 0.1), LOAD, FAULT, states).resync_s is None


def test_copying_after_the_load_has_a_length_and_no_rate() -> None:
    states = [Event(145.0, "state", "SyncTarget"), Event(150.0, "state", "Connected")]
    found = course(every(100, 140, 0.1), LOAD, FAULT, states)
    assert (found.resync_s, found.resync_iops) == (5, None)


def test_a_peer_that_comes_back_after_the_load_is_measured_to_the_loads_end() -> None:
    late = [FAULT[0], Event(170.0, "fault-end", "kill-peer")]
    found = course(every(100, 140, 0.01), LOAD, late, [])
    assert found.degraded_iops == pytest.approx(100, rel=0.01)
    assert found.ended_s == 170


def test_without_a_failure_nothing_is_told() -> None:
    assert course(every(100, 140, 0.1), LOAD, [], []) == Course()


WHOLE = Verification(100, frozenset(), 0)
SUMS = {"host1": "ab", "host2": "ab"}


def test_blocks_that_are_wrong_on_both_legs_are_lost_once() -> None:
    legs = {"host1": Verification(100, frozenset({0, 4096}), 0), "host2": Verification(100, frozenset({4096}), 0)}
    found = writes(100, legs, SUMS)
    assert (found.lost, found.wrong, found.unread) == (2, {"host1": 2, "host2": 1}, "")


@pytest.mark.parametrize("leg", [None, Verification(99, frozenset(), 0), Verification(100, frozenset(), 5)])
def test_a_leg_that_was_not_read_in_full_leaves_it_unknown(leg: Verification | None) -> None:
    found = writes(100, {"host1": WHOLE, "host2": leg}, SUMS)
    assert found.lost is None
    assert found.unread.startswith("of 100 acknowledged writes ")


@pytest.mark.parametrize(
    ("sums", "identical"),
    [
        (SUMS, True),
        ({"host1": "ab", "host2": "cd"}, False),
        ({"host1": "ab", "host2": None}, None),
        ({"host1": "ab"}, None),
    ],
)
def test_legs_are_alike_or_not_or_it_is_not_known(sums: dict[str, str | None], identical: bool | None) -> None:
    assert writes(None, {}, sums) == Writes(legs_identical=identical)
