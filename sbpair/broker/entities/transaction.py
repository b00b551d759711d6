"""Transactions: settlements and sends on one top-level entity, committed together or not at all.

                 send, settle, renew            commit: everything checked, then everything applied
    declared ------------------------> open --------------------------------------------------> ended
        |                                 |  rollback, two minutes, controller detached,
        |                                 |  or a commit after an operation was refused:
        '---------------------------------'  nothing is applied ------------------------------> ended

Operations are recorded and applied at commit. A rollback therefore has nothing to undo, messages stay locked
under the same tokens after it, and a store can write a commit as one unit. Receives are not part of a
transaction.

The top-level entity is a queue, or a topic with its subscriptions and sub-queues. A send to another entity
goes *via* it: the messages are transferred after the commit, and if the destination refuses them, they go to
the transfer dead-letter queue of the via entity.

A refused operation makes the commit fail. Some clients, the Java SDK among them, ignore the answer to a send
in a transaction: without this rule, their commit would apply the other operations and lose that one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import (
    BrokerError,
    EntityNotFoundError,
    LockLostError,
    NotAllowedError,
    TransactionRolledBackError,
)
from .queue import Queue
from .stored_message import Instant, LockToken, StoredMessage
from .topic import Subscription

if TYPE_CHECKING:
    from .namespace import Namespace

TIMEOUT = 120_000
"""Milliseconds after the first operation within which a transaction must be committed."""

MAX_MESSAGES = 100
"""Maximum number of messages sent in one transaction."""


def top_level(queue: Queue) -> Queue:
    """Return the queue or topic that a transaction on ``queue`` belongs to."""
    entity = queue.top
    return entity.topic if isinstance(entity, Subscription) else entity


def same_key(path: str, before: Hashable, key: Hashable) -> Hashable:
    """Check that the messages of a transaction on a partitioned entity share one key; return it.

    ``before`` is the key of the messages so far, None for the first. ``key`` is the key of the next message
    at the entity: with sessions its session id, for a message sent via the entity its
    via-partition-key.

    Raises NotAllowedError when ``key`` is None or differs from ``before``.
    """
    if key is None:
        raise NotAllowedError(
            f"A message in a transaction on the partitioned entity '{path}' needs a session id, "
            "a partition key, or, where duplicates are detected, a message id; one sent via it, "
            "a via-partition-key."
        )
    if before not in (None, key):
        raise NotAllowedError(
            f"All messages in a transaction on the partitioned entity '{path}' need the same key: "
            f"there are '{before}' and '{key}'."
        )
    return key


@dataclass(slots=True)
class Anchor:
    """The top-level entity of the transactions of one controller; None until it is known."""

    top: Queue | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Messages for ``queue``; with ``via``, transferred from there after the commit."""

    queue: Queue
    messages: tuple[StoredMessage, ...]
    via: Queue | None = None


class Transaction:
    """The recorded operations of one transaction."""

    def __init__(self, namespace: Namespace, anchor: Anchor) -> None:
        self._namespace = namespace
        self._anchor = anchor
        self._top: Queue | None = None
        self._ends_at: Instant | None = None
        self._sends: list[Send] = []
        self._operations: list[Send | Settlement] = []
        self._tokens: set[LockToken] = set()
        self._key: Hashable = None
        self._failure: str | None = None

    def send(
        self, queue: Queue, messages: Sequence[StoredMessage], now: Instant, via: Queue | None = None
    ) -> None:
        """Record a send. Raises NotAllowedError, TransactionRolledBackError, and as ``queue.enqueue_all``."""
        self._begin(now)
        via = via or self._via(queue)
        self._check_top(via or queue)
        sent = sum(len(each.messages) for each in self._sends)
        if sent + len(messages) > MAX_MESSAGES:
            raise NotAllowedError(f"Can't send more than {MAX_MESSAGES} messages in a single transaction.")
        send = Send(queue, tuple(messages), via)
        key = self._key_with(send)
        self._check_sends([*self._sends, send])
        self._set_top(via or queue)
        self._key = key
        self._sends.append(send)
        self._operations.append(send)

    def settle(self, settlement: Settlement, now: Instant) -> None:
        """Record a settlement. Raises LockLostError, SessionLostError, NotAllowedError, TransactionRolledBackError."""
        self._begin(now)
        self._check_top(settlement.queue)
        if settlement.token in self._tokens:
            raise LockLostError
        settlement.check(now)
        self._set_top(settlement.queue)
        self._tokens.add(settlement.token)
        self._operations.append(settlement)

    def renew(self, queue: Queue, token: LockToken, now: Instant) -> Instant:
        """Renew a lock at once, even if the transaction is rolled back later. Raises as :meth:`settle`."""
        self._begin(now)
        self._check_top(queue)
        until = queue.renew(token, now)
        self._set_top(queue)
        return until

    def fail(self, error: BrokerError) -> None:
        """Make the commit fail because an operation was refused with ``error``."""
        self._failure = self._failure or f"One of its operations was refused: {error}"

    def commit(self, now: Instant) -> None:
        """Apply all recorded operations, or none. Raises TransactionRolledBackError when one is refused."""
        self._begin(now)
        try:
            self._check_sends(self._sends)
            for operation in self._operations:
                if isinstance(operation, Settlement):
                    self._check_exists(operation.queue)
                    operation.check(now)
        except BrokerError as error:
            raise TransactionRolledBackError(str(error)) from error
        for operation in self._operations:
            self._apply(operation, now)

    def _apply(self, operation: Send | Settlement, now: Instant) -> None:
        if isinstance(operation, Settlement):
            operation.apply(now)
        elif operation.via is None:
            operation.queue.enqueue_all(operation.messages, now)
        else:
            self._namespace.transfer(operation.messages, operation.via, operation.queue.path, now)

    def _begin(self, now: Instant) -> None:
        if self._ends_at is None:
            self._ends_at = now + TIMEOUT
        elif now >= self._ends_at:
            raise TransactionRolledBackError(
                "It was not committed within two minutes of its first operation."
            )
        if self._failure is not None:
            raise TransactionRolledBackError(self._failure)

    def _via(self, queue: Queue) -> Queue | None:
        top = self._anchor.top
        return None if top is None or top is top_level(queue) else top

    def _check_top(self, queue: Queue) -> None:
        top = self._top or self._anchor.top
        if top not in (None, top_level(queue)):
            raise NotAllowedError(
                "Local transactions cannot span multiple top-level entities such as queue or topic: "
                f"this one is on '{top.path}', not on '{queue.path}'."
            )

    def _key_with(self, send: Send) -> Hashable:
        """Return the key of all messages including ``send``, if the entity is partitioned."""
        key, top = self._key, send.via or send.queue
        if top.is_partitioned:
            for message in send.messages:
                mine = top.key_of(message) if send.via is None else message.via_partition_key
                key = same_key(top.path, key, mine)
        return key

    def _set_top(self, queue: Queue) -> None:
        self._top = top_level(queue)

    def _check_sends(self, sends: Sequence[Send]) -> None:
        local: list[StoredMessage] = []
        for send in sends:
            if send.via is None:
                local += send.messages
            else:
                self._check_exists(send.via)
                send.via.check_sends_enabled()
        target = next((send.queue for send in sends if send.via is None), None)
        if target is not None:
            self._check_exists(target)
            target.check_acceptable(local)

    def _check_exists(self, queue: Queue) -> None:
        if not self._namespace.holds(queue):
            raise EntityNotFoundError(queue.path)


Properties = dict[str, object]


class SettlementVerb(Enum):
    """The ways to settle a message."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settlement of the message locked under ``token`` in ``queue``.

    Sets ``properties`` on the message.
    """

    queue: Queue
    token: LockToken
    verb: SettlementVerb
    properties: Properties = field(default_factory=dict)

    def check(self, now: Instant) -> None:
        """Raise the error that :meth:`apply` would raise now, if any."""
        self.queue.locked_message(self.token, now)
        if self.verb is SettlementVerb.DEAD_LETTER:
            self.queue.check_can_dead_letter()

    def apply(self, now: Instant) -> None:
        """Settle the message. Raises LockLostError, SessionLostError, NotAllowedError."""
        _METHODS[self.verb](self.queue, self.token, now, self.properties)


_METHODS: dict[SettlementVerb, Callable[[Queue, LockToken, Instant, Properties], None]] = {
    SettlementVerb.COMPLETE: lambda queue, token, now, _: queue.complete(token, now),
    SettlementVerb.ABANDON: lambda queue, token, now, changes: queue.abandon(token, now, changes),
    SettlementVerb.DEFER: lambda queue, token, now, changes: queue.defer(token, now, changes),
    SettlementVerb.DEAD_LETTER: lambda queue, token, now, reasons: queue.dead_letter(token, now, reasons),
    SettlementVerb.RELEASE: lambda queue, token, now, _: queue.release(token, now),
}
