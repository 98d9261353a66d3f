"""One verdict a trial: each word has its cause and its reason, and the gravest cause is the one told."""

from dataclasses import replace
from typing import get_args

import pytest

from volumetry.ceilings import Ceiling
from volumetry.evidence.failure import Course, Writes
from volumetry.statistics import steady_state
from volumetry.verdicts import WORDS, Facts, Struck, Verdict, Word, judge

STEADY = steady_state([1000, 1010, 990, 1000, 1005])
RISING = steady_state([700, 850, 1000, 1150, 1300])
LIMIT = Ceiling("volume IOPS", 3000)

GOOD = Facts(
    iops=1000,
    ceilings=[LIMIT],
    steadiness=STEADY,
    stolen_processors=0.0,
    processors=2,
    mirror_broken="",
    fio_error=0,
)

# What can be wrong with a trial, the gravest first: change, word, and the words that its reason begins with.
FAULTS: list[tuple[dict[str, object], Word, str]] = [
    ({"fio_error": 5}, "failed", "fio reported error 5"),
    ({"iops": 0}, "failed", "no I/O completed"),
    ({"mirror_broken": "host2 fell out of the mirror"}, "degraded", "host2 fell out of the mirror"),
    ({"ceilings": [Ceiling("instance network", 1000)]}, "capped", "1000 IOPS sit on the limit of 1000: inst"),
    ({"stolen_processors": 1.25}, "unsteady", "disturbed: others took 1.2 of 2 processors"),
    ({"steadiness": RISING}, "unsteady", "the last five rounds range over 60.0 %"),
]  # fmt: skip


def test_words_are_those_of_the_type() -> None:
    assert get_args(Word) == WORDS


def test_a_trial_without_a_fault_is_valid_and_needs_no_reason() -> None:
    assert judge(GOOD) == Verdict("valid", "")


@pytest.mark.parametrize(("fault", "word", "reason"), FAULTS, ids=[next(iter(fault)) for fault, *_ in FAULTS])
def test_each_fault_has_its_word_and_its_reason(fault: dict[str, object], word: Word, reason: str) -> None:
    found = judge(replace(GOOD, **fault))
    assert found.word == word
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_gravest_is_told(first: int) -> None:
    """Every fault from ``first`` on at once. Without I/O, no limit is sat on."""
    together: dict[str, object] = {}
    for fault, *_ in reversed(FAULTS[first:]):
        together |= fault
    found = judge(replace(GOOD, **together))
    assert (found.word, found.reason.startswith(FAULTS[first][2])) == (FAULTS[first][1], True)


@pytest.mark.parametrize(
    ("iops", "word"), [(2849, "valid"), (2851, "capped"), (3000, "capped"), (3149, "capped"), (3151, "valid")]
)
def test_within_a_twentieth_of_a_limit_is_on_it(iops: float, word: Word) -> None:
    assert judge(replace(GOOD, iops=iops)).word == word


def test_of_two_limits_the_nearer_is_named() -> None:
    limits = [LIMIT, Ceiling("instance EBS IOPS", 3100)]
    assert judge(replace(GOOD, iops=3090, ceilings=limits)).reason.endswith("instance EBS IOPS")


@pytest.mark.parametrize(("stolen", "word"), [(None, "valid"), (0.5, "valid"), (0.51, "unsteady")])
def test_more_than_half_a_processor_disturbs_and_what_was_not_measured_does_not(
    stolen: float | None, word: Word
) -> None:
    assert judge(replace(GOOD, stolen_processors=stolen)).word == word


def test_a_run_too_short_for_rounds_is_not_called_unsteady() -> None:
    assert judge(replace(GOOD, steadiness=None)).word == "valid"


def test_a_tool_that_counts_bytes_alone_is_judged_by_them() -> None:
    assert judge(replace(GOOD, iops=None, bytes_per_s=1e6)).word == "valid"
    assert judge(replace(GOOD, iops=None)).word == "failed"


# Under a failure.

STRUCK = Struck(
    "cut-all-links",
    load_s=(100.0, 160.0),
    course=Course(began_s=120.0, ended_s=130.0, stall_s=10.4),
    writes=Writes(acknowledged=9000, wrong={"host1": 0, "host2": 0}, lost=0, legs_identical=True),
)


def struck(facts: Facts = GOOD, **changed: object) -> Verdict:
    return judge(replace(facts, struck=replace(STRUCK, **changed)))


def test_a_failure_that_was_measured_is_valid_and_says_what_came_of_it() -> None:
    reason = "cut-all-links: nothing completed for 10.4 s at most; all 9000 acknowledged writes are on both legs"
    assert struck() == Verdict("valid", reason)


def test_lost_writes_and_a_broken_mirror_are_the_result_and_no_flaw() -> None:
    lost = Writes(acknowledged=9000, wrong={"host1": 0, "host2": 7}, lost=7, legs_identical=False)
    found = struck(replace(GOOD, mirror_broken="a leg of the mirror was lost"), writes=lost)
    assert found.word == "valid"
    assert found.reason.endswith(
        "7 of 9000 acknowledged writes are lost or altered on host2; the legs differ; "
        "in the end a leg of the mirror was lost"
    )


def test_a_load_under_a_failure_need_not_be_steady_and_sits_on_no_limit() -> None:
    assert struck(replace(GOOD, steadiness=RISING, iops=3000)).word == "valid"


@pytest.mark.parametrize(
    ("course", "reason"),
    [
        (Course(), "cut-all-links: no host noted its begin"),
        (Course(began_s=120.0), "cut-all-links: no host noted its end"),
        (Course(began_s=98.5, ended_s=120.0), "cut-all-links began 1.5 s before the load"),
        (Course(began_s=150.0, ended_s=162.0), "cut-all-links ended 2.0 s after the load"),
    ],
)
def test_a_failure_that_did_not_take_place_under_the_load_fails_the_trial(course: Course, reason: str) -> None:
    assert struck(course=course) == Verdict("failed", reason)


def test_a_killed_peer_may_come_back_after_the_load() -> None:
    course = Course(began_s=150.0, ended_s=190.0, stall_s=1.0)
    found = struck(event="kill-peer", course=course)
    assert (found.word, found.reason.endswith("the peer came back after the load")) == ("valid", True)
    assert struck(event="kill-peer", course=replace(course, began_s=161.0)).word == "failed"


def test_writes_that_nobody_read_back_fail_the_trial() -> None:
    unread = Writes(acknowledged=9000, unread="of 9000 acknowledged writes 8000 could be read back on host2")
    assert struck(writes=unread) == Verdict("failed", unread.unread)


def test_a_neighbour_disturbs_a_load_under_a_failure_too() -> None:
    assert struck(replace(GOOD, stolen_processors=0.7)).word == "unsteady"
