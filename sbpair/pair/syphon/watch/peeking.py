"""Peek at the messages of an entity, and watch the depth, the age and the silence of backlog queues.

Peeking locks nothing, starts no receive, and needs only the Listen right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from sbpair.pair.amqp.errors import NOT_FOUND, UNAUTHORIZED_ACCESS, DecodeError
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.sections import decode_map_section, split
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, LinkRefusedError
from sbpair.pair.client.link import Receiver
from sbpair.pair.client.request import RequestNode, peek
from sbpair.pair.client.watchdog import Watchdog
from sbpair.pair.envelope.inspect import ParkedMessage, read_parked
from sbpair.pair.envelope.names import backlog_queue_name

from ..events import BacklogCaughtUp, BacklogOverdue, BacklogStranded, SyphonEvent

logger = logging.getLogger("sbpair.syphon")

T = TypeVar("T")

PAGE = 100  # messages per peek
STRANDED_EVERY = 900.0  # seconds between checks for stranded backlogs
STRANDED_AGAIN = 60.0  # while one holds messages: whoever empties it sees that it worked
MAX_STRANDED = 100  # queues checked
MIN_AGE_INTERVAL, MAX_AGE_INTERVAL = 0.25, 300.0  # seconds between checks for overdue backlogs
MAX_COUNTED = 1000  # messages of a backlog
FIRST_AFTER = 1.0  # seconds until the first measurement
NUMBER, STATE = "x-opt-sequence-number", "x-opt-message-state"
ACTIVE = 0  # a message state
BEYOND_RIGHTS = (
    "whether %s holds messages cannot be seen (%s): grant Listen on it if senders use more than %d backlogs"
)
DEAD_LETTERS = "/$DeadLetterQueue"
# Messages sent via the queue and refused after the commit.
TRANSFER_DEAD_LETTERS = "/$Transfer" + DEAD_LETTERS
# Seconds: a peek is billed, so a backlog that is idle for long is peeked as rarely as its long poll is renewed.
LONGEST_IDLE = 16 * 60.0
DETACHED_WITHIN = 5.0  # seconds for the peer to detach a silent link
SILENT = Condition(Symbol("sbpair:silent"), "messages wait, and its link delivers none: another is opened")


def peek_parked(
    connection: NamespaceConnection, path: str, *, start: int = 1, most: int | None = None
) -> AsyncGenerator[ParkedMessage, None]:
    """Peek up to ``most`` messages of ``path`` from sequence number ``start`` on, including locked and scheduled ones.

    Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
    """
    return peek_all(
        connection, path, read_parked, lambda message: message.sequence_number, start=start, most=most
    )


async def peek_all(
    connection: NamespaceConnection,
    path: str,
    read: Callable[[bytes], T],
    number_of: Callable[[T], int | None],
    *,
    start: int = 1,
    most: int | None = None,
    session_id: str | None = None,
) -> AsyncGenerator[T, None]:
    """Peek up to ``most`` messages of ``path``, or of one of its sessions, page by page from ``start`` on.

    ``read`` converts the bytes of a message to the value to yield, ``number_of`` returns its sequence number. A page
    without any sequence number is the last. Close the iterator (``aclosing``) when leaving it early: its link is open.
    Raises TokenRefusedError, LinkRefusedError or ConnectionLostError.
    """
    await connection.authorize(path)
    node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
    try:
        left = most
        while left is None or left > 0:
            most_now = PAGE if left is None else min(PAGE, left)
            payloads = await peek(node, path, start, most_now, session_id=session_id)
            page = [read(payload) for payload in payloads]
            for message in page:
                yield message
            numbers = [number for number in map(number_of, page) if number is not None]
            if not numbers:
                return
            start = max(numbers) + 1
            left = None if left is None else left - len(page)
    finally:
        await node.close()


@dataclass(slots=True)
class StrandedBacklogs:
    """Finds the backlog queues beyond ``count``. Each is reported once, and again when it holds messages.

    They are checked one after another until one does not exist.
    """

    label: str
    count: int
    emit: Callable[[SyphonEvent], None]
    found: dict[str, bool] = field(default_factory=dict)
    """Whether each held messages at the last check."""

    async def run(self, connection: Callable[[], NamespaceConnection]) -> None:
        """Check now and at intervals on the current connection, until cancelled."""
        while True:
            try:
                await self.check(connection())
            except ClientError as error:
                logger.info("the backlogs beyond %d cannot be peeked: %s", self.count, error)
            await asyncio.sleep(self.pause)

    @property
    def pause(self) -> float:
        """The seconds until the next check: fewer while a queue holds messages."""
        return STRANDED_AGAIN if any(self.found.values()) else STRANDED_EVERY

    async def check(self, connection: NamespaceConnection) -> list[str]:
        """Return the queues that hold messages now.

        A key without rights on them is logged as a warning, because it may be meant for the other backlogs only. Raises
        TokenRefusedError, LinkRefusedError or ConnectionLostError when they cannot be read for another reason.
        """
        found: dict[str, bool] = {}
        for index in range(self.count, self.count + MAX_STRANDED):
            backlog = backlog_queue_name(self.label, index)
            try:
                holds = await oldest(connection, backlog) is not None
            except ClientError as error:
                symbol = None if error.condition is None else error.condition.symbol
                if symbol == UNAUTHORIZED_ACCESS:
                    logger.warning(BEYOND_RIGHTS, backlog, error, self.count)
                elif symbol != NOT_FOUND:
                    raise
                break
            if self.found.get(backlog) is not holds and not self.found.get(backlog):
                self.emit(BacklogStranded(time.time(), backlog, holds))
            self.found[backlog] = found[backlog] = holds
        self.found = found  # without those that were deleted
        return [backlog for backlog, holds in found.items() if holds]


@dataclass(slots=True)
class OverdueBacklogs:
    """Reports when a backlog begins to contain a message older than ``threshold``, and when it no longer does."""

    threshold: timedelta
    emit: Callable[[SyphonEvent], None]
    overdue: set[str] = field(default_factory=set)

    @property
    def interval(self) -> float:
        """The seconds between two checks: a quarter of the threshold, within bounds."""
        return min(MAX_AGE_INTERVAL, max(MIN_AGE_INTERVAL, self.threshold.total_seconds() / 4))

    async def run(
        self, busy: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Check the ``busy`` backlogs, and those that were overdue, at intervals until cancelled."""
        while True:
            await asyncio.sleep(self.interval)
            if not self.overdue.union(busy()):
                continue  # all are known to be empty: peeking would be billed
            try:
                connection = await borrow()
                for backlog in sorted(self.overdue.union(busy())):  # some were found empty meanwhile
                    self.measured(backlog, await oldest(connection, backlog), time.time())
            except ClientError as error:
                logger.debug("the age of the backlogs cannot be measured: %s", error)

    def measured(self, backlog: str, parked_at: int | None, now: float) -> None:
        """Record when the oldest message was parked, in milliseconds since the epoch; None for an empty backlog.

        ``now`` is in seconds since the epoch.
        """
        age = 0.0 if parked_at is None else now - parked_at / 1000
        limit = self.threshold.total_seconds()
        if age > limit and backlog not in self.overdue:
            self.overdue.add(backlog)
            self.emit(BacklogOverdue(time.time(), backlog, age, limit))
        elif age <= limit and backlog in self.overdue:
            self.overdue.discard(backlog)
            self.emit(BacklogCaughtUp(time.time(), backlog))


@dataclass(frozen=True, slots=True)
class BacklogDepth:
    """The messages in a backlog: a count of :data:`MAX_COUNTED` means at least that many."""

    depth: int
    parked_at: int | None
    """When the oldest message was parked, in milliseconds since the epoch of the secondary's clock."""

    def age(self, now: float) -> float:
        """Return the age of the oldest message in seconds, 0 for an empty backlog; ``now``: seconds since the epoch."""
        return 0.0 if self.parked_at is None else max(0.0, now - self.parked_at / 1000)


EMPTY = BacklogDepth(0, None)


class BacklogDepths:
    """The depth of each backlog at the last measurement, taken every ``interval`` seconds.

    A backlog with a waiting long poll is known to be empty and is not peeked. In the others, the first MAX_COUNTED
    messages are counted.
    """

    def __init__(self, backlogs: Iterable[str], interval: float) -> None:
        self._backlogs = tuple(backlogs)
        self._interval = interval
        self._measured: dict[str, BacklogDepth | None] = {}

    def current(self, busy: Iterable[str], missing: Iterable[str] = ()) -> dict[str, BacklogDepth]:
        """Return the known depths; those of backlogs that are not ``busy`` are zero, ``missing`` ones have none."""
        busy, missing = frozenset(busy), frozenset(missing)
        known = {each: self._measured.get(each) if each in busy else EMPTY for each in self._backlogs}
        return {each: depth for each, depth in known.items() if depth is not None and each not in missing}

    async def run(
        self, busy: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Measure the ``busy`` backlogs at intervals until cancelled."""
        pause = min(FIRST_AFTER, self._interval)
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            backlogs = tuple(busy())
            try:
                measured = {each: await depth_of(await borrow(), each) for each in backlogs}
            except ClientError as error:
                logger.debug("the backlogs cannot be peeked: %s", error)
                measured = {}  # better no figure than an outdated one
            self._measured = measured


async def oldest(connection: NamespaceConnection, backlog: str) -> int | None:
    """Return when the oldest message was parked, in milliseconds since the epoch; None for an empty backlog.

    Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
    """
    peeked = [
        message async for message in peek_parked(connection, backlog, most=1)
    ]  # exhausted, so that it closes
    return (peeked[0].parked_at or 0) if peeked else None


async def depth_of(connection: NamespaceConnection, backlog: str) -> BacklogDepth | None:
    """Measure the depth of a backlog; return None when it does not exist.

    Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
    """
    depth, parked_at = 0, None
    try:
        async for message in peek_parked(connection, backlog, most=MAX_COUNTED):
            parked_at = (message.parked_at or 0) if depth == 0 else parked_at
            depth += 1
    except ClientError as error:
        if error.condition is None or error.condition.symbol != NOT_FOUND:
            raise
        return None
    return BacklogDepth(depth, parked_at)


async def has_more(connection: NamespaceConnection, backlog: str) -> bool:
    """Whether a backlog contains an active message, locked or not. Raises ClientError.

    An empty drain proves only that no message is free; a peek also finds those locked by another syphon. Deferred and
    scheduled messages do not count, because no syphon receives them.
    """
    await connection.authorize(backlog)
    node = RequestNode(connection, connection.namespace.address(f"{backlog}/$management"))
    try:
        start = 1
        while page := await peek(node, backlog, start, PAGE):
            numbers, states = zip(*(_number_and_state(backlog, payload) for payload in page), strict=True)
            if ACTIVE in states:
                return True
            start = max(numbers) + 1
        return False
    finally:
        await node.close()


def _number_and_state(backlog: str, payload: bytes) -> tuple[int, int]:
    try:
        annotations = decode_map_section(split(payload).message_annotations)
        number, state = annotations[NUMBER], annotations.get(STATE, ACTIVE)
    except (DecodeError, IndexError, KeyError) as error:
        raise LinkRefusedError(f"a message of {backlog} cannot be read: {error!r}") from error
    if not isinstance(number, int) or not isinstance(state, int):
        raise LinkRefusedError(f"a message of {backlog} has no sequence number, or no state")
    return int(number), int(state)


class SilenceWatch:
    """Detects, by peeking, a link that delivers nothing although messages wait, and replaces it.

    Times are monotonic seconds.
    """

    def __init__(
        self, backlog: str, changed: Callable[[], None], unresponsive: Callable[[str], None]
    ) -> None:
        """Create a watch; ``changed`` is called when :meth:`next_check` returns another time.

        ``unresponsive`` is called with the reason when the peer does not end a silent link.
        """
        self.condition: Condition | None = None
        """Why the link ends, if it was silent."""
        self._unresponsive = unresponsive
        self._backlog = backlog
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog(self._loop.time(), LONGEST_IDLE)
        self._connection: NamespaceConnection | None = None
        self._asking: asyncio.Task[None] | None = None

    def start(self, connection: NamespaceConnection) -> None:
        """Watch a link that was just attached over ``connection``."""
        self._connection, self.condition = connection, None
        self._watchdog.attached(self._loop.time())

    def stop(self) -> None:
        """Stop: the link is gone."""
        self._connection = None
        if self._asking is not None:
            self._asking.cancel()

    def next_check(self) -> float:
        """Return when to call :meth:`watch` while nothing is unsettled."""
        return self._watchdog.next_check()

    def watch(self, receiver: Receiver, now: float, heard_at: float) -> None:
        """Peek or replace the link if that is due; its last message came at ``heard_at``, and all are settled."""
        if heard_at > self._watchdog.heard_at:
            self._watchdog.heard(heard_at)
        if not receiver.credit or receiver.detached.done():
            return
        if self._watchdog.should_replace(now):
            self.condition = SILENT
            receiver.let_go()
            self._loop.call_later(DETACHED_WITHIN, self._check_detached, receiver)
            return
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and self._connection is not None and self._watchdog.is_due(now):
            self._asking = asyncio.ensure_future(self._ask(self._connection))

    def _check_detached(self, receiver: Receiver) -> None:
        if not receiver.detached.done():
            self._unresponsive(f"the link to {self._backlog} is silent and does not end")

    async def _ask(self, connection: NamespaceConnection) -> None:
        try:
            waits = await has_more(connection, self._backlog)
        except ClientError as error:
            logger.info("whether messages wait in %s cannot be seen: %s", self._backlog, error)
            return
        self._watchdog.peeked(self._loop.time(), waits=waits)
        self._changed()
