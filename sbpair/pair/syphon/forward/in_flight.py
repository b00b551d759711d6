"""A restored message on its way from a backlog to its destination, and the meaning of the answer."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from sbpair.pair.amqp.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    DECODE_ERROR,
    ENTITY_DISABLED,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_DELETED,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
    UNAUTHORIZED_ACCESS,
)
from sbpair.pair.amqp.performatives import Accepted, Condition, DeliveryState, Rejected, TransactionalState
from sbpair.pair.client.errors import condition_text, outcome_text
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.envelope.restore import Forward, Poison
from sbpair.pair.ground.side import Side

from ..events import MessagesForwarded, MessagesInDoubt, SyphonEvent

MIN_SUSPENSION = 0.5  # seconds; shorter spans are the time between reading two clocks
FRESH = 0.5  # seconds for which a computed remaining time to live is used


def time_suspended() -> float:
    """Return for how many seconds this machine has been suspended since boot; 0.0 where that is unknown."""
    if sys.platform != "linux":
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class MessageTarget(Protocol):
    """The destination of a message, with the methods that the message and its origin use."""

    @property
    def takes_more(self) -> bool: ...
    @property
    def waiting(self) -> int: ...

    def post(self, message: InFlightMessage) -> None: ...
    def withdraw(self, message: InFlightMessage) -> None: ...
    def skipped(self, message: InFlightMessage) -> None: ...
    def answered(self, message: InFlightMessage, state: DeliveryState | None) -> None: ...


class MessageOrigin(Protocol):
    """The pump or session relay from which a message came; its methods report the fate of the message."""

    backlog: str

    def forwarded(self, message: InFlightMessage) -> None: ...
    def refused(self, message: InFlightMessage, condition: Condition | None) -> None: ...
    def held(self, message: InFlightMessage) -> None: ...
    def resumed(self, message: InFlightMessage) -> None: ...
    def stalled(self, message: InFlightMessage) -> None: ...
    def lock_doubtful(self, message: InFlightMessage) -> None: ...
    def poisoned(self, message: InFlightMessage, poison: Poison) -> None: ...
    def reported(self, message: InFlightMessage) -> None: ...
    def unanswered(self, message: InFlightMessage) -> None: ...
    async def complete_in(self, messages: Sequence[InFlightMessage], txn_id: bytes) -> bool: ...
    def lock_given_up(self, messages: Iterable[InFlightMessage]) -> None: ...


class SendingLink(Protocol):
    """A link to a destination: a :class:`~sbpair.pair.client.link.Sender`, or a link that lands messages."""

    detached: asyncio.Future[Condition | None]
    progress: int
    on_progress: Callable[[], None] | None

    @property
    def is_open(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def credit(self) -> int: ...
    @property
    def largest_batch(self) -> int: ...

    def transfer(self, message: InFlightMessage) -> None: ...
    def take_waiting(self) -> Sequence[object]: ...
    def unanswered_messages(self) -> Sequence[object]: ...
    def let_go(self) -> None: ...


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """A restored message on its way from a backlog to its destination."""

    origin: MessageOrigin
    delivery_id: int
    path: str
    payload: bytes
    posted_at: float  # seconds, monotonic
    lock_ends: float  # seconds, monotonic
    lock_span: float  # seconds
    tag: bytes  # the lock's token
    destination: MessageTarget
    size: int = 0  # bytes in the memory budget
    is_held: bool = False
    rejections: int = 0  # after which it waited by itself
    is_stalled: bool = False  # in flight for so long that it does not count as active
    is_released: bool = False  # its lock is given up, or kept in overflow
    message_format: int = 0
    count: int = 1  # messages in it: more than one in a batch
    is_sent: bool = False  # an answer is owed
    is_landing: bool = False  # its destination is on the secondary
    is_settled: bool = False  # it was completed in the transaction that sent it
    stays: bool = False  # the secondary refused it: it waits for the primary
    state: TransactionalState | None = None
    restore_again: Callable[[], Forward | Poison] | None = None  # with a time to live: restores it as of now
    restored_at: float = 0.0  # seconds, monotonic
    suspended: float = field(default_factory=lambda: time_suspended())

    @property
    def has_deadline(self) -> bool:
        """Whether its time to live is the time that remained when it was last restored."""
        return self.restore_again is not None

    def may_go(self, now: float) -> bool:
        """Return whether to send the message at ``now`` (monotonic seconds).

        If not, another message is sent in its place, and its lock is renewed first: the lock may have ended, for
        example while the machine was suspended. A message with a time to live is restored with the remaining
        time, or dead-lettered once it has expired.
        """
        self.is_sent = self.is_ready(now)
        return self.is_sent

    def is_ready(self, now: float) -> bool:
        """Like :meth:`may_go`, for a message that is sent as a copy, in a transaction."""
        if now < self.lock_ends and not self.is_released and not self._slept():
            return self._is_in_time(now)
        self.destination.skipped(self)
        if not self.is_released:
            self.origin.lock_doubtful(self)
        return False

    def _slept(self) -> bool:
        """Whether the machine was suspended since the last call: its clock stopped, but the locks did not."""
        suspended = time_suspended()
        slept, self.suspended = suspended - self.suspended > MIN_SUSPENSION, suspended
        return slept

    def _is_in_time(self, now: float) -> bool:
        if self.restore_again is None or now < self.restored_at + FRESH:
            return True
        restored, self.restored_at = self.restore_again(), now
        if isinstance(restored, Forward):
            self.payload = restored.payload
            return True
        self.destination.skipped(self)
        self.origin.poisoned(self, restored)
        return False

    def answered(self, outcome: DeliveryState | None) -> None:
        self.destination.answered(self, outcome)

    def hold(self) -> None:
        """Tell the origin that the message waits for its destination."""
        if not self.is_held:
            self.is_held = True
            self.origin.held(self)

    def resume(self) -> None:
        """Tell the origin that the message no longer waits."""
        if self.is_held:
            self.is_held = False
            self.origin.resumed(self)

    def post_home(self, home: MessageTarget) -> None:
        """Post the message, which is neither queued nor in flight, to its destination on the primary."""
        self.is_landing = False
        self.destination = home
        home.post(self)


class DeliveryAction(Enum):
    """The action on a parked message once its destination has answered."""

    COMPLETE = "complete"  # accepted: remove it from the backlog
    DEAD_LETTER = "dead-letter"  # refused finally: retrying would not help
    HOLD = "hold"  # do not settle; retry later


DEAD_LETTER_REASONS: dict[str, str] = {
    NOT_FOUND: "DestinationNotFound",
    RESOURCE_DELETED: "DestinationNotFound",
    ENTITY_DISABLED: "DestinationDisabled",
    MESSAGE_SIZE_EXCEEDED: "MessageSizeExceeded",
    NOT_ALLOWED: "DestinationRefused",
    NOT_IMPLEMENTED: "DestinationRefused",
    INVALID_FIELD: "DestinationRefused",
    DECODE_ERROR: "DestinationRefused",
    PRECONDITION_FAILED: "DestinationRefused",
    "com.microsoft:precondition-failed": "DestinationRefused",
    ARGUMENT_ERROR: "DestinationRefused",
    ARGUMENT_OUT_OF_RANGE: "DestinationRefused",
}
"""The dead-letter reason for each final condition.

Messages refused with any other condition are held: waiting is always safe, and dead-lettering a deliverable message is
not.
"""

BUSY_CONDITIONS = frozenset((SERVER_BUSY, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS))
"""Conditions of an entity that is reachable but accepts no messages now: the primary still serves its consumers."""


def action_for(state: object) -> DeliveryAction:
    """Return the action for the outcome of a transfer; HOLD for a state that is not terminal, or None."""
    if isinstance(state, Accepted):
        return DeliveryAction.COMPLETE
    if isinstance(state, Rejected):
        return action_for_condition(state.error)
    return DeliveryAction.HOLD


def action_for_condition(condition: Condition | None) -> DeliveryAction:
    """Return the action when a transfer, a link, or the token for it was refused with ``condition``."""
    if condition is not None and str(condition.symbol) in DEAD_LETTER_REASONS:
        return DeliveryAction.DEAD_LETTER
    return DeliveryAction.HOLD


def is_answer(condition: Condition | None, *, is_final: bool) -> bool:
    """Whether a refusal with ``condition`` shows that the entity is reachable."""
    return is_final or (condition is not None and str(condition.symbol) in BUSY_CONDITIONS)


def is_busy(state: DeliveryState | None) -> bool:
    """Whether the outcome of a transfer shows that the entity is reachable but cannot accept the message now."""
    return isinstance(state, Rejected) and is_answer(state.error, is_final=False)


def reason_of(state: DeliveryState | None, link: SendingLink | None) -> str:
    """Return why a message waits: the answer over ``link``, or without an answer, why the link was lost."""
    if isinstance(state, Rejected):
        return condition_text(state.error)
    if state is not None:
        return f"the message was answered with {outcome_text(state)}"
    gone = link.detached.result() if link is not None and link.detached.done() else None
    return f"the link was lost: {condition_text(gone)}"


_Report = type[MessagesForwarded] | type[MessagesInDoubt]


class ForwardReports:
    """The messages of one backlog that were accepted, or are in doubt, and are still to be reported."""

    def __init__(self, backlog: str, emit: Callable[[SyphonEvent], None], *, is_wanted: bool) -> None:
        self._backlog = backlog
        self._emit = emit
        self._is_wanted = is_wanted
        self._ids: dict[tuple[_Report, str, str], list[str]] = {}  # by event, path and side

    def add(
        self,
        message: InFlightMessage,
        report: _Report = MessagesForwarded,
        members: Iterable[bytes] = (),
    ) -> bool:
        """Add a message, or the encoded ``members`` of a batch; return whether it has to be reported."""
        if self._is_wanted:
            side = Side.SECONDARY if message.is_landing else Side.PRIMARY
            ids = self._ids.setdefault((report, message.path, side.value), [])
            ids += map(message_id_of, members or (message.payload,))
        return self._is_wanted

    def emit(self) -> None:
        """Emit the events for the messages added since the last call, one for each kind of report."""
        added, self._ids = self._ids, {}
        for (report, path, side), ids in added.items():
            self._emit(report(time.time(), self._backlog, path, tuple(ids), side))
