"""How long an answer of the primary is waited for, as its answers teach it, and when waiting sends are a silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.pair.pairing.decide.patience import Patience

LONGEST = 4.0
pytestmark = pytest.mark.spec("A-2", "B-1")


def taught(*answers: tuple[int, float], longest: float = LONGEST) -> Patience:
    """The patience after so many answers that took so many seconds each, all but the last within moments."""
    patience, all_took = Patience(longest), [took for count, took in answers for _ in range(count)]
    for took in all_took[:-1]:
        patience.answered(took, 0.0)
    for took in all_took[-1:]:
        patience.answered(took, 0.5)
    return patience


def waiting(patience: Patience, *began: float) -> Patience:
    patience.waiting.update(dict.fromkeys(began))
    return patience


# --- how long


@pytest.mark.parametrize("answers", [0, 1, 4])
def test_with_too_few_answers_the_wait_is_three_quarters_of_the_longest(answers: int) -> None:
    assert taught((answers, 0.001)).seconds == 3.0
    assert taught((answers, 0.001), longest=10.0).seconds == 7.5


def test_five_answers_are_enough() -> None:
    patience = Patience(LONGEST)
    for _ in range(4):
        patience.answered(0.001, 0.0)
        assert patience.seconds == 3.0
    patience.answered(0.001, 0.0)
    assert patience.seconds == 0.5


@pytest.mark.parametrize("took", [0.0, 0.001, 0.02, 0.09])
def test_an_entity_that_answers_fast_is_waited_for_half_a_second(took: float) -> None:
    assert taught((100, took)).seconds == 0.5


@pytest.mark.parametrize("took", [0.14, 0.2, 0.3, 0.5, 0.7])
def test_the_wait_is_four_times_the_usual_answer_time(took: float) -> None:
    assert 4 * took <= taught((100, took)).seconds <= 4 * took * 2**0.5


@pytest.mark.parametrize("took", [1.1, 2.0, 3.9, 20.0, 1000.0])
def test_the_wait_is_never_longer_than_the_longest(took: float) -> None:
    assert taught((100, took)).seconds == LONGEST
    assert taught((100, took), longest=0.4).seconds == 0.4


def test_the_wait_covers_nearly_all_answers_and_not_the_slowest_of_two_hundred() -> None:
    assert taught((1, 0.8), (199, 0.02)).seconds == 0.5
    assert taught((4, 0.8), (196, 0.02)).seconds >= 3.2


def test_a_slow_answer_counts_at_once_and_fast_ones_twice_a_second() -> None:
    patience = taught((100, 0.02))
    patience.answered(0.3, 0.75)
    assert 1.2 <= patience.seconds < 2.0
    for _ in range(1000):
        patience.answered(0.02, 1.24)
    assert patience.seconds >= 1.2
    patience.answered(0.02, 1.25)
    assert patience.seconds == 0.5


def test_a_time_of_slow_answers_is_forgotten_within_a_minute() -> None:
    patience = taught((100, 0.8))
    assert patience.seconds >= 3.2
    for tenth in range(10, 110):
        patience.answered(0.02, tenth / 10)
    assert patience.seconds >= 3.2  # after ten seconds a quarter of them weighs yet
    for tenth in range(110, 600):
        patience.answered(0.02, tenth / 10)
    assert patience.seconds == 0.5


def test_learned_answer_times_are_forgotten_in_a_long_pause() -> None:
    patience = taught((25, 0.02))
    patience.answered(0.02, 10.5)  # those of ten seconds ago weigh a quarter
    assert patience.seconds == 0.5
    patience.answered(0.02, 40.0)
    assert patience.seconds == 3.0


def test_each_unanswered_attempt_doubles_the_wait_up_to_the_longest() -> None:
    patience = taught((100, 0.02))
    assert [patience.after(count) for count in (-1, 0, 1, 2, 3, 4, 100_000)] == [0.5, 0.5, 1, 2, 4, 4, 4]


def test_a_very_short_limit_holds_after_any_number_of_unanswered_attempts() -> None:
    assert Patience(0.1).after(0) == pytest.approx(0.075)
    assert Patience(0.1).after(1) == 0.1


# --- what the answers say


def test_the_time_of_the_last_answer_is_known() -> None:
    patience = Patience(LONGEST)
    assert not patience.has_answered_since(0.0)
    patience.answered(0.02, 10.0)
    assert patience.has_answered_since(9.9)
    assert not patience.has_answered_since(10.0)


# --- silence


def test_three_that_wait_far_longer_than_the_answers_take_are_a_silence() -> None:
    assert waiting(taught((100, 0.02)), 2.0, 2.01, 2.02).is_silent(2.3)


def test_two_are_not() -> None:
    assert not waiting(taught((100, 0.02)), 2.0, 2.01).is_silent(3.0)


def test_nor_is_any_number_in_the_first_quarter_of_a_second() -> None:
    patience = waiting(taught((100, 0.02)), *(2.0 + each / 1000 for each in range(20)))
    assert not patience.is_silent(2.24)
    assert patience.is_silent(2.25)


def test_an_unknown_entity_is_not_silent() -> None:
    assert not waiting(taught((4, 0.02)), 2.0, 2.1, 2.2, 2.3).is_silent(5.0)


def test_an_entity_that_answered_since_the_first_attempt_began_is_not_silent() -> None:
    patience = waiting(taught((100, 0.02)), 2.0, 2.01, 2.02)
    patience.answered(0.02, 2.05)
    assert not patience.is_silent(3.0)
    del patience.waiting[2.0], patience.waiting[2.01], patience.waiting[2.02]
    assert waiting(patience, 2.05, 2.06, 2.07).is_silent(3.0)


def test_nor_where_answers_often_take_so_long() -> None:
    patience = waiting(taught((50, 0.02), (50, 0.9)), 2.0, 2.01, 2.02, 2.03)
    assert not patience.is_silent(2.5)
    assert not patience.is_silent(2.8)
    assert patience.is_silent(4.0)


def test_attempts_that_just_began_say_nothing() -> None:
    patience = waiting(taught((100, 0.02)), 2.0, 2.9999, 2.99991, 2.99992)
    assert not patience.is_silent(3.0)
    assert waiting(taught((100, 0.02)), 2.0, 2.1, 2.9999).is_silent(3.0)


def test_many_attempts_of_moderate_age_are_as_unlikely_as_few_of_high_age() -> None:
    """One answer in five takes longer than 0.3 s: four such waits are no wonder, six are."""
    teach = (80, 0.02), (20, 0.9)
    assert not waiting(taught(*teach), *(2.0 + each / 1000 for each in range(4))).is_silent(2.4)
    assert waiting(taught(*teach), *(2.0 + each / 1000 for each in range(6))).is_silent(2.4)


def test_only_the_first_sixteen_attempts_of_a_crowd_are_considered() -> None:
    begins = [2.0 + each / 1000 for each in range(16)]
    slow = (30, 0.02), (70, 0.9)  # that sixteen take so long is unlikely, and not so unlikely
    assert not waiting(taught(*slow), *begins).is_silent(2.4)
    assert not waiting(taught(*slow), *begins, *(2.1 + each / 1000 for each in range(100))).is_silent(2.4)


class Changing(dict[float, None]):
    """Attempts that another thread begins and ends meanwhile."""

    def __init__(self, left: Iterator[float] | None) -> None:
        super().__init__(dict.fromkeys((2.0, 2.01, 2.02)))
        self.left = left

    def __iter__(self) -> Iterator[float]:
        if self.left is None:
            raise RuntimeError("dictionary changed size during iteration")
        return self.left


@pytest.mark.parametrize("left", [None, iter(())], ids=["changes", "all ended"])
def test_threads_that_begin_and_end_attempts_meanwhile_are_no_silence(left: Iterator[float] | None) -> None:
    patience = taught((100, 0.02))
    patience.waiting = Changing(left)
    assert not patience.is_silent(3.0)
