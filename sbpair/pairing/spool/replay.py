"""Spooling and replay: how a client uses its spool.

    keep      write the messages of one send to the spool: checked, serialized, on disk when it returns
    replay    send the oldest messages of one entity again, as an ordinary send does, until none is left

While messages of an entity wait, new ones queue behind them, so each sender's messages stay in order. A message
is deleted after a broker has accepted it: a kill in between duplicates it, but loses nothing.

An acknowledged message is delivered by whichever route is open (R-2). One that the backlogs refuse for its size
or content waits for the primary, and later messages overtake it. Only a message that the primary entity itself
refuses for its content, or that cannot be read from disk or encoded, is set aside with the reason. Everything
else is retried.

Senders that never pause would keep the last few messages waiting forever. So when a replay in progress reaches
them, it holds the senders of the entity briefly; they then continue with direct sends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair.envelope import aliases, copies, park
from sbpair.envelope.names import path_key

from ..classify import is_about_content
from ..errors import SpoolError
from ..events import (
    BacklogReturned,
    EntityRecovered,
    MessageParked,
    PairingEvent,
    SpooledMessageRefused,
    SpoolReplayed,
)
from ..headroom import encoded_size
from ..options import PairedNamespaceOptions
from ..outcome import Failure, Outcome, Refused, Stored
from ..pair import CaughtUpError
from ..request import SendRequest, SpooledRequest
from ..rotation import Choice
from .codec import from_bytes, to_bytes
from .store import Entry, Spool, Spooled

_logger = logging.getLogger("sbpair")

FIRST_PAUSE, MAX_PAUSE_SECONDS = 1.0, 30.0  # seconds between two tries
MAX_CONCURRENT = 4  # entities replayed at a time
MAX_UNIT_MESSAGES = 64  # messages replayed as one batch
MAX_UNIT_BYTES = 128 * 1024
HOLD = 0.5  # seconds a sender waits for the last messages ahead of it
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


@dataclass(slots=True)
class _Line:
    """The replay state of one entity."""

    path: str
    due: float
    earliest: float  # bounds hurrying: no hot loop
    failures: int = 0
    is_under_way: bool = False
    is_hurried: bool = False


class ReplaySchedule:
    """Which entities have messages in the spool, and when to replay each.

    ``jitter`` returns a factor for each pause, so that many clients do not retry at the same instant. Times are
    seconds of a monotonic clock, passed in. Not thread-safe.

        nothing <--everything accepted-- under way --not accepted--> later (1 s, 2 s, 4 s ... 30 s)
           '-- a message was spooled --> later --due, or something recovered--> under way
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._lines: dict[str, _Line] = {}

    def spooled(self, path: str, now: float) -> None:
        """Record that a message of this entity was spooled."""
        if path_key(path) not in self._lines:
            self._lines[path_key(path)] = _Line(path, now + FIRST_PAUSE, earliest=now)

    def hurry(self, now: float, path: str | None = None) -> None:
        """Replay this entity soon, or (None) all of them, because something recovered."""
        for key, line in self._lines.items():
            if path is None or key == path_key(path):
                line.due = min(line.due, max(now, line.earliest))
                line.is_hurried = line.is_under_way

    def next_timer(self) -> float | None:
        """When to call :meth:`due` next; None for never."""
        waiting = [line.due for line in self._lines.values() if not line.is_under_way]
        is_busy = len(self._lines) - len(waiting) >= MAX_CONCURRENT
        return None if is_busy else min(waiting, default=None)

    def due(self, now: float) -> list[str]:
        """The entities to replay now. Call :meth:`finished` for each when its replay ends."""
        under_way = sum(line.is_under_way for line in self._lines.values())
        ready = sorted(
            (line for line in self._lines.values() if line.due <= now and not line.is_under_way),
            key=lambda line: line.due,
        )
        chosen = ready[: max(MAX_CONCURRENT - under_way, 0)]
        for line in chosen:
            line.is_under_way = True
        return [line.path for line in chosen]

    def finished(self, path: str, now: float, *, is_empty: bool, has_moved: bool) -> None:
        """Record the end of a replay: ``is_empty`` if no message is left, else one was not accepted.

        ``has_moved``: some messages were accepted, which resets the pause.
        """
        line = self._lines[path_key(path)]
        line.is_under_way = False
        if is_empty:
            del self._lines[path_key(path)]
            return
        line.failures = 0 if has_moved else line.failures + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(line.failures, 10), MAX_PAUSE_SECONDS)
        line.earliest = now + FIRST_PAUSE
        line.due = line.earliest if line.is_hurried else now + pause * self._jitter()
        line.is_hurried = False


class Spooling:
    """The spool of one client, and its replay. Thread-safe."""

    def __init__(
        self,
        spool: Spool,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
    ) -> None:
        self._spool = spool
        self._send_again = send_again
        self._emit = emit
        self._schedule = ReplaySchedule(lambda: rng.uniform(0.75, 1.25))
        self._lock = threading.Lock()  # guards the schedule and the holds
        self._lifted = threading.Condition(self._lock)
        self._holds: dict[str, float] = {}  # by entity: the time until which its senders wait for its replay
        self._choices: dict[str, Choice] = {}
        self._is_closed = False
        now = time.monotonic()
        for path in spool.senders():
            self._schedule.spooled(path, now)
        self._schedule.hurry(now)

    @classmethod
    def open(
        cls,
        options: PairedNamespaceOptions,
        primary: str,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
        *,
        is_read_later: bool = False,
    ) -> Self | None:
        """Open the spool of the options; None if they set none. Raises SpoolError."""
        if options.spool is None:
            return None
        spool = Spool(
            options.spool,
            primary=primary,
            max_messages=options.spool_max_messages,
            max_bytes=options.spool_max_bytes,
            is_read_later=is_read_later,
        )
        return cls(spool, send_again, emit, rng)

    def waiting(self, path: str | None = None) -> int:
        """Number of waiting messages, of one entity or of all."""
        return self._spool.waiting(path)

    def in_line(self, path: str) -> int:
        """Number of messages of this entity ahead of a new one."""
        return self._spool.in_line(path)

    def keep(self, path: str, request: SendRequest) -> None:
        """Write the messages of this request that no broker has accepted.

        Raises SpoolFullError; SpoolError; the SDK's exception for a message that cannot be encoded, since it could
        never be sent; and CaughtUpError when no message waits any more, after a hold.
        """
        self._wait_for_the_last(path)
        request.rewrite(path)
        entries = [_entry(*each) for each in request.unstored_messages()]
        if not self.waiting(path):
            _logger.warning("spooling messages for %s to %s", path, self._spool.path)
        self._spool.append(path, entries, time.time_ns() // 1_000_000)
        with self._lock:
            self._schedule.spooled(path, time.monotonic())

    def notify(self, happened: Sequence[PairingEvent]) -> None:
        """Replay sooner when events show that an entity or a backlog recovered."""
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
        """The entities to replay now, each by calling :meth:`replay` on its own worker."""
        with self._lock:
            return [] if self._is_closed else self._schedule.due(now)

    def not_started(self, path: str) -> None:
        """Reschedule a replay for which no worker was available."""
        self._finished(path, is_empty=False, has_moved=False)

    def replay(self, path: str) -> None:
        """Send the oldest messages of this entity until none is left or one is not accepted."""
        progress, has_moved, most = Progress.MOVED, False, MAX_UNIT_MESSAGES
        try:
            has_moved = self._replay_overtaken(path)
            while progress is Progress.MOVED and not self._is_closed:
                if has_moved and self.in_line(path) <= MAX_UNIT_MESSAGES:
                    self._hold(path)
                progress, most = self._replay_unit(path, most)
                has_moved = has_moved or progress is Progress.MOVED
        except Exception as error:  # the worker must not die
            progress = Progress.STOPPED
            if not self._is_closed:
                _logger.warning("the replay of %s stopped: %s: %s", path, type(error).__name__, error)
        finally:
            self._finished(path, is_empty=progress is Progress.EMPTY, has_moved=has_moved)

    def stop(self) -> None:
        """Start no further replays and end those in progress, because the client is closing."""
        self._is_closed = True

    def close(self) -> None:
        """Close the spool. Waiting messages stay in it for the next client."""
        self._is_closed = True
        self._spool.close()

    def left_open(self) -> None:
        """Log that :meth:`close` still waits for the disk while its client ends."""
        _logger.warning(
            "the disk does not answer: the spool %s stays in use until it does, or this process ends",
            self._spool.path,
        )

    def disown(self) -> None:
        """Stop using the spool in a forked child: it is the parent's."""
        self._is_closed = True
        self._spool.disown()

    # -- within

    def _replay_unit(self, path: str, most: int) -> tuple[Progress, int]:
        """Replay one batch of at most ``most`` messages; returns also the limit for the next batch."""
        return self._try(path, self._spool.oldest(path, most), SpooledRequest, most)

    def _replay_overtaken(self, path: str) -> bool:
        """Replay the overtaken messages one by one until one is not accepted; whether any was."""
        has_moved = False
        while not self._is_closed and (stored := self._spool.oldest_overtaken(path)) is not None:
            progress, _ = self._try(path, [stored], PrimaryOnlyRequest, 1)
            if progress is not Progress.MOVED:
                break
            has_moved = True
        return has_moved

    def _try(
        self, path: str, stored: Sequence[Spooled], kind: type[SpooledRequest], most: int
    ) -> tuple[Progress, int]:
        if not stored:
            return Progress.EMPTY, most
        messages, deadlines, broken = _unit(stored, time.time_ns() // 1_000_000)
        if not messages:
            self._refuse(path, stored[0], broken)
            return Progress.MOVED, most
        request = kind(messages[0] if len(messages) == 1 else list(messages), messages)
        request.deadlines = deadlines
        outcome = self._send_again(path, request, self._choices.setdefault(path_key(path), Choice()))
        if isinstance(outcome, Stored):
            stored_in = request.backlog_ends() or ((outcome.backlog, len(messages)),)
            self._accepted(path, stored, stored_in)
            return Progress.MOVED, min(2 * most, MAX_UNIT_MESSAGES)
        if request.parked:  # some chunks of a split batch
            self._accepted(path, stored, request.backlog_ends())
            return Progress.MOVED, most
        if self._is_closed:  # closing may be the cause
            return Progress.STOPPED, most
        if not (isinstance(outcome, Refused) and outcome.failure is Failure.CALLER):
            return Progress.STOPPED, most
        if len(messages) > 1:  # find the offending message by halving
            return Progress.MOVED, len(messages) // 2
        return self._handle_refusal(path, stored[0], request, outcome), most

    def _handle_refusal(
        self, path: str, stored: Spooled, request: SpooledRequest, outcome: Refused
    ) -> Progress:
        """Handle the refusal of a single message (R-2)."""
        message = copies.raw(request.messages[0])
        why = f"{type(outcome.error).__name__}: {outcome.error}"
        if outcome.is_parked and request.session is not None:  # O-5: nothing overtakes it
            return Progress.STOPPED
        if outcome.is_parked:  # a backlog queue refused the rewritten copy, not the original
            _logger.warning(
                "spooled message %s waits for the primary entity %s: %s", stored.message_id, path, why
            )
            self._spool.overtake(path, stored)
            return Progress.MOVED
        if is_about_content(outcome.error) or not _can_be_encoded(message):
            self._refuse(path, stored, why)
            return Progress.MOVED
        return Progress.STOPPED  # a garbled answer or a closed side: not caused by the message

    def _accepted(
        self, path: str, stored: Sequence[Spooled], stored_in: Iterable[tuple[int | None, int]]
    ) -> None:
        """Delete accepted messages. ``stored_in``: pairs of a backlog, or None for the primary, and an end index."""
        start = 0
        for backlog, end in stored_in:
            messages = stored[start:end]
            try:
                self._spool.delete(path, messages)
            except SpoolError as error:  # this process does not send them again (G-4)
                _logger.warning("cannot delete the replayed messages for %s from the spool: %s", path, error)
            left = self._spool.waiting(path)
            ids = tuple(message.message_id for message in messages)
            self._emit([SpoolReplayed(time.monotonic(), path, backlog, len(messages), left, ids)])
            start = end

    def _refuse(self, path: str, message: Spooled, why: str) -> None:
        why = " ".join(why.split())[:MAX_REASON_LENGTH]
        self._spool.refuse(path, message, why)
        self._emit([SpooledMessageRefused(time.monotonic(), path, message.message_id, why)])

    def _hold(self, path: str) -> None:
        with self._lock:
            self._holds[path_key(path)] = time.monotonic() + HOLD

    def _wait_for_the_last(self, path: str) -> None:
        has_waited = False
        with self._lifted:
            while (
                self.in_line(path) and (left := self._holds.get(path_key(path), 0.0) - time.monotonic()) > 0
            ):
                self._lifted.wait(left)
                has_waited = True
            if has_waited and not self.in_line(path):
                raise CaughtUpError

    def _finished(self, path: str, *, is_empty: bool, has_moved: bool) -> None:
        now = time.monotonic()
        with self._lifted:
            self._holds.pop(path_key(path), None)
            self._lifted.notify_all()
            # Checked under the lock, under which later messages are scheduled too.
            is_empty = is_empty and not self.waiting(path)
            self._schedule.finished(path, now, is_empty=is_empty, has_moved=has_moved)


def _entry(message: copies.Message, deadline: int | None) -> Entry:
    inner = park.with_deadline(message, deadline)
    encoded_size(inner)  # raises if the SDK cannot send it
    return Entry(park.message_id_of(message), to_bytes(inner))


def _can_be_encoded(message: AmqpAnnotatedMessage) -> bool:
    try:
        encoded_size(message)
    except Exception:  # of any type: the SDK cannot send it
        return False
    return True


def _unit(stored: Sequence[Spooled], now: int) -> tuple[list[AmqpAnnotatedMessage], list[int | None], str]:
    """The leading messages that fit one batch, their deadlines, and why the next one cannot be sent, or ""."""
    unit: list[AmqpAnnotatedMessage] = []
    deadlines: list[int | None] = []
    size = 0
    for each in stored:
        if not each.is_intact:
            return unit, deadlines, "damaged on disk: its checksum is wrong"
        try:
            message = from_bytes(each.message)
            deadline = park.take_deadline(message, now)
        except ValueError as error:
            return unit, deadlines, str(error)
        if deadline is not None and deadline <= now:  # neither delivered late nor dropped (G-15)
            return unit, deadlines, "TTLExpiredException: its time to live ended while it waited"
        size += len(each.message)
        if unit and (size > MAX_UNIT_BYTES or _placement(message) != _placement(unit[0])):
            break
        unit.append(message)
        deadlines.append(deadline)
    return unit, deadlines, ""


def _placement(message: AmqpAnnotatedMessage) -> tuple[object, object]:
    """Session and partition key: a batch has one of each."""
    annotations = message.annotations or {}
    name = aliases.ANNOTATION_PARTITION_KEY
    session = None if message.properties is None else message.properties.group_id
    return session, annotations.get(name, annotations.get(name.encode()))
