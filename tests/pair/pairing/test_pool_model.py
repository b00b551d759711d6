"""The pool of asyncio senders under any order of calls, renewals, recalls and ends of openings."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from azure.servicebus.exceptions import ServiceBusError
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.pairing.aio.sender_pool import MAX_SENDERS, AsyncPooledSender, AsyncSenderPool, Tasks
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-66")


class Crowd:
    """Calls that come and go in any order while the pool is renewed and recalled, and openings end either way."""

    def __init__(self) -> None:
        self.made: list[Sender] = []
        self.tasks = Tasks()
        self.pool = AsyncSenderPool(self._make, self.tasks)  # type: ignore[arg-type]
        self.waiting: list[asyncio.Task[AsyncPooledSender]] = []
        self.held: list[AsyncPooledSender] = []
        self.renewed_at = -math.inf

    async def play(self, steps: list[str]) -> None:
        try:
            for step in steps:
                getattr(self, step)()
                await turns()
                self.check()
            while self.waiting:  # now the peer answers all, and no call keeps its link
                self.opened()
                self.released()
                await turns()
                self.check()
        finally:
            self.pool.close(now=True)
            self.tasks.cancel()
            await self.tasks.join(PATIENCE)

    def called(self) -> None:
        self.waiting.append(asyncio.ensure_future(self.pool.acquire(time.monotonic() + PATIENCE)))

    def cancelled(self) -> None:
        if self.waiting:
            self.waiting[0].cancel()

    def released(self) -> None:
        if self.held:
            self.pool.release(self.held.pop(0))

    def discarded(self) -> None:
        if self.held:
            self.pool.discard(self.held.pop(0))

    def released_and_cancelled(self) -> None:
        self.released()
        self.cancelled()

    def renewed(self) -> None:
        self.pool.renew()
        self.renewed_at = time.monotonic()

    def recalled(self) -> None:
        self.pool.recall()

    def opened(self) -> None:
        self._end_opening(None)

    def refused(self) -> None:
        self._end_opening(ServiceBusError("refused"))

    def check(self) -> None:
        """No call waits while there is room for it or nothing to wait for, and none is given a link of before."""
        for call in [call for call in self.waiting if call.done()]:
            self.waiting.remove(call)
            if call.cancelled() or call.exception() is not None:
                continue
            pooled = call.result()
            assert not pooled.is_retired
            assert pooled.opened_at > self.renewed_at
            self.held.append(pooled)
        assert len(self.waiting) == len(self.pool._waiters)
        if self.waiting:
            assert not any(pooled.has_room for pooled in self.pool._senders)
            assert self.pool._opening is not None or len(self.pool._senders) == MAX_SENDERS

    def _make(self) -> Sender:
        self.made.append(Sender(hangs=True))
        return self.made[-1]

    def _end_opening(self, error: Exception | None) -> None:
        sender = next((each for each in self.made if not each.gate.is_set()), None)
        if sender is not None:
            sender._error = error
            sender.gate.set()


STEPS = [
    name for name, step in vars(Crowd).items() if not name.startswith("_") and name not in ("play", "check")
]


@pytest.mark.slow
@pytest.mark.spec("R-5", "R-8")
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_whatever_happens_no_call_waits_in_vain_or_gets_a_link_from_before_a_renewal(
    steps: list[str],
) -> None:
    asyncio.run(Crowd().play(steps))
