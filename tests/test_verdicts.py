"""One verdict a trial: each word has its cause and its reason, and the gravest cause is the one told."""

from dataclasses import replace
from typing import get_args

import pytest

from volumetry.ceilings import Ceiling
from volumetry.statistics import steady_state
from volumetry.verdicts import WORDS, Facts, Verdict, Word, judge

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
