"""Sends into the backlog queues: which queue is chosen, and what the failure of one implies for the others.

    pick i: Attempt(backlog i) --accepted--> Stored
               |  busy: Pause, the same queue again
               |  it does not exist: CreateBacklog first
               |  message refused: withdraw i if another backlog accepts the message
               |  failed: withdraw i, and the next, unless the namespace fails as a whole
               '--> all failed: Stranded

Pure, as :mod:`.pair`, of which this is a part.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from ..events import BacklogFilling, BacklogReturned, BacklogWithdrawn, MessageParked, PairingEvent
from ..outcome import Failure, Refused, Stored, Stranded
from .patience import Patience, transfer_seconds, without_transfer
from .retry import busy_pause
from .room import Filling, Room
from .rotation import Rotation, SideBreaker
from .steps import Attempt, CreateBacklog, Pause, Result, SendFlow, SendState, Step, last_cause, may_be_stale

if TYPE_CHECKING:
    from random import Random

HURRY_SECONDS = 1.1  # where a spool takes the message; a peer that is silent for a second counts as failed
MAX_SHARE_SECONDS = 10.0  # seconds, where another queue is left
MIN_SHARE_SECONDS = 2.0  # seconds; with less time left, one backlog queue gets all of it


class _Declined(NamedTuple):
    """A backlog queue refused the message itself; if another accepts it, the queue is at fault."""

    at: float
    backlog: int
    why: str
    refused: Refused | None  # None if the primary rejected the message too: then it may be the cause


class BacklogSends:
    """The backlog queues of one client. Events are appended to ``events``."""

    def __init__(
        self,
        rotation: Rotation,
        rng: Random,
        events: list[PairingEvent],
        room: Room,
        secondary: SideBreaker,
        patience: Patience,
    ) -> None:
        self.rotation = rotation
        self.secondary = secondary
        self._patience = patience  # with the secondary, where there is a spool
        self._rng = rng
        self._events = events
        self._room = room
        self._withdrawn: dict[int, float] = {}  # the end of the last quarantine of each queue

    def park(self, send: SendState, now: float) -> SendFlow:
        """Park the message in one of the backlog queues."""
        tried: frozenset[int] = frozenset()
        declined: list[_Declined] = []
        is_trial = self.secondary.is_open
        if not self.secondary.may_ask(now) and self.secondary.cause is not None:
            return Stranded((*send.causes, self.secondary.cause.again()))
        while now < send.deadline or not tried:
            if tried and (self.secondary.is_open or (send.is_waited_for and send.has_side_failed)):
                break  # the namespace fails as a whole, not its queues
            backlog = self.rotation.pick(send.choice, now, tried)
            if backlog is None:
                break
            tried |= {backlog}
            is_last = len(tried) == len(self.rotation)
            outcome = yield from self._tried(send, backlog, now, is_last, is_trial)
            if isinstance(outcome, _Declined):
                declined.append(outcome)
                now = outcome.at
                continue
            if isinstance(outcome, (Stored, Refused)):
                if isinstance(outcome, Stored):
                    self._withdraw_decliners(send, declined)
                return outcome
            now = outcome
        if declined and len(declined) == len(tried):
            # all queues refused the message, so the message is the cause
            refused = declined[0].refused
            if refused is not None:
                return refused
        return Stranded(tuple(send.causes))

    def _withdraw_decliners(self, send: SendState, declined: list[_Declined]) -> None:
        """Withdraw the queues that refused a message which another one accepted."""
        for each in declined:
            self._withdraw(send, each.backlog, each.at, each.why)

    def _withdraw(self, send: SendState, backlog: int, now: float, why: str) -> None:
        until = self.rotation.failed(backlog, now)
        if self._withdrawn.get(backlog) != until:  # once for each quarantine
            self._withdrawn[backlog] = until
            self._events.append(BacklogWithdrawn(now, send.path, backlog, until, why))

    def _tried(
        self, send: SendState, backlog: int, now: float, is_last: bool, is_trial: bool
    ) -> Generator[Step, Result, Stored | Refused | _Declined | float]:
        """Try one backlog queue. Returns the current time if the queue failed.

        A trial while the secondary fails as a whole does not wait for a link.
        """
        is_fresh = is_created = False
        had_time, busy = now < send.deadline, 0
        while True:
            attempt = self._attempt(send, backlog, now, is_last, is_fresh, is_trial)
            self.rotation.begun(backlog, attempt.link_by)
            began, result = now, (yield attempt)
            now, classification = result.now, result.classification
            if classification is None:
                self._patience.answered(without_transfer(now - began - result.opening, result.size), now)
                self.secondary.succeeded(now)
                if self.rotation.succeeded(backlog, now):
                    self._events.append(BacklogReturned(now, send.path, backlog))
                self._events += parked(send, backlog, result, self._room)
                return Stored(backlog, send.is_ambiguous)
            if result.accepted:  # part of a batch was accepted before the failure
                self._events += parked(send, backlog, result, self._room)
            if may_be_stale(result, classification, send, now) and not (is_fresh or is_trial):
                send.doubt(classification)
                is_fresh = True
                continue
            if classification.is_missing and not is_created and now < send.deadline:
                send.doubt(classification)
                is_created = True
                created = yield CreateBacklog(backlog, _share(now, send.deadline, is_last))
                now = created.now
                if created.error is None:
                    continue
                send.causes.append(created.error)
                if created.classification is not None and created.classification.is_own:
                    return now  # no thread was free
            send.failed(result, classification)
            send.has_side_failed |= classification.is_of_side or classification.is_own
            if classification.failure is Failure.CALLER:
                refused = Refused(last_cause(send), True, classification.is_too_large, classification.failure)
                return (
                    refused
                    if classification.is_local
                    else _Declined(now, backlog, classification.why, refused)
                )
            if send.is_rejected and classification.is_of_message:
                return _Declined(now, backlog, classification.why, None)
            if classification.is_own:  # not the queue's fault; other sends may try it
                self.rotation.begun(backlog, now)
                return now
            if classification.failure is Failure.BUSY:
                again = now + busy_pause(self._rng, busy, classification.retry_after)
                busy += 1
                if again < send.deadline:  # another queue of a busy namespace would be busy too
                    now = (yield Pause(again)).now
                    continue
            if had_time and classification.is_of_side:
                is_only = len(self.rotation) == 1 or send.is_waited_for
                self.secondary.failed(backlog, last_cause(send), now, is_only=is_only)
            # a queue that is busy for some sends but accepts others works, only with too little room
            is_crowded = classification.failure is Failure.BUSY and self.rotation.accepts(backlog, now)
            if had_time and not is_crowded:  # an attempt without time is no evidence about the queue
                self._withdraw(send, backlog, now, classification.why)
            return now

    def _attempt(
        self, send: SendState, backlog: int, now: float, is_last: bool, is_fresh: bool, is_trial: bool
    ) -> Attempt:
        """An attempt at a backlog queue, shortened if a spool can accept the message instead."""
        until = _share(now, send.deadline, is_last)
        if not (send.can_spool or is_trial):
            return Attempt(backlog, until, is_fresh)
        longest = HURRY_SECONDS if send.is_waited_for else self._patience.longest
        answered = min(until, now + min(self._patience.seconds, longest) + transfer_seconds(send.size()))
        return Attempt(backlog, answered, is_fresh, min(until, now + longest), is_trial)


def parked(send: SendState, backlog: int, result: Result, room: Room) -> list[PairingEvent]:
    """Return the events of a backlog queue that accepted messages."""
    report = send.next_report(result.accepted)
    event = MessageParked(result.now, send.path, backlog, *report, result.size, send.reason.value)
    happened: list[PairingEvent] = [event]
    filling = room.parked(backlog, result.size, result.now)
    if filling is not None:
        happened.append(is_filling(filling, result.now))
    return happened


def is_filling(filling: Filling, now: float) -> BacklogFilling:
    """Return the event of a backlog queue that is filling up."""
    return BacklogFilling(now, "", filling.backlog, filling.size, filling.limit, filling.threshold)


def _share(now: float, deadline: float, is_last: bool) -> float:
    """Return the time limit for one backlog queue, which leaves time for the next if this one does not respond."""
    left = deadline - now
    if is_last or left <= MIN_SHARE_SECONDS:
        return deadline
    return now + min(max(left / 2, MIN_SHARE_SECONDS), MAX_SHARE_SECONDS)
