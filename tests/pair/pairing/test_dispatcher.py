"""The dispatcher: which callbacks receive an event, and in which order."""

from __future__ import annotations

import threading

import pytest

from sbpair.pair.pairing.events import EntitySuspected, PairingEvent
from sbpair.pair.pairing.shared.dispatcher import MAX_EARLY_EVENTS, EventDispatcher
from tests.waiting import PATIENCE


def event(number: int) -> PairingEvent:
    return EntitySuspected(float(number), "orders", "no answer")


def test_the_first_callback_receives_earlier_events_and_the_second_does_not() -> None:
    first: list[PairingEvent] = []
    second: list[PairingEvent] = []
    dispatcher = EventDispatcher()
    dispatcher.emit([event(1), event(2)])

    dispatcher.subscribe(first.append)
    dispatcher.subscribe(second.append)
    dispatcher.emit([event(3)])

    assert first == [event(1), event(2), event(3)]
    assert second == [event(3)]


def test_only_the_latest_events_before_the_first_callback_are_kept() -> None:
    received: list[PairingEvent] = []
    dispatcher = EventDispatcher()
    dispatcher.emit(map(event, range(MAX_EARLY_EVENTS + 1)))

    dispatcher.subscribe(received.append)

    assert received == [event(number) for number in range(1, MAX_EARLY_EVENTS + 1)]


def test_an_event_during_replayed_ones_follows_them() -> None:
    received: list[PairingEvent] = []
    dispatcher = EventDispatcher()
    dispatcher.emit([event(1), event(2)])

    def receive(happened: PairingEvent) -> None:
        received.append(happened)
        if happened == event(1):
            dispatcher.emit([event(3)])

    dispatcher.subscribe(receive)

    assert received == [event(1), event(2), event(3)]


@pytest.mark.spec("R-28")
def test_an_event_caused_by_a_callback_reaches_every_callback_after_its_cause() -> None:
    first: list[PairingEvent] = []
    second: list[PairingEvent] = []
    dispatcher = EventDispatcher()

    def act(happened: PairingEvent) -> None:
        first.append(happened)
        if happened == event(1):
            dispatcher.emit([event(3)])

    dispatcher.subscribe(act)
    dispatcher.subscribe(second.append)
    dispatcher.emit([event(1), event(2)])

    assert first == second == [event(1), event(2), event(3)]


def test_an_interrupted_callback_does_not_hold_up_the_events_that_follow() -> None:
    received: list[PairingEvent] = []
    dispatcher = EventDispatcher()

    def interrupted(happened: PairingEvent) -> None:
        if happened == event(1):
            raise KeyboardInterrupt
        received.append(happened)

    dispatcher.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        dispatcher.emit([event(1), event(2)])
    dispatcher.emit([event(3)])

    assert received == [event(2), event(3)]


class Incomparable(EntitySuspected):
    """An event whose comparison fails, as code in Python can when a signal comes."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = EntitySuspected.__hash__


@pytest.mark.spec("R-100")
def test_no_code_that_a_signal_can_interrupt_runs_while_events_are_taken() -> None:
    dispatcher, pending = EventDispatcher(), [event(1), Incomparable(2.0, "orders", "no answer"), event(3)]
    dispatcher.take(pending)
    assert not pending


@pytest.mark.spec("R-95")
def test_every_observer_gets_events_in_causal_order_despite_a_slow_callback() -> None:
    dispatcher, received = EventDispatcher(), []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def slow(happened: PairingEvent) -> None:
        if happened == event(1):
            has_begun.set()
            assert may_go_on.wait(PATIENCE)
        received.append(happened)

    dispatcher.subscribe(slow)
    dispatcher.put([event(1)])  # under the lock of the client: caused first
    delivering = threading.Thread(target=dispatcher.deliver)
    delivering.start()
    assert has_begun.wait(PATIENCE)
    dispatcher.emit([event(2)])  # another thread is faster
    assert received == []
    may_go_on.set()
    delivering.join(PATIENCE)
    assert received == [event(1), event(2)]
