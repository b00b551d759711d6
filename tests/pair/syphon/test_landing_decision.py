"""The decision where messages of a destination go: each step, and arbitrary sequences of steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Rejected, Released
from sbpair.pair.ground.side import Side
from sbpair.pair.syphon.forward.in_flight import DEAD_LETTER_REASONS, is_answer, is_busy
from sbpair.pair.syphon.land.landing import MAX_PATHS, Landing

HOME, AWAY = Side.PRIMARY, Side.SECONDARY
AFTER = 300.0


def landing_after(*steps: tuple[object, ...]) -> Landing:
    landing = Landing(AFTER)
    for name, *arguments in steps:
        getattr(landing, str(name))(*arguments)
    return landing


# steps, then when the question is asked, and the answer for "orders"
TABLE: list[tuple[str, list[tuple[object, ...]], float, Side]] = [
    ("nothing happened", [], 9999.0, HOME),
    ("the side was lost just now", [("side_lost", 10.0)], 309.9, HOME),
    ("the side was lost for long enough", [("side_lost", 10.0)], 310.0, AWAY),
    ("a further failure does not restart the span", [("side_lost", 10.0), ("side_lost", 200.0)], 310.0, AWAY),
    ("the side is back", [("side_lost", 10.0), ("side_reached",)], 9999.0, HOME),
    ("the entity does not answer", [("out_of_reach", "orders", 10.0)], 310.0, AWAY),
    ("another entity does not answer", [("out_of_reach", "bills", 10.0)], 9999.0, HOME),
    ("the entity answered", [("out_of_reach", "orders", 10.0), ("note_answer", "orders")], 9999.0, HOME),
    (
        "the side is back and the entity has not answered",
        [("side_lost", 10.0), ("out_of_reach", "orders", 50.0), ("side_reached",)],
        310.0,
        AWAY,
    ),
    (
        "the entity was out of reach before the side was",
        [("out_of_reach", "orders", 10.0), ("side_lost", 200.0)],
        310.0,
        AWAY,
    ),
    (
        "the secondary has no such entity",
        [("side_lost", 10.0), ("twin_missing", "orders", 400.0)],
        399.9,
        HOME,
    ),
    (
        "the secondary may have it by now",
        [("side_lost", 10.0), ("twin_missing", "orders", 400.0)],
        400.0,
        AWAY,
    ),
]


@pytest.mark.spec("C-1")
@pytest.mark.parametrize(("steps", "now", "side"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_decision_table_gives_the_destination(
    steps: list[tuple[object, ...]], now: float, side: Side
) -> None:
    assert landing_after(*steps).where("orders", now) is side


@pytest.mark.spec("C-1")
def test_with_a_zero_span_messages_land_at_the_first_failure() -> None:
    landing = Landing(0.0)
    landing.out_of_reach("orders", 5.0)
    assert landing.where("orders", 5.0) is AWAY


def test_a_landing_begins_and_ends_once() -> None:
    landing = landing_after(("out_of_reach", "orders", 0.0))
    assert [landing.begins("orders", "Orders"), landing.begins("orders", "orders")] == [True, False]
    assert (landing.landing, landing.paths) == (("orders",), ("Orders",))
    assert [landing.note_answer("orders"), landing.note_answer("orders")] == [True, False]
    assert landing.landing == ()


def test_the_destinations_remembered_are_bounded() -> None:
    landing = Landing(AFTER)
    for number in range(MAX_PATHS + 10):
        landing.out_of_reach(f"q{number}", 0.0)
    assert not landing.is_out_of_reach("q9")
    assert landing.is_out_of_reach("q10")


PATHS = st.sampled_from(["orders", "bills"])
STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.just(("side_lost",)),
            st.just(("side_reached",)),
            st.tuples(st.just("out_of_reach"), PATHS),
            st.tuples(st.just("answered"), PATHS),
            st.tuples(st.just("twin_missing"), PATHS),
        ),
        st.integers(0, 400),
    ),
    max_size=30,
)


@pytest.mark.spec("C-1")
@given(steps=STEPS, wait=st.integers(0, 1000))
def test_messages_land_exactly_if_nothing_answered_for_the_whole_span(
    steps: list[tuple[tuple[str, ...], int]], wait: int
) -> None:
    landing, now = Landing(AFTER), 0.0
    side: float | None = None  # a naive model of the same
    out: dict[str, float] = {}
    missing: dict[str, float] = {}
    for step, span in steps:
        now += span
        match step:
            case ("side_lost",):
                landing.side_lost(now)
                side = now if side is None else side
            case ("side_reached",):
                landing.side_reached()
                side = None
            case ("out_of_reach", path):
                landing.out_of_reach(path, now)
                out.setdefault(path, now if side is None else side)
            case ("answered", path):
                landing.note_answer(path)
                out.pop(path, None)
                missing.pop(path, None)
            case ("twin_missing", path):
                landing.twin_missing(path, now + 30.0)
                missing[path] = now + 30.0
    now += wait
    for path in ("orders", "bills"):
        began = [each for each in (side, out.get(path)) if each is not None]
        lands = bool(began) and now >= max(min(began) + AFTER, missing.get(path, 0.0))
        assert landing.where(path, now) is (AWAY if lands else HOME)
        due = landing.due(path)
        assert (due is None) is (not began)
        if due is not None:
            assert landing.where(path, due) is AWAY
            assert landing.where(path, due - 0.001) is HOME


@pytest.mark.spec("C-1")
@pytest.mark.parametrize("symbol", ["com.microsoft:server-busy", "amqp:resource-limit-exceeded"])
def test_an_entity_that_answers_busy_is_reachable(symbol: str) -> None:
    assert is_busy(Rejected(Condition(symbol)))


@pytest.mark.spec("C-1")
def test_an_entity_that_finally_refuses_a_message_is_reachable() -> None:
    assert all(is_answer(Condition(symbol), is_final=True) for symbol in DEAD_LETTER_REASONS)


@pytest.mark.spec("C-1")
@pytest.mark.parametrize(
    "state", [None, Released(), ACCEPTED, Rejected(), Rejected(Condition("amqp:internal-error"))]
)
def test_only_busy_answers_mean_that_an_entity_is_busy(state: object) -> None:
    assert not is_busy(state)  # type: ignore[arg-type]
