"""One entity of the primary: can it take messages now, and what becomes of those given to it?

                 post                 attached                    held verdict
    CLOSED -----------> OPENING -----------------> OPEN -----------------------------> WAITING
       ^                   |                        ^  |                                 |
       |                   | refused for good       |  | detached while idle             | the back-off ends
       '-------------------'     one accepted       |  '--> CLOSED                       v
                                                    '------------------------------- PROBING

While it WAITS nothing goes out; then one message probes, and its acceptance lets the rest go. Every parcel
posted ends in exactly one of the calls of :class:`Origin`, unless it was taken back before.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sbpair.amqp.performatives import Condition, DeliveryState, Rejected

from .backoff import Backoff
from .errors import ConnectionLost, SyphonError, said
from .forward import Forward, Poison
from .link import Sender
from .verdict import Verdict, verdict_on, verdict_on_condition

FIRST_RETRY = 0.5  # seconds
FRESH = 0.5  # seconds for which what was left of a time to live counts as what is left


class Origin(Protocol):
    """Where a parcel came from: told what became of it."""

    def forwarded(self, parcel: Parcel) -> None: ...
    def refused(self, parcel: Parcel, condition: Condition | None) -> None: ...
    def held(self, parcel: Parcel) -> None: ...
    def resumed(self, parcel: Parcel) -> None: ...
    def doubted(self, parcel: Parcel) -> None: ...
    def spoiled(self, parcel: Parcel, poison: Poison) -> None: ...


@dataclass(slots=True, eq=False)
class Parcel:
    """A restored message on its way from a backlog delivery to a path."""

    origin: Origin
    delivery_id: int
    path: str
    payload: bytes
    posted_at: float  # seconds, monotonic
    lock_ends: float  # seconds, monotonic
    lock_span: float  # seconds
    tag: bytes  # the lock's token
    destination: Destination
    is_held: bool = False
    is_taken_back: bool = False
    message_format: int = 0
    again: Callable[[], Forward | Poison] | None = None  # with a deadline: restores it as of now
    restored_at: float = 0.0  # seconds, monotonic

    def may_go(self, now: float) -> bool:
        """Whether it is still ours to send: who slept through its lock finds out here (F-66).

        What waited with a deadline is given what is left of its time now, or none any more (G-15).
        """
        if now < self.lock_ends and not self.is_taken_back:
            return self._is_in_time(now)
        self.destination.passed_over(self)
        if not self.is_taken_back:
            self.origin.doubted(self)
        return False

    def _is_in_time(self, now: float) -> bool:
        if self.again is None or now < self.restored_at + FRESH:
            return True
        restored, self.restored_at = self.again(), now
        if isinstance(restored, Forward):
            self.payload = restored.payload
            return True
        self.destination.passed_over(self)
        self.origin.spoiled(self, restored)
        return False

    def answered(self, outcome: DeliveryState | None) -> None:
        self.destination.answered(self, outcome)


class DestinationState(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    WAITING = "waiting"
    PROBING = "probing"


CLOSED, OPENING, OPEN, WAITING, PROBING = DestinationState


class DestinationReporter(Protocol):
    """Who hears of a destination that stops, and of one that goes on."""

    def destination_held(self, path: str, reason: str, retry_in: float) -> None: ...
    def destination_resumed(self, path: str) -> None: ...


class Destination:
    """The sender to one path, shared by the pumps of all backlogs."""

    def __init__(
        self,
        path: str,
        open_sender: Callable[[str], Awaitable[Sender]],
        reporter: DestinationReporter,
        most_wait: float,
    ) -> None:
        self.path = path
        self.state = CLOSED
        self._open_sender = open_sender
        self._reporter = reporter
        self._backoff = Backoff(FIRST_RETRY, most_wait, random.random)
        self._queue: deque[Parcel] = deque()
        self._sender: Sender | None = None
        self._opening: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_stopped = False

    @property
    def is_open(self) -> bool:
        """Its link is attached."""
        return self._sender is not None and self._sender.is_open

    def post(self, parcel: Parcel) -> None:
        """Send ``parcel``, now or when the destination can take it."""
        if self.state is OPEN:
            self._transfer(parcel)
            return
        self._queue.append(parcel)
        if self.state in (WAITING, PROBING):
            self._mark_held(parcel)
        elif self.state is CLOSED:
            self._start_opening(OPENING)

    def stop(self) -> None:
        """Send nothing more, ever; what is queued is its origin's to give back."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._opening is not None:
            self._opening.cancel()
        self._queue.clear()

    def _transfer(self, parcel: Parcel) -> None:
        sender = self._sender
        if sender is None or not sender.is_open:
            self.state = CLOSED
            self._queue.append(parcel)
            self._start_opening(OPENING)
            return
        sender.transfer(parcel)

    def passed_over(self, parcel: Parcel) -> None:
        """``parcel`` did not go out: where it was the probe, the next one is."""
        if self.state is PROBING:
            asyncio.get_running_loop().call_soon(self._probe_again)

    def _probe_again(self) -> None:
        if self.state is PROBING:
            self._probe()

    def answered(self, parcel: Parcel, state: DeliveryState | None) -> None:
        """What became of ``parcel``; None when nobody knows."""
        verdict = verdict_on(state)
        if verdict is Verdict.HOLD:
            self._hold(parcel, _reason(state, self._sender))
            return
        if self.state is PROBING:
            self._resume()
        self._backoff.succeeded()
        if verdict is Verdict.COMPLETE:
            parcel.origin.forwarded(parcel)
        else:
            parcel.origin.refused(parcel, state.error if isinstance(state, Rejected) else None)

    def _hold(self, parcel: Parcel, reason: str) -> None:
        self._queue.append(parcel)
        self._mark_held(parcel)
        if self.state is not WAITING:
            self._wait(reason)

    def _mark_held(self, parcel: Parcel) -> None:
        if not parcel.is_held:
            parcel.is_held = True
            parcel.origin.held(parcel)

    def _mark_resumed(self, parcel: Parcel) -> None:
        if parcel.is_held:
            parcel.is_held = False
            parcel.origin.resumed(parcel)

    def _wait(self, reason: str) -> None:
        if self._is_stopped:
            return
        for parcel in list(self._queue):
            self._mark_held(parcel)
        self.state = WAITING
        span = self._backoff.failed()
        self._reporter.destination_held(self.path, reason, span)
        self._retry = asyncio.get_running_loop().call_later(span, self._probe)

    def _probe(self) -> None:
        if self._sender is None or not self._sender.is_open:
            self._start_opening(PROBING)
            return
        self.state = PROBING
        parcel = self._next()
        if parcel is None:
            self.state = OPEN  # all were given back; the next one posted is the probe
        else:
            self._mark_resumed(parcel)  # it is on its way: nobody may give it back now
            self._transfer(parcel)

    def _next(self) -> Parcel | None:
        while self._queue:
            parcel = self._queue.popleft()
            if not parcel.is_taken_back:
                return parcel
        return None

    def _resume(self) -> None:
        self.state = OPEN
        self._reporter.destination_resumed(self.path)
        self._send_queued()

    def _send_queued(self) -> None:
        queued, self._queue = self._queue, deque()
        for parcel in queued:
            if parcel.is_taken_back:
                continue
            self._mark_resumed(parcel)
            self.post(parcel)

    def _start_opening(self, state: DestinationState) -> None:
        if self._is_stopped:
            return
        self.state = state
        self._opening = asyncio.get_running_loop().create_task(self._open())
        self._opening.add_done_callback(lambda task: task.cancelled() or task.result())

    async def _open(self) -> None:
        try:
            self._sender = await self._open_sender(self.path)
        except ConnectionLost as error:
            self._wait(str(error))
        except SyphonError as error:
            self._refuse(error)
        else:
            if self.state is PROBING:
                self._probe()
            else:
                self.state = OPEN
                self._send_queued()

    def _refuse(self, error: SyphonError) -> None:
        """The link itself was refused: for good, or for now."""
        if verdict_on_condition(error.condition) is Verdict.HOLD:
            self._wait(str(error))
            return
        self.state = CLOSED
        queued, self._queue = self._queue, deque()
        for parcel in queued:
            if not parcel.is_taken_back:
                parcel.origin.refused(parcel, error.condition)


def _reason(state: DeliveryState | None, sender: Sender | None) -> str:
    if isinstance(state, Rejected):
        return said(state.error)
    if state is not None:
        return f"the message was answered with {type(state).__name__.lower()}"
    gone = sender.detached.result() if sender is not None and sender.detached.done() else None
    return f"the link was lost: {said(gone)}"
