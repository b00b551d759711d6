"""The messages that belong to a batch, without a JVM and without a broker."""

from __future__ import annotations

import bisect
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.spark.ranges import (
    LANE_BITS,
    Mark,
    Piece,
    Seen,
    Span,
    advance,
    allot,
    heads,
    is_renewed,
    marks,
    numbers,
    pieces,
    span,
    weigh,
)

NOW = 1_000_000
SCHEDULED = 2


def peeks(search: Generator, messages: list[Seen]) -> tuple[object, int]:
    """Run a search over messages; return what it found and the number of peeks."""
    numbers, count = [each.number for each in messages], 0
    try:
        probe = next(search)
        while True:
            count += 1
            place = bisect.bisect_left(numbers, probe)
            probe = search.send(messages[place] if place < len(messages) else None)
    except StopIteration as done:
        return done.value, count


def old(*numbers: int) -> list[Seen]:
    return [Seen(number, NOW - 10) for number in numbers]


@given(st.sets(st.integers(1, 5000), max_size=60), st.integers(0, 5000))
def test_a_range_covers_everything_behind_the_offset(numbers: set[int], after: int) -> None:
    behind = [number for number in sorted(numbers) if number > after]

    found, _ = peeks(span("q", after, NOW), old(*sorted(numbers)))

    assert found == (Span("q", behind[0], behind[-1]) if behind else None)


def test_the_end_of_a_long_queue_is_found_with_few_peeks() -> None:
    found, count = peeks(span("q", 0, NOW), old(*range(1, 100_001)))

    assert found == Span("q", 1, 100_000)
    assert count < 2 * 17 + 3


@given(
    st.sets(st.integers(1, 5000), max_size=60),
    st.integers(0, 5000),
    st.integers(0, 6000),
    st.integers(0, 5000),
)
def test_a_hint_never_changes_the_result(numbers: set[int], after: int, hint: int, young: int) -> None:
    messages = [Seen(number, NOW - 10 if number <= young else NOW + 10) for number in sorted(numbers)]

    assert peeks(span("q", after, NOW, hint), messages)[0] == peeks(span("q", after, NOW), messages)[0]


def test_messages_after_a_known_end_are_found_with_few_peeks() -> None:
    messages = old(*range(1, 100_004))

    assert peeks(span("q", 40_000, NOW, 100_000), messages) == (Span("q", 40_001, 100_003), 7)
    assert peeks(span("q", 40_000, NOW, 100_003), messages) == (Span("q", 40_001, 100_003), 3)


def test_an_outdated_hint_is_not_used() -> None:
    """A recreated entity has small sequence numbers, so those up to the hint are yet to come."""
    assert peeks(span("q", 0, NOW, 1000), old(1, 2))[0] == Span("q", 1, 2)


def test_a_message_enqueued_just_now_waits_together_with_those_behind_it() -> None:
    messages = [*old(1, 2, 3), Seen(4, NOW + 5), Seen(5, NOW + 6)]

    assert peeks(span("q", 0, NOW), messages)[0] == Span("q", 1, 3)
    assert peeks(span("q", 3, NOW), messages)[0] is None


def test_a_scheduled_message_does_not_block_those_behind_it() -> None:
    messages = [*old(1), Seen(2, NOW + 60_000, SCHEDULED), *old(3)]

    assert peeks(span("q", 0, NOW), messages)[0] == Span("q", 1, 3)


def test_each_partition_is_a_separate_lane() -> None:
    third = 3 << LANE_BITS
    messages = old(1, 2, third + 1, third + 9)

    assert peeks(heads("q"), messages)[0] == {"q": messages[0], "q#3": messages[2]}
    assert peeks(span("q", 0, NOW), messages)[0] == Span("q", 1, 2)
    assert peeks(span("q#3", 0, NOW), messages)[0] == Span("q#3", third + 1, third + 9)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500)), min_size=1, max_size=8), st.integers(1, 600)
)
def test_a_limit_is_respected_and_no_lane_starves(sizes: list[tuple[int, int]], most: int) -> None:
    spans = [Span(f"q{place}", first, first + size) for place, (first, size) in enumerate(sizes)]

    granted = allot(spans, most)

    assert {each.lane for each in granted} == {each.lane for each in spans}
    assert sum(each.last - each.first + 1 for each in granted) <= max(most, len(spans))
    assert all(each.first <= each.last for each in granted)


def test_a_gap_in_the_numbers_does_not_use_up_the_limit() -> None:
    assert allot([Span("q", 1_000_000, 1_000_500)], 100) == [Span("q", 1_000_000, 1_000_099)]


@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 12))
def test_pieces_cover_a_range_once_and_in_order(after: int, size: int, least: int) -> None:
    made = pieces({"q": after}, {"q": after + size}, least, settles=True)

    numbers = [number for piece in made for number in range(piece.first, piece.last + 1)]
    assert numbers == list(range(after + 1, after + size + 1))
    assert len(made) == min(least, size)
    due = (Mark("q", after),) if after else ()
    assert [piece.marks for piece in made] == [due, *[()] * (len(made) - 1)]


def test_only_lanes_with_new_messages_have_pieces() -> None:
    start, end = {"a": 5, "b": 7}, {"a": 5, "b": 9}

    assert pieces(start, end, 1, settles=False) == [Piece("b", 8, 9)]
    assert pieces(start, start, 1, settles=True) == []


def test_a_queue_that_appears_later_is_read_from_its_start() -> None:
    assert pieces({"a": 5}, {"a": 5, "b": 2}, 1, settles=True) == [Piece("b", 1, 2)]


def test_an_offset_keeps_the_positions_of_unchanged_lanes() -> None:
    assert advance({"a": 5, "b": 7}, [Span("b", 8, 9)]) == {"a": 5, "b": 9}


@pytest.mark.parametrize("lane", ["q", "q#3"])
def test_the_first_read_of_a_lane_ignores_earlier_numbers(lane: str) -> None:
    first = (int(lane[2:] or 0) << LANE_BITS) + 1 if "#" in lane else 1
    piece, *more = pieces({}, {lane: first + 9}, 1, settles=True)

    assert more == []
    assert piece.first >= first - 1
    assert piece.marks == ()


@pytest.mark.parametrize(
    ("most", "last", "used"), [(1, 3, 10), (10, 3, 10), (35, 7, 30), (1000, 12, 50)], ids=str
)
def test_byte_ranges_end_at_whole_messages(most: int, last: int, used: int) -> None:
    there = [(3, 10), (4, 10), (7, 10), (9, 10), (12, 10), (13, 10)]
    search = weigh(Span("q", 3, 12), most)
    found, start = None, next(search)
    while found is None:
        try:
            start = search.send([each for each in there if each[0] >= start][:2])
        except StopIteration as ended:
            found = ended.value
    assert found == (last, used)


def test_the_time_of_an_offset_is_kept_for_the_settling_task() -> None:
    start = advance({}, [Span("q", 1, 9)], until=77)
    assert numbers(start) == {"q": 9}
    end = advance(start, [Span("q", 10, 12)], until=99)
    (piece,) = pieces(start, end, 1, settles=True)
    assert piece.marks == (Mark("q", 9, 77),)
    assert advance(start, [], until=99) == start
    assert advance(start, [Span("q", 10, 12)]) == {"q": 12}


@pytest.mark.spec("R-71")
@pytest.mark.parametrize(
    ("head", "start", "told"),
    [
        (Seen(3, 78), {"q": 9, "q@until": 77}, True),
        (Seen(3, 77), {"q": 9, "q@until": 77}, False),
        (Seen(10, 78), {"q": 9, "q@until": 77}, False),
        (Seen(3, 78, SCHEDULED), {"q": 9, "q@until": 77}, False),
        (Seen(3, 78), {"q": 9}, False),
    ],
    ids=["young and low", "old", "behind the offset", "scheduled", "of a query that consumes nothing"],
)
def test_a_newer_message_under_a_number_already_read_belongs_to_a_recreated_entity(
    head: Seen, start: dict[str, int], told: bool
) -> None:
    assert is_renewed("q", head, start) is told


@pytest.mark.spec("R-77")
def test_the_first_piece_of_an_entity_settles_all_its_lanes() -> None:
    third = 3 << LANE_BITS
    start = {"q": 5, "q@until": 70, "q#3": third + 2, "r": 4}
    made = pieces(start, start | {"q#3": third + 9, "r": 6}, 4, settles=True)

    assert [piece.path for piece in made if piece.marks] == ["q", "r"]
    assert made[0].marks == (Mark("q", 5, 70), Mark("q#3", third + 2))
    assert marks(start) == {"q": made[0].marks, "r": (Mark("r", 4),)}


def test_a_recreated_lane_starts_at_its_head_and_settles_nothing() -> None:
    start = {"q": 9, "q@until": 77}
    end = advance(start, [Span("q", 1, 4, since=99)], 100)

    assert pieces(start, end, 1, settles=True) == [Piece("q", 1, 4)]
    assert pieces(end, advance(end, [Span("q", 5, 6)], 120), 1, settles=True)[0].marks == (Mark("q", 4, 100),)
