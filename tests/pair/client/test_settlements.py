"""Settlements of one link: sent in runs, confirmed one by one, and what is left when the link ends."""

from __future__ import annotations

import asyncio

from sbpair.pair.amqp.events import DispositionReceived
from sbpair.pair.amqp.performatives import ACCEPTED, DeliveryState, Modified
from sbpair.pair.client.link import SERIAL, Settlements
from tests.pair.syphon.scripted import driven


class Link:
    """A receiver that notes what it settles."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, int, DeliveryState]] = []

    def settle(self, first: int, last: int, state: DeliveryState) -> None:
        self.settled.append((first, last, state))


def answer(first: int, last: int, state: DeliveryState | None = ACCEPTED) -> DispositionReceived:
    return DispositionReceived(None, first, last, state, True)  # type: ignore[arg-type]


async def test_due_accepts_leave_in_ranges_and_other_outcomes_singly() -> None:
    link, answered = Link(), list[tuple[str, DeliveryState | None]]()
    settlements = Settlements[str](lambda *each: answered.append(each))
    abandoned = Modified(delivery_failed=True)
    for number in (7, 5, 6, 9):
        settlements.add(number, f"m{number}")
    settlements.add(8, "m8", abandoned)
    assert (link.settled, len(settlements), len(settlements.due)) == ([], 5, 5)
    settlements.flush(link)  # type: ignore[arg-type]
    assert link.settled == [(8, 8, abandoned), (5, 7, ACCEPTED), (9, 9, ACCEPTED)]
    settlements.flush(link)  # type: ignore[arg-type]
    assert (len(link.settled), len(settlements), len(settlements.due)) == (3, 5, 0)
    settlements.on_disposition(answer(5, 7))
    settlements.on_disposition(answer(5, 8, abandoned))  # what was confirmed before is not confirmed again
    assert answered == [("m5", ACCEPTED), ("m6", ACCEPTED), ("m7", ACCEPTED), ("m8", abandoned)]
    assert not settlements.is_empty.is_set()
    settlements.on_disposition(answer(9, 9))
    assert settlements.is_empty.is_set()


async def test_an_answer_may_cross_the_end_of_the_numbers() -> None:
    answered = list[int]()
    settlements = Settlements[int](lambda item, _: answered.append(item))
    for number in (SERIAL - 1, 0):
        settlements.add(number, number)
    settlements.flush(Link())  # type: ignore[arg-type]
    settlements.on_disposition(answer(SERIAL - 1, 0))
    assert answered == [SERIAL - 1, 0]


async def test_the_end_of_a_link_returns_sent_and_unsent_settlements_and_forgets_both() -> None:
    answered = list[int]()
    settlements = Settlements[int](lambda item, _: answered.append(item))
    settlements.add(1, 1)
    settlements.flush(Link())  # type: ignore[arg-type]
    settlements.add(2, 2, Modified())
    assert settlements.end() == ([1], [2])
    settlements.on_disposition(answer(1, 2))
    settlements.add(3, 3)
    settlements.flush(link := Link())  # type: ignore[arg-type]
    assert (answered, link.settled) == ([], [(3, 3, ACCEPTED)])


@driven
async def test_the_oldest_unconfirmed_settlement_says_whether_the_peer_is_overdue() -> None:
    settlements = Settlements[int](lambda *_: None)
    assert not settlements.is_overdue(0.0)
    settlements.add(1, 1)
    settlements.flush(Link())  # type: ignore[arg-type]
    await asyncio.sleep(20.0)
    settlements.add(2, 2)
    settlements.flush(Link())  # type: ignore[arg-type]
    await asyncio.sleep(20.0)
    assert (settlements.is_overdue(30.0), settlements.is_overdue(40.0)) == (True, False)
    settlements.on_disposition(answer(1, 1))
    assert not settlements.is_overdue(30.0)
