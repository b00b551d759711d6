"""Sends of ordered sessions: through the open fence to the primary, or into the session's own backlog queue.

    fence open ------------------------------------------------> the primary, as any send
    fence closed: Peek, at most once a second; empty ----------> the primary
                                               else, or unknown  Attempt(ordered backlog) --accepted--> Stored
                                                                    |  unavailable: Pause, retry
                                                                    '--> Stranded: raised, or spooled

A session never changes its queue. Pure, as :mod:`.pair`, of which this is a part.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random

from sbpair.pair.envelope.ordering import SessionPlace, place_of

from ..events import FenceOpened, FenceUnproved, PairingEvent
from ..outcome import Failure, Refused, Stored, Stranded
from .backlogs import Room, SideBreaker, parked
from .fence import Fence, PeekRequest
from .retry import RetryPolicy
from .steps import (
    Attempt,
    CreateBacklog,
    Pause,
    Peek,
    Result,
    Retries,
    SendFlow,
    SendState,
    Step,
    last_cause,
    may_be_stale,
)

MAX_ATTEMPT_SECONDS = 10.0  # seconds that an attempt at an ordered backlog queue may take
MAX_PEEK_SECONDS = 5.0  # seconds that a peek may take of the time of a send


class OrderedSends:
    """The ordered backlog queues of one client, and their fence.

    They are numbered after the others: with ``count`` backlog queues, ordered queue i is backlog ``count + i``.
    Events are appended to ``events``.
    """

    def __init__(
        self,
        count: int,
        retry: RetryPolicy,
        rng: Random,
        events: list[PairingEvent],
        room: Room,
        secondary: SideBreaker,
    ) -> None:
        self._secondary = secondary
        self.fence = Fence(count)
        self._count = count
        self._retry, self._rng = retry, rng
        self._events = events
        self._room = room
        self._unproved: set[int] = set()  # queues whose last peek failed

    def place(self, path: str, session: str) -> SessionPlace:
        """Return the backlog queue and the parked id of this session."""
        return place_of(path, session, self._count)

    def pass_fence(self, send: SendState, now: float) -> Generator[Step, Result, tuple[float, bool]]:
        """Peek if that may open the fence. Returns the current time, and whether the message must be parked."""
        if send.session is None or self.fence.is_open:
            return now, False
        place = self.place(send.path, send.session)
        while (peek := self.fence.next_peek(place, now)) is not None and now < send.deadline:
            until = now + min(MAX_PEEK_SECONDS, (send.deadline - now) / 2)
            result = yield Peek(self._count + peek.queue, peek.parked_id, until)
            now = self._peek_answered(send, peek, result)
        return now, not self.fence.lets_pass(place)

    def _peek_answered(self, send: SendState, peek: PeekRequest, result: Result) -> float:
        backlog, classification = self._count + peek.queue, result.classification
        if classification is not None and not classification.is_missing:
            if peek.queue not in self._unproved:
                self._unproved.add(peek.queue)
                self._events.append(FenceUnproved(result.now, send.path, backlog, classification.why))
            return result.now
        self._unproved.discard(peek.queue)
        if result.is_empty or classification is not None:  # a queue that does not exist holds nothing
            opened = self.fence.note_empty_peek(peek)
            if opened:
                self._events.append(FenceOpened(result.now, send.path, backlog, opened))
        return result.now

    def park(self, send: SendState, session: str, now: float) -> SendFlow:
        """Park in the session's own queue; if that fails, the send fails."""
        place, me, is_trial = self.place(send.path, session), object(), self._secondary.is_open
        if not self._secondary.may_ask(now) and self._secondary.cause is not None:
            return Stranded((*send.causes, self._secondary.cause.again()))
        try:
            self.fence.park_began(place, me)
            return (yield from self._tried(send, self._count + place.queue, now, is_trial))
        finally:
            try:
                self.fence.park_ended(place, me)
            except BaseException:  # a signal's: the attempt has ended all the same
                self.fence.park_ended(place, me)
                raise

    def _tried(self, send: SendState, backlog: int, now: float, is_trial: bool) -> SendFlow:
        is_fresh = is_created = False
        retries = Retries(self._retry, self._rng)
        while True:
            until = max(now, min(send.deadline, now + MAX_ATTEMPT_SECONDS))
            result = yield Attempt(backlog, until, is_fresh, is_over_idle=is_trial)
            now, classification = result.now, result.classification
            if classification is None or result.accepted:
                self._events += parked(send, backlog, result, self._room)
            if classification is None:
                self._secondary.succeeded(now)
                return Stored(backlog, send.is_ambiguous)
            send.failed(result, classification)
            if may_be_stale(result, classification, send, now) and not (is_fresh or is_trial):
                is_fresh = True
                continue
            if classification.is_missing and not is_created and now < send.deadline:
                is_created = True
                created = yield CreateBacklog(backlog, send.deadline)
                now = created.now
                if created.error is None:
                    continue
                send.causes.append(created.error)
            if classification.failure is Failure.CALLER:
                return Refused(last_cause(send), True, classification.is_too_large, classification.failure)
            if classification.is_of_side:
                self._secondary.failed(backlog, last_cause(send), now, is_only=True)
            again = None if self._secondary.is_open else retries.next_at(now, send.deadline)
            if classification.failure is not Failure.UNAVAILABLE or again is None:
                return Stranded(tuple(send.causes))
            is_fresh = False
            now = (yield Pause(again)).now
