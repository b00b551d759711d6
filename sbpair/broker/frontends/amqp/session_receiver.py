"""Session receivers: attaching to a session, receiving its messages, and releasing it.

    attach, source filter com.microsoft:session-filter = a session id | null

    the session is free          ->  attach: the granted id in the filter, the lock's expiry in the properties
    another receiver holds it    ->  refused: com.microsoft:session-cannot-be-locked
    none is available            ->  the attach waits for a session, at most com.microsoft:timeout, then is refused

The link holds the session: when it ends, for any reason, the session is released. When the session's lock expires, its
link is detached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.performatives import Attach, DeliveryState, Source
from sbpair.pair.amqp.types import Described

from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.sessions import SessionLock
from ...entities.stored_message import LockToken, StoredMessage
from ...errors import BrokerError, InvalidArgumentError, LockLostError, RequestTimeoutError, SessionLostError
from ..received_message import MAX_ID_LENGTH
from ..refusals import condition_of
from .node import ConnectionContext, Node
from .queue_receiver import SETTLED, QueueReceiver

FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
TIMEOUT = "com.microsoft:timeout"
DEFAULT_TIMEOUT = 65_000  # milliseconds
_TICKS_AT_EPOCH, _TICKS_PER_MS = 621_355_968_000_000_000, 10_000


def has_session_filter(attach: Attach) -> bool:
    """Whether the attach requests a session, a certain one or any."""
    return isinstance(attach.source, Source) and FILTER in (attach.source.filter or {})


def asked_session(attach: Attach) -> str | None:
    """Return the id of the requested session, None for the next available one. Raises InvalidArgumentError."""
    assert isinstance(attach.source, Source)  # noqa: S101 - it has a session filter
    requested = (attach.source.filter or {}).get(FILTER)
    name = requested.value if isinstance(requested, Described) else requested
    if name is not None and not isinstance(name, str):
        raise InvalidArgumentError(f"The session filter is {name!r:.60}: use a string or null.")
    if name is not None and len(name) > MAX_ID_LENGTH:
        raise InvalidArgumentError(f"The session filter is longer than {MAX_ID_LENGTH} characters.")
    return name


def patience(attach: Attach) -> int:
    """Return how long the attach may wait for a session, in milliseconds. Raises InvalidArgumentError."""
    span = (attach.properties or {}).get(TIMEOUT, DEFAULT_TIMEOUT)
    if not isinstance(span, int) or isinstance(span, bool) or span < 0:
        raise InvalidArgumentError(f"{TIMEOUT} is {span!r:.60}: use whole milliseconds.")
    return int(span)


class SessionQueueReceiver(QueueReceiver):
    """Delivers the messages of the one session it holds."""

    def __init__(
        self, connection: ConnectionContext, link: SenderLink, lock: SessionLock, *, deletes: bool
    ) -> None:
        super().__init__(connection, link, lock.queue.owner, deletes=deletes)
        self.lock = lock
        self._source = lock.queue
        if deletes and self.queue.sessions is not None:
            self.queue.sessions.keep_until_released(lock)

    @property
    def line(self) -> Queue | SessionLock:
        """The session lock; no other receiver waits for it."""
        return self.lock

    def answer(self, attach: Attach) -> tuple[Source | None, dict[object, object] | None]:
        """Return source and properties that contain the granted session and the expiry of its lock."""
        source = attach.source
        assert isinstance(source, Source)  # noqa: S101 - it has a session filter
        requested, name = (source.filter or {}).get(FILTER), self.lock.session_id
        # in the form of the request
        answer = Described(requested.descriptor, name) if isinstance(requested, Described) else name
        granted = {**(source.filter or {}), FILTER: answer}
        ticks = _TICKS_AT_EPOCH + self.lock.locked_until * _TICKS_PER_MS
        return replace(source, filter=granted), {LOCKED_UNTIL: ticks}

    def take(self, now: int) -> StoredMessage | None:
        """Return the next message of the session. Raises SessionLostError, EntityDisabledError."""
        if self.deletes:
            return self._source.receive_and_delete(now, self.lock)
        return self._source.receive(now, self.lock)

    def take_some(self, limit: int, now: int) -> list[StoredMessage]:
        """Return the next messages of the session, locked. Raises as :meth:`take`."""
        return self.lock.queue.receive_batch(limit, now, self.lock)

    def complete(self, token: LockToken, now: int) -> None:
        """Complete a message of the session. Raises as :meth:`apply`."""
        try:
            self.queue.complete(token, now)
        except LockLostError:
            self._check_session()
            raise

    def apply(self, token: LockToken, state: DeliveryState | None, now: int) -> DeliveryState:
        """Settle a message of the session. Raises SessionLostError, not LockLostError, when the session is lost."""
        try:
            return super().apply(token, state, now)
        except LockLostError:
            self._check_session()
            raise

    def _check_session(self) -> None:
        if self.lock.is_lost:
            raise SessionLostError from None

    def _lose_lock(self, message: StoredMessage, now: ClockReading) -> None:
        """End the lock of the session, and with it those of its messages."""
        if self.queue.sessions is not None:
            self.queue.sessions.lapse(self.lock, now.entity)

    def lapsed(self, now: ClockReading) -> None:
        """Detach the link: the session's lock has expired."""
        self.link.detach(self.connection.frontend.refusal(SessionLostError(), self.queue.path, now.entity))

    def detached(self, now: ClockReading) -> None:
        """Release the session."""
        super().detached(now)
        if self.queue.sessions is not None:
            self.queue.sessions.release(self.lock, now.entity)


Granted = Callable[["SessionWait", SessionQueueReceiver, ClockReading], None]
"""Called when a waiting attach has been granted a session."""


class SessionWait(Node):
    """A link whose attach waits, unanswered, for the next available session."""

    queue: Queue
    link: SenderLink

    def __init__(
        self, connection: ConnectionContext, link: SenderLink, queue: Queue, attach: Attach, granted: Granted
    ) -> None:
        super().__init__(connection, link, queue)
        self.attach = attach
        self.span = patience(attach)
        self._granted = granted

    @property
    def deletes(self) -> bool:
        """Whether receive-and-delete is requested."""
        return self.attach.snd_settle_mode == SETTLED

    def offered(self, now: ClockReading) -> bool:
        """Take the next session if one is available; return whether one was taken. Raises EntityDisabledError."""
        sessions = self.queue.sessions
        lock = None if sessions is None else sessions.accept(None, now.entity)
        if lock is None:
            return False
        receiver = SessionQueueReceiver(self.connection, self.link, lock, deletes=self.deletes)
        self._granted(self, receiver, now)
        return True

    def refused(self, error: BrokerError, now: ClockReading) -> None:
        """Refuse the attach."""
        self.link.refuse(self.connection.frontend.refusal(error, self.queue.path, now.entity))

    def timed_out(self, now: ClockReading) -> None:
        """Refuse the attach, because its timeout has passed."""
        frontend, error = self.connection.frontend, RequestTimeoutError(self.span / 1000)
        tracker = frontend.tracker(self.queue.path)
        self.link.refuse(condition_of(error, frontend.host, tracker, now.entity))

    def detached(self, now: ClockReading) -> None:
        """Stop waiting for a session: the client has given up."""
        self.connection.frontend.leave_wait(self, now)
