"""The backlog queues of one client: which one is chosen, how full each is, and the sends into them.

    pick i: Attempt(backlog i) --accepted--> Stored
               |  busy: Pause, the same queue again
               |  it does not exist: CreateBacklog first
               |  message refused: withdraw i if another backlog accepts the message
               |  failed: withdraw i, and the next, unless the namespace fails as a whole
               '--> all failed: Stranded

`Rotation` chooses, `SideBreaker` tells whether the secondary fails as a whole, `Room` measures, `BacklogSends` sends.
Pure, as :mod:`.pair`, of which this is a part.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from ..events import BacklogFilling, BacklogReturned, BacklogWithdrawn, MessageParked, PairingEvent
from ..outcome import Failure, Refused, RememberedFailure, Stored, Stranded
from .patience import Patience, transfer_seconds, without_transfer
from .retry import busy_pause
from .steps import (
    Attempt,
    Choice,
    CreateBacklog,
    Pause,
    Result,
    SendFlow,
    SendState,
    Step,
    last_cause,
    may_be_stale,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

FIRST_QUARANTINE, MAX_QUARANTINE_SECONDS = 5.0, 300.0
EVIDENCE = 60.0  # seconds for which a failure of the secondary says something about it
TRIAL_INTERVAL = 1.0  # seconds between two trials of it
SPAN = 10.0  # seconds in which two queues must have failed
QUIET = 1.0  # seconds in which no queue accepted a message
MIN_QUEUES = 2
THRESHOLDS = (0.9, 0.7)  # shares of the limit that are worth a warning
CALM_SHARE = 0.5  # below this share the warnings begin anew
CREATED_LIMIT = 5120 * 1024 * 1024  # bytes: the limit of the queues that sbpair creates
FIRST_LOOK, LOOK_EVERY = 60.0, 300.0  # seconds
JITTER = 0.25  # of trials and looks: a fleet parks at the same time
HURRY_SECONDS = 1.1  # where a spool takes the message; a peer that is silent for a second counts as failed
MAX_SHARE_SECONDS = 10.0  # seconds, where another queue is left
MIN_SHARE_SECONDS = 2.0  # seconds; with less time left, one backlog queue gets all of it


class _Quarantine:
    __slots__ = ("failures", "tried_until", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.failures = 0
        self.tried_until = -math.inf  # until then a sender may be trying it

    @property
    def ends(self) -> float:
        return max(self.until, self.tried_until)


class Rotation:
    """The choice of the queue in which a sender parks, and which queues are quarantined.

    Each sender picks its own queue at random, regardless of quarantines, and keeps it. A queue that fails is
    quarantined for all senders of the pairing, for 5 s, 10 s, 20 s ... up to 5 minutes; one success ends the series.
    During the quarantine, the queue's senders park in another queue. Later they return to their own, which restores the
    even distribution.

    After a quarantine, one sender at a time tries the queue while the others avoid it. If all queues have failed, the
    one whose quarantine ends first is tried; once any accepts, all quarantines end, because the namespace is available
    again.

    Queues with an index of ``count`` or more do not belong to it.
    """

    def __init__(self, count: int, rng: Random) -> None:
        self._count = count
        self._rng = rng
        self._out: dict[int, _Quarantine] = {}
        self._accepted_at: dict[int, float] = {}

    def __len__(self) -> int:
        return self._count

    def available(self, now: float) -> list[int]:
        """Return the indexes of the queues that are not quarantined, in ascending order."""
        return [index for index in range(self._count) if not self._is_out(index, now)]

    def pick(self, choice: Choice, now: float, tried: frozenset[int] = frozenset()) -> int | None:
        """Return the queue to try next; None when all are in ``tried``.

        The sender's own queue if available, else its substitute if available, else another one, chosen at random.
        """
        if choice.backlog is None:
            choice.backlog = self._rng.randrange(self._count)
        if choice.backlog not in tried and not self._is_out(choice.backlog, now):
            return choice.backlog
        fresh = [index for index in self.available(now) if index not in tried]
        if fresh and choice.stand_in not in fresh:
            choice.stand_in = self._rng.choice(fresh)
        if fresh:
            return choice.stand_in
        waiting = [index for index in range(self._count) if index not in tried]
        return min(waiting, key=lambda index: (self._out[index].ends, index), default=None)

    def begun(self, backlog: int, until: float) -> None:
        """Record that a sender tries this queue until ``until``; meanwhile others avoid it if it has failed before."""
        record = self._out.get(backlog)
        if record is not None:
            record.tried_until = until

    def failed(self, backlog: int, now: float) -> float:
        """Quarantine a queue and return the end of the quarantine.

        A failure reported during a quarantine is the same failure seen by another sender, and does not extend it.
        """
        record = self._out.setdefault(backlog, _Quarantine(until=now))
        record.tried_until = -math.inf
        if record.until <= now:
            record.failures += 1
            span = FIRST_QUARANTINE * 2.0 ** min(record.failures - 1, 16)  # bounded against overflow
            record.until = now + min(span, MAX_QUARANTINE_SECONDS)
        return record.until

    def succeeded(self, backlog: int, now: float) -> bool:
        """Record that a queue accepted a message; return whether that ended a series of failures."""
        self._accepted_at[backlog] = now
        if len(self._out) == self._count:
            for record in self._out.values():
                record.until = min(record.until, now)
        return self._out.pop(backlog, None) is not None

    def accepts(self, backlog: int, now: float) -> bool:
        """Whether a queue accepted a message within the last five seconds."""
        return now - self._accepted_at.get(backlog, -math.inf) <= FIRST_QUARANTINE

    def _is_out(self, backlog: int, now: float) -> bool:
        record = self._out.get(backlog)
        return record is not None and now < record.ends


class SideBreaker:
    """The breaker of the secondary: while it fails as a whole, only one send a second tries it.

    CLOSED ---two queues (or a send's only queue, twice) failed by a fault of the side, and none accepted---> OPEN
      ^                                                                         |  one trial a second
      '-----------------------------a queue accepted----------------------------'

    ``cause`` is its last failure while it is open.
    """

    def __init__(self, rng: Random) -> None:
        self.cause: RememberedFailure | None = None
        self._rng = rng
        self._failed: dict[int, float] = {}  # when each queue failed last, since the last success
        self._failures = 0  # of queues that were the only one of their send, since then
        self._accepted_at = -math.inf
        self._trial_at = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether the secondary counts as failing as a whole."""
        return self.cause is not None

    def was_silent(self, now: float) -> bool:
        """Whether the secondary fails as a whole, as far as known: a failure counts for a minute even without sends."""
        return self.cause is not None and now - max(self._failed.values(), default=-math.inf) <= EVIDENCE

    def may_ask(self, now: float) -> bool:
        """Whether a send may try the secondary now; while open, True for one send per trial."""
        if self.cause is None:
            return True
        if now < self._trial_at:
            return False
        self._schedule(now)
        return True

    def failed(self, backlog: int, cause: Exception | None, now: float, *, is_only: bool = False) -> None:
        """Record that a queue failed with an error of its side: connection, token, name or busy.

        ``is_only``: the send has no other queue to choose, or tries none because a spool takes the message.
        """
        self._failed[backlog] = now
        self._failures += is_only
        recent = max(sum(now - at <= SPAN for at in self._failed.values()), self._failures)
        if cause is not None and (self.cause is not None or self._is_silent(recent, now)):
            self.cause = RememberedFailure.of(cause)
            self._schedule(now)

    def succeeded(self, now: float) -> None:
        """Record that a queue accepted a message: the side is available."""
        self._failed.clear()
        self._failures = 0
        self.cause, self._accepted_at = None, now

    def _is_silent(self, recent: int, now: float) -> bool:
        return recent >= MIN_QUEUES and now - self._accepted_at > QUIET

    def _schedule(self, now: float) -> None:
        self._trial_at = now + TRIAL_INTERVAL * (1 + self._rng.uniform(-JITTER, JITTER))


class BacklogSize(NamedTuple):
    """A backlog queue as the service counts it; ``size`` and ``limit`` in bytes."""

    size: int
    limit: int
    messages: int


class BacklogLevel(NamedTuple):
    """The known fill level of a backlog queue: ``size`` and ``limit`` in bytes.

    If ``messages`` is None, the service has not counted, and ``size`` is what this process has parked.
    """

    size: int
    limit: int
    messages: int | None


class Filling(NamedTuple):
    """A backlog queue passed ``threshold``, a share of its limit."""

    backlog: int
    size: int
    limit: int
    threshold: float


class _Queue:
    __slots__ = ("counted", "parked", "warned")

    def __init__(self) -> None:
        self.parked = 0  # bytes, since the service was asked or the outage began
        self.counted: BacklogSize | None = None
        self.warned = 0.0

    @property
    def size(self) -> int:
        return self.parked + (0 if self.counted is None else self.counted.size)

    @property
    def limit(self) -> int:
        return CREATED_LIMIT if self.counted is None else self.counted.limit


class Room:
    """The fill levels of the backlog queues in which this process has parked messages.

        parked ---> size = parked since the outage began
                      |  a minute later, then every five: the service is asked, if the key has Manage
                      v
                    size = the service's count + parked since

    A warning is due when a queue passes 70 % of its limit, and again at 90 %.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._queues: dict[int, _Queue] = {}
        self._look_at: float | None = None
        self._is_over = self._is_refused = False

    def parked(self, backlog: int, size: int, now: float) -> Filling | None:
        """Record that a backlog queue accepted ``size`` bytes; return a warning that is due."""
        if (
            self._is_over
        ):  # a new outage: what is not counted has been drained, as far as this process can know
            self._queues = {key: each for key, each in self._queues.items() if each.counted is not None}
            self._is_over = False
        queue = self._queues.setdefault(backlog, _Queue())
        queue.parked += size
        if self._look_at is None and not self._is_refused:
            self._look_at = now + self._spread(FIRST_LOOK)
        return self._warning(backlog, queue)

    def outage_ended(self) -> None:
        """Record that every entity uses the primary again."""
        self._is_over = True

    def next_timer(self) -> float | None:
        """Return when to call :meth:`due` next; None for never."""
        return self._look_at

    def due(self, now: float) -> tuple[int, ...]:
        """Return the backlog queues whose sizes to ask the service for now."""
        if self._look_at is None or now < self._look_at:
            return ()
        self._look_at = now + self._spread(LOOK_EVERY)
        return tuple(self._queues)

    def measure(self, found: Mapping[int, BacklogSize]) -> list[Filling]:
        """Record the sizes of backlog queues as the service counts them; return the warnings that are due."""
        for backlog, size in found.items():
            queue = self._queues.setdefault(backlog, _Queue())
            queue.counted, queue.parked = size, 0
        if self._queues and all(each.counted and not each.counted.messages for each in self._queues.values()):
            self._look_at = None  # all are empty: the next parked message begins anew
        warnings = [self._warning(backlog, self._queues[backlog]) for backlog in found]
        return [each for each in warnings if each is not None]

    def refused(self) -> None:
        """Record that the key lacks the right to read the sizes: the service is not asked again."""
        self._look_at, self._is_refused = None, True

    def levels(self) -> dict[int, BacklogLevel]:
        """Return the known fill level of each backlog queue, by number."""
        return {
            backlog: BacklogLevel(
                each.size, each.limit, None if each.counted is None else each.counted.messages
            )
            for backlog, each in list(self._queues.items())
        }

    def _warning(self, backlog: int, queue: _Queue) -> Filling | None:
        share = queue.size / queue.limit
        if share < CALM_SHARE:
            queue.warned = 0.0
        passed = next((each for each in THRESHOLDS if share >= each), 0.0)
        if passed <= queue.warned:
            return None
        queue.warned = passed
        return Filling(backlog, queue.size, queue.limit, passed)

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + self._rng.uniform(-JITTER, JITTER))


class _Declined(NamedTuple):
    """A backlog queue refused the message itself; if another accepts it, the queue is at fault."""

    at: float
    backlog: int
    why: str
    refused: Refused | None  # None if the primary rejected the message too: then it may be the cause


class BacklogSends:
    """The sends into the backlog queues. Events are appended to ``events``."""

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
