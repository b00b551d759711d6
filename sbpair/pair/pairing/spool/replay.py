"""Spooling and replay: how a client uses its spool.

    keep      write the messages of one send to the spool: checked, serialized, on disk when it returns
    replay    send the oldest messages of one entity again, as an ordinary send does, until none is left

While messages of an entity wait, new ones queue behind them, so each sender's messages stay in order. A message is
deleted after a broker has accepted it: a kill in between duplicates it, but loses nothing.

A message in the spool is delivered by whichever route is open. If the backlogs refuse it for its size or content, it
waits for the primary, and later messages overtake it. Only a message that the primary entity itself refuses for its
content, or that cannot be read from disk or encoded, is set aside with the reason. Everything else is retried.

With the policy "always", every message is written to the spool first, unless the entity is known to refuse it
(admission.py). A message for which there is no room is sent directly, unless older ones of its entity wait.

With the policy "last_resort", senders that never pause would keep the last few messages waiting forever. So when a
replay in progress reaches them, it holds the senders of the entity briefly; they then continue with direct sends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Self

from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair.pair.envelope import copies, park
from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.interruptible import Waiter

from ..decide.pair import CaughtUpError
from ..decide.steps import Choice
from ..errors import SpoolError, SpoolFullError
from ..events import (
    BacklogReturned,
    EntityRecovered,
    MessageParked,
    PairingEvent,
    SpooledMessageRefused,
    SpoolReplayed,
)
from ..options import PairedNamespaceOptions
from ..outcome import Failure, Outcome, Refused, Stored
from ..request.classify import is_about_content
from ..request.headroom import Headroom, encoded_size
from ..request.request import SendRequest, SpooledRequest
from ..shared.threads import Workers
from ..shared.time_limits import MOMENT
from .admission import Admission
from .codec import to_bytes
from .schedule import MAX_CONCURRENT, PAUSE, ReplaySchedule
from .store import Entry, Spool, Spooled
from .units import Unit, UnitReader, UnitSizes, unit_of
from .writer import Writer, Writing

_logger = logging.getLogger("sbpair")

HOLD = 0.5  # seconds a sender waits for the last messages ahead of it
LAST = 64  # messages for which it waits
MOVING = 0.5  # seconds after a replayed message in which a full spool may get room
LINGER = 0.2  # seconds that a replay waits for more, before its thread ends
MAX_REASON_LENGTH = 300  # characters

SendAgain = Callable[[str, SendRequest, Choice], Outcome]
"""Send the request to this path once, as an ordinary send, but never into the spool."""


class Progress(Enum):
    """The result of one unit of a replay."""

    EMPTY = "nothing is left"
    MOVED = "continue"
    STOPPED = "no broker accepts it now"


class PrimaryOnlyRequest(SpooledRequest):
    """A spooled message that no backlog queue accepts."""

    __slots__ = ()

    is_for_primary_only = True


class Spooling:
    """The spool of one client, and its replay. Thread-safe.

    ``admission`` is given if every message is written to the spool first. ``wake`` is called when the timer becomes due
    earlier than before.
    """

    def __init__(
        self,
        spool: Spool,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
        admission: Admission | None = None,
        *,
        keeps_order: bool = False,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self._spool = spool
        self._writer = Writer(spool, self._begin_anew)
        self._wake = wake
        self._send_again = send_again
        self._emit = emit
        self._admission = admission
        self._keeps_order = keeps_order
        pause = PAUSE if admission is None else 0.0
        self._schedule = ReplaySchedule(lambda: rng.uniform(0.75, 1.25), pause)
        self._lock = threading.Lock()  # guards the schedule, the holds and the writes
        self._lifted = threading.Condition(self._lock)
        self._holds: dict[str, float] = {}  # by entity: the time until which its senders wait for its replay
        self._writes: Counter[tuple[str, str]] = Counter()  # under way, by entity and ordered session
        self._moved_at = float("-inf")  # when a broker accepted a message last
        self._paths: dict[str, str] = {}  # as their senders write them
        self._choices: dict[str, Choice] = {}
        self._causes: dict[str, str] = {}  # by entity: why its last messages were not accepted
        self._sizes: dict[str, UnitSizes] = {}
        self._unmixed: set[str] = set()  # entities that may refuse batches with several keys
        self._readers = Workers(MAX_CONCURRENT)
        self._is_closed = False
        if spool.absence is not None:
            _logger.error(
                "the client runs without room in its spool until it can be written: %s", spool.absence
            )
        if spool.absence is not None or admission is not None:
            self._writer.start()
        self._schedule_all()

    def _schedule_all(self) -> None:
        now = time.monotonic()
        with self._lock:
            for path in self._spool.senders():
                self._schedule.spooled(path, now)
            self._schedule.hurry(now)

    def _begin_anew(self) -> None:
        """Send the messages that an earlier client left in the file, which has become available."""
        self._schedule_all()
        self._wake()

    @property
    def takes_messages(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self._spool.takes_messages

    @classmethod
    def open(
        cls,
        options: PairedNamespaceOptions,
        primary: str,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
        *,
        headroom: Headroom | None = None,
        is_read_later: bool = False,
        wake: Callable[[], object] = lambda: None,
    ) -> Self | None:
        """Open the spool of the options; return None if they name none. Raises SpoolError."""
        if options.spool is None:
            return None
        spool = Spool(
            options.spool,
            primary=primary,
            max_messages=options.spool_max_messages,
            max_bytes=options.spool_max_bytes,
            is_read_later=is_read_later,
            may_be_absent=True,
        )
        admission = None
        if options.spool_policy == "always":
            admission = Admission(headroom or Headroom(), refuses_unparkable=options.headroom == "refuse")
        is_ordered = options.ordering == "session"
        return cls(spool, send_again, emit, rng, admission, keeps_order=is_ordered, wake=wake)

    def waiting(self, path: str | None = None) -> int:
        """Number of waiting messages, of one entity or of all."""
        return self._spool.waiting(path)

    def depth(self) -> dict[str, float]:
        """The number of waiting messages by entity; 0 for entities whose messages have left."""
        return {self._paths.get(key, key): count for key, count in self._spool.depth().items()}

    def in_line(self, path: str) -> int:
        """Return the number of messages of this entity that would be ahead of a new one."""
        return self._spool.in_line(path)

    def takes_first(self, path: str, session: str | None = None, *, wants_numbers: bool = False) -> bool:
        """Whether a send writes to the spool before it tries anything else.

        With the policy "always", it does unless the caller wants sequence numbers, which only the primary has.
        Otherwise it does when older messages of the entity wait, or when a slow disk has not finished the writes of an
        ordered ``session``.
        """
        if self._admission is not None:
            return not wants_numbers
        return self.in_line(path) > 0 or (session is not None and self._writes[path_key(path), session] > 0)

    def linked(self, path: str, limit: int | None) -> None:
        """Record the size limit of an opened link to the primary entity."""
        if self._admission is not None:
            self._admission.linked(path, limit)

    def keep(self, path: str, request: SendRequest, *, is_first: bool) -> Iterator[Writing | None]:
        """Write the messages of this request that no broker has accepted; they are on disk when it ends.

        Yields each write to wait for. Yields None to wait a moment: for the last messages ahead of these, or for room.

        Raises SpoolFullError; SpoolError; the SDK's exception for a message that cannot be encoded, since it could
        never be sent. With ``is_first`` also the error for a message that the entity is known to refuse, and
        CaughtUpError when no message waits ahead of these and they can be sent directly: because there is no room for
        them, or only the entity can tell whether they are too large.
        """
        while True:
            if is_first and self._admission is None:
                if not self.takes_first(path, request.session):
                    raise CaughtUpError
                if self._is_held(path):
                    yield None
                    continue
            try:
                writing = self._begin(path, request, self._admission if is_first else None)
                yield writing
                writing.check()
            except SpoolError as error:
                is_alone = is_first and not self.in_line(path)
                if isinstance(error, SpoolFullError) and not is_alone and self._may_get_room():
                    yield None
                    continue
                if is_alone:
                    raise CaughtUpError from error
                raise
            return

    def notify(self, happened: Sequence[PairingEvent]) -> None:
        """Replay earlier than planned when events show that an entity or a backlog recovered."""
        with self._lock:
            for event in happened:
                match event:
                    case EntityRecovered():
                        self._schedule.hurry(event.at, event.path)
                    case BacklogReturned() | MessageParked():
                        self._schedule.hurry(event.at)

    def next_timer(self) -> float | None:
        """When to call :meth:`due` next; None for never."""
        with self._lock:
            return None if self._is_closed else self._schedule.next_timer()

    def due(self, now: float) -> list[str]:
        """Return the entities to replay now, each by a call of :meth:`replay` on its own worker."""
        with self._lock:
            return [] if self._is_closed else self._schedule.due(now)

    def not_started(self, path: str) -> None:
        """Reschedule a replay for which no worker was available."""
        self._finished(path, Progress.STOPPED)

    def replay(self, path: str) -> None:
        """Send the oldest messages of this entity until none is left or one is not accepted."""
        progress, has_moved = Progress.MOVED, False
        reader = UnitReader(self._spool, path, self._readers, lambda: self._is_mixed(path))
        try:
            has_moved = self._replay_overtaken(path)
            while progress is Progress.MOVED and not self._is_closed:
                if has_moved and self._admission is None and self.in_line(path) <= LAST:
                    self._hold(path)
                progress = self._replay_unit(path, reader)
                if progress is Progress.EMPTY and self._is_followed(path):
                    progress = Progress.MOVED
                has_moved = has_moved or progress is Progress.MOVED
        except Exception as error:  # the worker must not die
            progress = Progress.STOPPED
            if not self._is_closed:
                _logger.warning("the replay of %s stopped: %s: %s", path, type(error).__name__, error)
        finally:
            if progress is Progress.STOPPED:
                self._sizes_of(path).stopped()
            self._finished(path, progress)

    def drain(self, seconds: float) -> None:
        """With the policy "always", wait up to ``seconds`` until all messages are sent, while brokers accept them."""
        if self._admission is None:
            return
        until, moment = time.monotonic() + seconds, Waiter()
        while self.waiting() and self._is_moving() and time.monotonic() < until:
            moment.wait(MOMENT)
        if left := self.waiting():
            _logger.warning("%s messages stay in the spool %s for the next client", left, self._spool.path)

    def stop(self) -> None:
        """Start no further replays and end those in progress, because the client is closing."""
        with self._lock:
            self._is_closed = True
            self._lifted.notify_all()

    def close(self) -> None:
        """Close the spool. Waiting messages stay in it for the next client."""
        self.stop()
        self._writer.stop()
        self._spool.close()

    def left_open(self) -> None:
        """Log that :meth:`close` still waits for the disk although the client ends."""
        _logger.warning(
            "the disk does not answer: the spool %s stays in use until it does, or this process ends",
            self._spool.path,
        )

    def disown(self) -> None:
        """Stop using the spool in a forked child, because it belongs to the parent."""
        self._is_closed = True
        self._spool.disown()

    # -- keeping

    def _begin(self, path: str, request: SendRequest, admission: Admission | None) -> Writing:
        request.rewrite(path)
        entries = [self._entry(path, *each, admission) for each in request.unstored_messages()]
        if self._admission is None and not self.waiting(path):
            _logger.warning("spooling messages for %s to %s", path, self._spool.path)
        self._paths[path_key(path)] = path
        writing = Writing(self._writer, partial(self._write_ended, path, request.session))
        if request.session is not None:  # until it ends, its outcome is unknown
            with self._lock:
                self._writes[path_key(path), request.session] += 1
        writing.begin(path, entries)
        return writing

    def _write_ended(self, path: str, session: str | None, error: SpoolError | None) -> None:
        with self._lock:
            if session is not None:
                self._writes[path_key(path), session] -= 1
                self._writes += Counter()  # drops counts of zero
            is_sooner = error is None and self._schedule.spooled(path, time.monotonic())
            self._lifted.notify_all()
        if is_sooner:
            self._wake()

    def _entry(
        self, path: str, message: copies.Message, deadline: int | None, admission: Admission | None
    ) -> Entry:
        entry, size = entry_of(message, deadline)
        if admission is not None:
            if admission.is_in_doubt(path, size) and not self.in_line(path):
                raise CaughtUpError
            admission.check(path, message, size, deadline, time.monotonic())
        return entry

    def _is_held(self, path: str) -> bool:
        """Whether a new message of this entity must wait, because a replay is about to send the last ones."""
        with self._lock:
            return self._holds.get(path_key(path), 0.0) > time.monotonic() and self.in_line(path) > 0

    def _may_get_room(self) -> bool:
        """Whether a full spool may soon have room, because brokers accept its messages."""
        return time.monotonic() < self._moved_at + MOVING

    # -- replaying

    def _replay_unit(self, path: str, reader: UnitReader) -> Progress:
        """Replay one batch, and read the next meanwhile."""
        sizes = self._sizes_of(path)
        unit = reader.next(sizes.next())
        if unit is None:
            return Progress.EMPTY
        reader.read_ahead(unit, sizes.next())
        progress, count = self._try(path, unit, SpooledRequest)
        if count < len(unit.stored):
            reader.drop()
        return progress

    def _replay_overtaken(self, path: str) -> bool:
        """Replay the overtaken messages one by one until one is not accepted; return whether any was."""
        has_moved = False
        while not self._is_closed and (stored := self._spool.oldest_overtaken(path)) is not None:
            unit = unit_of([stored], time.time_ns() // 1_000_000, is_mixed=False)
            if self._try(path, unit, PrimaryOnlyRequest)[0] is not Progress.MOVED:
                break
            has_moved = True
        return has_moved

    def _try(self, path: str, unit: Unit, kind: type[SpooledRequest]) -> tuple[Progress, int]:
        """Send a unit; return its progress, and how many of its messages left the queue."""
        stored, sizes = unit.stored, self._sizes_of(path)
        if not unit.messages:
            self._refuse(path, stored[0], unit.broken)
            return Progress.MOVED, 1
        request = unit.request(kind)
        outcome = self._send_again(path, request, self._choices.setdefault(path_key(path), Choice()))
        if isinstance(outcome, Stored):
            self._accepted(path, stored, request.backlog_ends() or ((outcome.backlog, len(stored)),))
            sizes.accepted(len(stored))
            return Progress.MOVED, len(stored)
        if request.parked:  # some chunks of a split batch
            self._accepted(path, stored, request.backlog_ends())
            sizes.accepted(request.parked)
            return Progress.MOVED, request.parked
        self._causes[path_key(path)] = outcome.cause
        if self._is_closed:  # closing may be the cause
            return Progress.STOPPED, 0
        if not (isinstance(outcome, Refused) and outcome.failure is Failure.CALLER):
            return Progress.STOPPED, 0
        if unit.is_mixed:  # which a partitioned entity refuses
            self._unmixed.add(path_key(path))
            return Progress.MOVED, 0
        if len(stored) > 1:  # find the offending message by halving
            sizes.refused(len(stored))
            return Progress.MOVED, 0
        progress = self._handle_refusal(path, stored[0], request, outcome)
        if progress is Progress.MOVED:
            sizes.found()
            self._unmixed.discard(path_key(path))
        return progress, 1

    def _handle_refusal(
        self, path: str, stored: Spooled, request: SpooledRequest, outcome: Refused
    ) -> Progress:
        """Handle the refusal of a single message."""
        message = copies.raw(request.messages[0])
        why = f"{type(outcome.error).__name__}: {outcome.error}"
        if outcome.is_parked and request.session is not None:  # nothing overtakes it
            return Progress.STOPPED
        if outcome.is_parked:  # a backlog queue refused the rewritten copy, not the original
            _logger.warning(
                "spooled message %s waits for the primary entity %s: %s", stored.message_id, path, why
            )
            self._spool.overtake(path, stored)
            return Progress.MOVED
        if is_about_content(outcome.error) or not _can_be_encoded(message):
            if self._admission is not None:
                self._admission.refused(path, message, outcome.error, time.monotonic())
            self._refuse(path, stored, why)
            return Progress.MOVED
        return Progress.STOPPED  # a garbled answer or a closed side: not caused by the message

    def _accepted(
        self, path: str, stored: Sequence[Spooled], stored_in: Iterable[tuple[int | None, int]]
    ) -> None:
        """Delete accepted messages. ``stored_in``: pairs of a backlog (None for the primary) and an end index."""
        start = 0
        for backlog, end in stored_in:
            messages = stored[start:end]
            self._spool.accepted(path, messages)
            self._writer.tidy()
            left = self._spool.waiting(path)
            ids = tuple(message.message_id for message in messages)
            now = time.monotonic()
            with self._lock:
                self._moved_at = now
                is_back = self._schedule.accepted(path, now)
                self._lifted.notify_all()
            if is_back:
                _logger.warning("messages for %s leave the spool again; %s wait", path, left)
            self._emit([SpoolReplayed(now, path, backlog, len(messages), left, ids)])
            start = end

    def _refuse(self, path: str, message: Spooled, why: str) -> None:
        why = " ".join(why.split())[:MAX_REASON_LENGTH]
        self._spool.refuse(path, message, why)
        self._emit([SpooledMessageRefused(time.monotonic(), path, message.message_id, why)])

    def _sizes_of(self, path: str) -> UnitSizes:
        return self._sizes.setdefault(path_key(path), UnitSizes())

    def _is_mixed(self, path: str) -> bool:
        """Whether a batch may contain messages of several sessions or partition keys."""
        return not self._keeps_order and path_key(path) not in self._unmixed

    def _is_followed(self, path: str) -> bool:
        """Wait a moment for more messages, with the policy "always"; return whether one came."""
        until = time.monotonic() + LINGER
        with self._lock:
            while self._admission is not None and not (self._is_closed or self.in_line(path)):
                if self._schedule.is_crowded or not self._lifted.wait(until - time.monotonic()):
                    break
            return self.in_line(path) > 0

    def _is_moving(self) -> bool:
        with self._lock:
            return self._schedule.is_moving and not self._is_closed

    def _hold(self, path: str) -> None:
        with self._lock:
            self._holds[path_key(path)] = time.monotonic() + HOLD

    def _finished(self, path: str, progress: Progress) -> None:
        now = time.monotonic()
        with self._lock:
            self._holds.pop(path_key(path), None)
            self._lifted.notify_all()
            # Checked under the lock, under which later messages are scheduled too.
            is_empty = not self.waiting(path)
            was_accepted = progress is not Progress.STOPPED and (is_empty or self.in_line(path) > 0)
            is_stuck = self._schedule.finished(path, now, is_empty=is_empty, was_accepted=was_accepted)
        if is_stuck and not self._is_closed:
            cause = self._causes.get(path_key(path), "")
            _logger.warning("messages for %s wait in the spool %s: %s", path, self._spool.path, cause)


def entry_of(message: copies.Message, deadline: int | None) -> tuple[Entry, int]:
    """Return a message as it is stored, and its size as the SDK encodes it. Raises the SDK's error if it cannot."""
    inner = park.with_deadline(message, deadline)
    size = encoded_size(inner)
    return Entry(copies.message_id_of(message), to_bytes(inner)), size


def _can_be_encoded(message: AmqpAnnotatedMessage) -> bool:
    try:
        encoded_size(message)
    except Exception:  # of any type: the SDK cannot send it
        return False
    return True
