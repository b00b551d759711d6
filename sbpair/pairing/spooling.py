"""What does a client do with its spool?

    keep      the messages of one send: checked, encoded, on the disk when it returns
    replay    the oldest messages of one entity, by the ordinary way of a send, until none is left

Of one entity, whatever is sent while older messages wait goes behind them, so what one sender sends stays in
order. A message is deleted after a broker has accepted it: a kill in between repeats it, and loses nothing.
One that no broker will ever accept is set aside with the reason.

Senders that never pause would keep the last few messages waiting for ever. So when a replay that gets on
comes to them, senders of the entity are held back for a moment, and go on the direct way.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from . import aliases, envelope
from .batch import Cargo, SpooledCargo
from .errors import SpoolError
from .events import (
    BacklogReturned,
    EntityRecovered,
    MessageParked,
    PairingEvent,
    SpooledMessageRefused,
    SpoolReplayed,
)
from .failure import Failure
from .names import path_key
from .options import PairedNamespaceOptions
from .pair import CaughtUp, Landing, Refused, Rested
from .rotation import Choice
from .spool import Entry, Spool, Spooled
from .spool_codec import from_bytes, to_bytes
from .spool_schedule import ReplaySchedule

_logger = logging.getLogger("sbpair")

MOST_IN_UNIT = 64  # messages that are replayed as one batch
MOST_BYTES_IN_UNIT = 128 * 1024
HOLD = 0.5  # seconds a sender waits for the last messages before it
LONGEST_REASON = 300
_NO_LIMIT = 2**40  # bytes, of a batch that is never sent

SendAgain = Callable[[str, Cargo, Choice], Landing]
"""Send the cargo to this path by the ordinary way, once; never into the spool."""


class Progress(Enum):
    """How one unit of a replay ended."""

    EMPTY = "nothing waits any more"
    MOVED = "go on"
    STOPPED = "no broker takes it now"


class Spooling:
    """The spool of one client, and its replay. Thread-safe."""

    def __init__(
        self,
        spool: Spool,
        send_again: SendAgain,
        tell: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
    ) -> None:
        self._spool = spool
        self._send_again = send_again
        self._tell = tell
        self._schedule = ReplaySchedule(lambda: rng.uniform(0.75, 1.25))
        self._lock = threading.Lock()  # around the schedule and the holds
        self._lifted = threading.Condition(self._lock)
        self._holds: dict[str, float] = {}  # until when senders of an entity wait for its replay
        self._choices: dict[str, Choice] = {}
        self._is_closed = False
        now = time.monotonic()
        for path in spool.senders():
            self._schedule.spooled(path, now)
        self._schedule.hurry(now)

    @classmethod
    def opened(
        cls,
        options: PairedNamespaceOptions,
        primary: str,
        send_again: SendAgain,
        tell: Callable[[Sequence[PairingEvent]], object],
        rng: random.Random,
    ) -> Self | None:
        """With the spool that the options name; None when they name none. Raises SpoolError."""
        if options.spool is None:
            return None
        spool = Spool(
            options.spool,
            primary=primary,
            max_messages=options.spool_max_messages,
            max_bytes=options.spool_max_bytes,
        )
        return cls(spool, send_again, tell, rng)

    def waiting(self, path: str | None = None) -> int:
        """How many messages wait, for this entity or for all. While some do, newer ones go behind them."""
        return self._spool.waiting(path)

    def keep(self, path: str, cargo: Cargo) -> None:
        """Write what no broker has accepted of this cargo.

        Raises SpoolFullError, SpoolError, and what the SDK raises for a message that cannot be encoded:
        one that could never be sent is not accepted here either. CaughtUp when nothing waits any more,
        after a hold.
        """
        self._wait_for_the_last(path)
        cargo.rewrite(path)
        entries = [_entry(*each) for each in cargo.unparked_until()]
        if not self.waiting(path):
            _logger.warning("messages for %s wait in the spool %s", path, self._spool.path)
        self._spool.append(path, entries, time.time_ns() // 1_000_000)
        with self._lock:
            self._schedule.spooled(path, time.monotonic())

    def hear(self, happened: Sequence[PairingEvent]) -> None:
        """What happened to the pairing, and whether it is a reason to hurry."""
        with self._lock:
            for event in happened:
                match event:
                    case EntityRecovered():
                        self._schedule.hurry(event.at, event.path)
                    case BacklogReturned() | MessageParked():
                        self._schedule.hurry(event.at)

    def next_timer(self) -> float | None:
        """When :meth:`due` wants to be called; None for never."""
        with self._lock:
            return None if self._is_closed else self._schedule.next_timer()

    def due(self, now: float) -> list[str]:
        """The entities to replay now; each on a worker of its own, by :meth:`replay`."""
        with self._lock:
            return [] if self._is_closed else self._schedule.due(now)

    def not_started(self, path: str) -> None:
        """There was no worker for this replay."""
        self._finished(path, is_empty=False, has_moved=False)

    def replay(self, path: str) -> None:
        """Send the oldest messages of this entity again until none is left, or one is not accepted."""
        progress, has_moved, most = Progress.MOVED, False, MOST_IN_UNIT
        try:
            while progress is Progress.MOVED and not self._is_closed:
                if has_moved and self.waiting(path) <= MOST_IN_UNIT:
                    self._hold(path)
                progress, most = self._replay_unit(path, most)
                has_moved = has_moved or progress is Progress.MOVED
        except Exception as error:  # the outermost loop of a worker
            progress = Progress.STOPPED
            if not self._is_closed:
                _logger.warning("the replay of %s stopped: %s: %s", path, type(error).__name__, error)
        finally:
            self._finished(path, is_empty=progress is Progress.EMPTY, has_moved=has_moved)

    def stop(self) -> None:
        """The client is being closed: no replay begins, and none goes on."""
        self._is_closed = True

    def close(self) -> None:
        """Give the file back; what waits in it waits for the next client."""
        self._is_closed = True
        self._spool.close()

    def disown(self) -> None:
        """In a forked child: the spool is the parent's."""
        self._is_closed = True
        self._spool.disown()

    # -- within

    def _replay_unit(self, path: str, most: int) -> tuple[Progress, int]:
        """One batch of the oldest messages, ``most`` at most; and how many the next may hold."""
        stored = self._spool.oldest(path, most)
        if not stored:
            return Progress.EMPTY, most
        messages, deadlines, broken = _unit(stored, time.time_ns() // 1_000_000)
        if not messages:
            self._set_aside(path, stored[0], broken)
            return Progress.MOVED, most
        cargo = SpooledCargo(messages[0] if len(messages) == 1 else list(messages), messages)
        cargo.deadlines = deadlines
        landing = self._send_again(path, cargo, self._choices.setdefault(path_key(path), Choice()))
        if isinstance(landing, Rested):
            rests = cargo.rests() or ((landing.backlog, len(messages)),)
            self._accepted(path, stored, rests)
            return Progress.MOVED, min(2 * most, MOST_IN_UNIT)
        if cargo.parked:  # some chunks of a batch that had to be split
            self._accepted(path, stored, cargo.rests())
            return Progress.MOVED, most
        if self._is_closed:  # whatever was refused, the closing refused it
            return Progress.STOPPED, most
        if isinstance(landing, Refused) and landing.failure is Failure.CALLER:
            if len(messages) > 1:  # which of them, and does it fit alone?
                return Progress.MOVED, len(messages) // 2
            self._set_aside(path, stored[0], f"{type(landing.error).__name__}: {landing.error}")
            return Progress.MOVED, most
        return Progress.STOPPED, most

    def _accepted(
        self, path: str, stored: Sequence[Spooled], rests: Iterable[tuple[int | None, int]]
    ) -> None:
        """``rests``: a backlog, or None for the primary, and up to which message that accepted them."""
        start = 0
        for backlog, end in rests:
            messages = stored[start:end]
            try:
                self._spool.delete(path, messages)
            except SpoolError as error:  # they are not sent again in this process (G-4)
                _logger.warning("what was replayed for %s is in the spool still: %s", path, error)
            left = self._spool.waiting(path)
            ids = tuple(message.message_id for message in messages)
            self._tell([SpoolReplayed(time.monotonic(), path, backlog, len(messages), left, ids)])
            start = end

    def _set_aside(self, path: str, message: Spooled, why: str) -> None:
        why = " ".join(why.split())[:LONGEST_REASON]
        self._spool.set_aside(path, message, why)
        self._tell([SpooledMessageRefused(time.monotonic(), path, message.message_id, why)])

    def _hold(self, path: str) -> None:
        with self._lock:
            self._holds[path_key(path)] = time.monotonic() + HOLD

    def _wait_for_the_last(self, path: str) -> None:
        has_waited = False
        with self._lifted:
            while (
                self.waiting(path) and (left := self._holds.get(path_key(path), 0.0) - time.monotonic()) > 0
            ):
                self._lifted.wait(left)
                has_waited = True
            if has_waited and not self.waiting(path):
                raise CaughtUp

    def _finished(self, path: str, *, is_empty: bool, has_moved: bool) -> None:
        now = time.monotonic()
        with self._lifted:
            self._holds.pop(path_key(path), None)
            self._lifted.notify_all()
            # Asked under the lock: what is written later is scheduled under it too.
            is_empty = is_empty and not self.waiting(path)
            self._schedule.finished(path, now, is_empty=is_empty, has_moved=has_moved)


def _entry(message: envelope.Message, deadline: int | None) -> Entry:
    inner = envelope.with_deadline(message, deadline)
    # The SDK's own encoder says whether it can be sent; it decodes byte strings in place, so: a copy.
    ServiceBusMessageBatch(_NO_LIMIT).add_message(envelope.snapshot(inner))
    return Entry(envelope.message_id_of(message), to_bytes(inner))


def _unit(stored: Sequence[Spooled], now: int) -> tuple[list[AmqpAnnotatedMessage], list[int | None], str]:
    """The first messages that can go as one batch, restored, and until when each is of use.

    And why the next one cannot go at all, if so.
    """
    unit: list[AmqpAnnotatedMessage] = []
    deadlines: list[int | None] = []
    size = 0
    for each in stored:
        if not each.is_intact:
            return unit, deadlines, "damaged on disk: its checksum is wrong"
        try:
            message = from_bytes(each.message)
            deadline = envelope.take_deadline(message, now)
        except ValueError as error:
            return unit, deadlines, str(error)
        if deadline is not None and deadline <= now:  # G-15: neither delivered late nor dropped
            return unit, deadlines, "TTLExpiredException: its time to live ended while it waited"
        size += len(each.message)
        if unit and (size > MOST_BYTES_IN_UNIT or _placement(message) != _placement(unit[0])):
            break
        unit.append(message)
        deadlines.append(deadline)
    return unit, deadlines, ""


def _placement(message: AmqpAnnotatedMessage) -> tuple[object, object]:
    """What decides on the partition and the session: one batch goes to one of them."""
    annotations = message.annotations or {}
    name = aliases.ANNOTATION_PARTITION_KEY
    session = None if message.properties is None else message.properties.group_id
    return session, annotations.get(name, annotations.get(name.encode()))
