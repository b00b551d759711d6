"""A transaction: what is to happen in one entity all at once, or not at all.

                 send, settle, renew            commit: everything checked, then everything done
    declared ------------------------> open ------------------------------------------------> over
        |                                 |  rollback, two minutes, its controller gone,
        |                                 |  or a commit after a part was refused:
        '---------------------------------'  nothing of it was done ------------------------> over

Work is noted and not done until commit: so there is nothing to undo, what is locked stays locked under the
same token after a rollback, and a store may write a commit as one unit. Receiving is no part of it.

One top-level entity: a queue or a topic, with its subscriptions and sub-queues. Sends to another one go
*via* that one: they leave it when the transaction has committed, and a send that is then refused rests in
its transfer dead-letter queue.

A part that is refused dooms the rest: there are clients that do not look at the answer to a send in a
transaction (the Java SDK is one), and a commit would then do some of it and lose the rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BrokerError, EntityNotFound, LockLost, NotAllowed, TransactionRolledBack
from .entity import Entity
from .kinds import AnySubscription
from .partitioned import Partitioned
from .settlement import Settlement
from .stored_message import Instant, LockToken, StoredMessage

if TYPE_CHECKING:
    from .namespace import Namespace

TIME_TO_FINISH = 120_000
"""Milliseconds from the first operation to the last moment of a commit."""

MOST_MESSAGES = 100
"""How many messages one transaction may send."""


def top_level(queue: Entity) -> Entity:
    """The queue or topic that a transaction on ``queue`` belongs to."""
    entity = queue.top
    return entity.topic if isinstance(entity, AnySubscription) else entity


def same_key(path: str, before: Hashable, key: Hashable) -> Hashable:
    """The key of a transaction's messages in a partitioned entity, with one more: all have the same (Q-13).

    ``before`` is None for the first message; ``key`` is the message's key at the entity, with sessions its
    session id (Q-14), and for one that goes via the entity its via-partition-key. Raises NotAllowed.
    """
    if key is None:
        raise NotAllowed(
            f"A message in a transaction on the partitioned entity '{path}' needs a session id, "
            "a partition key, or, where duplicates are detected, a message id; one sent via it, "
            "a via-partition-key."
        )
    if before not in (None, key):
        raise NotAllowed(
            f"All messages in a transaction on the partitioned entity '{path}' need the same key: "
            f"there are '{before}' and '{key}'."
        )
    return key


@dataclass(slots=True)
class Anchor:
    """The top-level entity that the transactions of one controller begin in, once that is known."""

    top: Entity | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Messages for ``queue``; with ``via`` they leave from there after the commit."""

    queue: Entity
    messages: tuple[StoredMessage, ...]
    via: Entity | None = None


class Transaction:
    """The work of one transaction, not done yet."""

    def __init__(self, namespace: Namespace, anchor: Anchor) -> None:
        self._namespace = namespace
        self._anchor = anchor
        self._top: Entity | None = None
        self._ends_at: Instant | None = None
        self._sends: list[Send] = []
        self._work: list[Send | Settlement] = []
        self._tokens: set[LockToken] = set()
        self._key: Hashable = None
        self._doom: str | None = None

    def send(
        self, queue: Entity, messages: Sequence[StoredMessage], now: Instant, via: Entity | None = None
    ) -> None:
        """Note a send. Raises NotAllowed, TransactionRolledBack, and as ``queue.enqueue_all``."""
        self._begin(now)
        via = via or self._via(queue)
        self._check_top(via or queue)
        sent = sum(len(each.messages) for each in self._sends)
        if sent + len(messages) > MOST_MESSAGES:
            raise NotAllowed(f"Can't send more than {MOST_MESSAGES} messages in a single transaction.")
        send = Send(queue, tuple(messages), via)
        key = self._key_with(send)
        self._check_sends([*self._sends, send])
        self._enter(via or queue)
        self._key = key
        self._sends.append(send)
        self._work.append(send)

    def settle(self, settlement: Settlement, now: Instant) -> None:
        """Note a settlement. Raises LockLost, SessionLockLost, NotAllowed, TransactionRolledBack."""
        self._begin(now)
        self._check_top(settlement.queue)
        if settlement.token in self._tokens:
            raise LockLost
        settlement.check(now)
        self._enter(settlement.queue)
        self._tokens.add(settlement.token)
        self._work.append(settlement)

    def renew(self, queue: Entity, token: LockToken, now: Instant) -> Instant:
        """Renew a lock, at once and whatever becomes of the rest. Raises as :meth:`settle`."""
        self._begin(now)
        self._check_top(queue)
        until = queue.renew(token, now)
        self._enter(queue)
        return until

    def fail(self, error: BrokerError) -> None:
        """Something of it was refused: not all of it can be done, so nothing of it will be."""
        self._doom = self._doom or f"A part of it was refused: {error}"

    def commit(self, now: Instant) -> None:
        """Do all of the work, or none of it. Raises TransactionRolledBack."""
        self._begin(now)
        try:
            self._check_sends(self._sends)
            for work in self._work:
                if isinstance(work, Settlement):
                    self._check_there(work.queue)
                    work.check(now)
        except BrokerError as error:
            raise TransactionRolledBack(str(error)) from error
        for work in self._work:
            self._do(work, now)

    def _do(self, work: Send | Settlement, now: Instant) -> None:
        if isinstance(work, Settlement):
            work.apply(now)
        elif work.via is None:
            work.queue.enqueue_all(work.messages, now)
        else:
            self._namespace.transfer(work.messages, work.via, work.queue.path, now)

    def _begin(self, now: Instant) -> None:
        if self._ends_at is None:
            self._ends_at = now + TIME_TO_FINISH
        elif now >= self._ends_at:
            raise TransactionRolledBack("It was not finished within two minutes of its first operation.")
        if self._doom is not None:
            raise TransactionRolledBack(self._doom)

    def _via(self, queue: Entity) -> Entity | None:
        top = self._anchor.top
        return None if top is None or top is top_level(queue) else top

    def _check_top(self, queue: Entity) -> None:
        top = self._top or self._anchor.top
        if top not in (None, top_level(queue)):
            raise NotAllowed(
                "Local transactions cannot span multiple top-level entities such as queue or topic: "
                f"this one is on '{top.path}', and not on '{queue.path}'."
            )

    def _key_with(self, send: Send) -> Hashable:
        """The key of all messages so far, where the top-level entity is partitioned (Q-13, Q-14)."""
        key, top = self._key, send.via or send.queue
        if isinstance(top, Partitioned):
            for message in send.messages:
                mine = top.key_of(message) if send.via is None else message.via_partition_key
                key = same_key(top.path, key, mine)
        return key

    def _enter(self, queue: Entity) -> None:
        self._top = top_level(queue)

    def _check_sends(self, sends: Sequence[Send]) -> None:
        local: list[StoredMessage] = []
        for send in sends:
            if send.via is None:
                local += send.messages
            else:
                self._check_there(send.via)
                send.via.check_sends_enabled()
        here = next((send.queue for send in sends if send.via is None), None)
        if here is not None:
            self._check_there(here)
            here.check_acceptable(local)

    def _check_there(self, queue: Entity) -> None:
        if not self._namespace.holds(queue):
            raise EntityNotFound(queue.path)
