"""Brokers with other sessions, topics, forwarding, transactions and partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappush

from sbpair.broker.entities.directory import DEAD_LETTER, Directory, fold
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.queue_partition import DEFERRED, QueuePartition
from sbpair.broker.entities.rules import Rule
from sbpair.broker.entities.rules.message_properties import LazyProperties, PropertyChanges
from sbpair.broker.entities.sessions import MessageSession, MessageSessions, SessionLock
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.entities.topic import TopicPartition
from sbpair.broker.entities.transaction import Settlement, Transaction
from sbpair.broker.errors import (
    EntityNotFoundError,
    NoSuchMessageError,
    NotAllowedError,
    SessionIdMissingError,
)
from sbpair.broker.frontends.amqp.attach import NodeFactory
from sbpair.broker.frontends.amqp.node import Node
from sbpair.broker.frontends.amqp.queue_receiver import QueueReceiver
from sbpair.broker.frontends.amqp.session_receiver import has_session_filter
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.performatives import Attach

from .keeping import ENTITIES, FRONTENDS, OPERATIONS, QUEUE
from .sabotage import Around, Sabotage

SESSIONS, ATTACH = f"{ENTITIES}.sessions", f"{FRONTENDS}.amqp.attach"
RULE, TRANSACTION = f"{ENTITIES}.rules.rule", f"{ENTITIES}.transaction.Transaction"
_accept_session, _return, _check = (
    MessageSessions.accept,
    QueuePartition.return_message,
    QueuePartition.check_acceptable,
)
_at = Directory.at


# Sessions.


def _newest_first(session: MessageSession, message: StoredMessage) -> None:
    heappush(session._waiting, (-message.sequence_number, message))


def _in_one(sessions: MessageSessions, message: StoredMessage) -> MessageSession:
    return sessions._get_or_create("a")


@Around
def _of_any_case(
    find: Callable[..., MessageSession], sessions: MessageSessions, session_id: str
) -> MessageSession:
    return find(sessions, session_id.casefold())


def _no_such(queue: Queue, numbers: Sequence[int], *what: object, **more: object) -> object:
    raise NoSuchMessageError(*numbers)


@Around
def _renamed(encode: Callable[[Rule], object], rule: Rule) -> object:
    return encode(replace(rule, name="other"))


def _shared(sessions: MessageSessions, session_id: str | None, now: int) -> SessionLock | None:
    found = sessions._sessions.get(session_id or "")
    if found is not None:
        found.lock = None
    return _accept_session(sessions, session_id, now)


def _counting(queue: QueuePartition, message: StoredMessage, now: int, *, has_failed: bool) -> None:
    _return(queue, message, now, has_failed=True)


def _with_any_id(queue: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    for message in messages:
        message.session_id = message.session_id or ""
    _check(queue, messages)


def _without_empty_id(queue: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    if any(each.session_id == "" for each in messages):
        raise SessionIdMissingError(queue.path)
    _check(queue, messages)


@Around
def _without_session(
    receiver: Callable[..., Node],
    factory: NodeFactory,
    link: SenderLink,
    attach: Attach,
    queue: Queue,
    now: object,
) -> Node:
    if queue.sessions is not None and not has_session_filter(attach):
        return QueueReceiver(factory._connection, link, queue, deletes=False)
    return receiver(factory, link, attach, queue, now)


@Around
def _as_the_queue(
    receiver: Callable[..., Node],
    factory: NodeFactory,
    link: SenderLink,
    attach: Attach,
    queue: Queue,
    now: object,
) -> Node:
    parent = queue.parent
    if parent is not None and parent.sessions is not None and not has_session_filter(attach):
        raise NotAllowedError("The dead letters of a session need a session.")
    return receiver(factory, link, attach, queue, now)


# Topics.


def _to_the_first(topic: TopicPartition, message: StoredMessage) -> None:
    for subscription in list(topic.subscriptions.values())[:1]:
        subscription.publish(message, LazyProperties(message, topic._codec))


def _with_a_reader(topic: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    if isinstance(topic, TopicPartition) and not topic.subscriptions:
        raise NotAllowedError("Nobody subscribes.")
    _check(topic, messages)


def _not_below_subscriptions(directory: Directory, path: str) -> Queue:
    if "/subscriptions/" in fold(path) and fold(path).endswith(DEAD_LETTER):
        raise EntityNotFoundError(path)
    return _at(directory, path)


# Transactions.


def _send_now(
    transaction: Transaction, queue: Queue, messages: Sequence[StoredMessage], now: int, via: object = None
) -> None:
    queue.enqueue_all(messages, now)


def _settle_now(transaction: Transaction, settlement: Settlement, now: int) -> None:
    settlement.apply(now)


# Partitions.


def _from_one(
    entity: Queue, start: int, limit: int, now: int, session_id: str | None = None
) -> list[StoredMessage]:
    return entity.partitions[0].peek(start, limit, now, session_id)


def _in_turn(entity: Queue, messages: Sequence[StoredMessage], now: int) -> QueuePartition:
    return entity._next_in_turn(now)


SABOTAGES = {
    "sessions are ignored": Sabotage(
        {
            "topics-8": "does not require sessions",
            "forwarding-6": "a message was expected",
        },
        ignores=("sessions",),
    ),
    "the newest of a session comes first": Sabotage(
        {"sessions-1": "they came as", "partitions-7": "they came as"},
        {f"{SESSIONS}.MessageSession.add": _newest_first},
    ),
    "there is one session": Sabotage(
        {"sessions-3": "timeout", "sessions-11": "listed were [['a'], []]"},
        {f"{SESSIONS}.MessageSessions._session_of": _in_one},
    ),
    "a session has many receivers": Sabotage(
        {"sessions-2": "two receivers hold the session"}, {f"{SESSIONS}.MessageSessions.accept": _shared}
    ),
    "nobody waits for a session": Sabotage(
        {"sessions-4": "timeout after 0."},
        {f"{FRONTENDS}.amqp.session_receiver.patience": lambda attach: 0},
    ),
    "the end of a session counts a delivery": Sabotage(
        {"sessions-5": "the delivery count is 1"}, {f"{QUEUE}.return_message": _counting}
    ),
    "sessions have no state": Sabotage(
        {"sessions-6": "it was None"}, {f"{SESSIONS}.MessageSessions.state": lambda *what: None}
    ),
    "the end of a session is another error": Sabotage(
        {"sessions-8": "detached with com.microsoft:message-lock-lost"},
        {"sbpair.broker.errors.SessionLostError.condition": "com.microsoft:message-lock-lost"},
    ),
    "a session id may be missing": Sabotage(
        {"sessions-9": "the answer is accepted"}, {f"{QUEUE}.check_acceptable": _with_any_id}
    ),
    "receivers need no session": Sabotage(
        {"sessions-9": "it was attached"}, {f"{ATTACH}.NodeFactory._queue_receiver": _without_session}
    ),
    "session ids are compared without regard to case": Sabotage(
        {"sessions-14": "the session is 'a'"},
        {f"{SESSIONS}.MessageSessions._get_or_create": _of_any_case},
    ),
    "deferred messages belong to all sessions": Sabotage(
        {"sessions-10": "it was received under the lock of 'b'"},
        {f"{QUEUE}.find_deferred": lambda queue, numbers, now, session: queue.all_in(DEFERRED, numbers)},
    ),
    "deferred messages are never all there": Sabotage(
        {"partitions-10": "receiving by number was refused"},
        {f"{ENTITIES}.queue.Queue.receive_deferred": _no_such},
    ),
    "rules have other names over AMQP": Sabotage(
        {"topics-7": "over AMQP they are ['other']"}, {f"{OPERATIONS}._encode_rule": _renamed}
    ),
    "an empty session id is none": Sabotage(
        {"sessions-12": "not-allowed"}, {f"{QUEUE}.check_acceptable": _without_empty_id}
    ),
    "dead letters need a session": Sabotage(
        {"deadletters-6": "need a session"}, {f"{ATTACH}.NodeFactory._queue_receiver": _as_the_queue}
    ),
    "a topic has one reader": Sabotage(
        {"topics-1": "a message was expected"}, {f"{ENTITIES}.topic.TopicPartition._offer_new": _to_the_first}
    ),
    "a topic needs a reader": Sabotage(
        {"topics-2": "not-allowed"}, {f"{QUEUE}.check_acceptable": _with_a_reader}
    ),
    "filters let everything through": Sabotage(
        {
            "topics-3": "they came as [b'3']",
            "topics-4": "they came as [b'1']",
            "topics-17": "a message came that should not",
        },
        {
            f"{RULE}.SqlFilter.matches": lambda *what: True,
            f"{RULE}.CorrelationFilter.matches": lambda *what: True,
        },
    ),
    "actions do nothing": Sabotage(
        {"topics-5": "they are ({'n'"},
        {f"{RULE}.SqlAction.changes": lambda *what: PropertyChanges()},
    ),
    "filters let nothing through": Sabotage(
        {"topics-6": "a message was expected", "topics-16": "a message was expected"},
        {f"{RULE}.SqlFilter.matches": lambda *what: False},
    ),
    "subscriptions have no dead letters": Sabotage(
        {"topics-15": "not-found"}, {f"{ENTITIES}.directory.Directory.at": _not_below_subscriptions}
    ),
    "transactions take effect at once": Sabotage(
        {
            "transactions-1": "2 were there before",
            "transactions-2": "2 are there",
            "transactions-4": "a message was expected",
            "transactions-5": "it was committed",
            "transactions-8": "a message came that should not",
        },
        {
            f"{TRANSACTION}.send": _send_now,
            f"{TRANSACTION}.settle": _settle_now,
            f"{TRANSACTION}.commit": lambda *what: None,
        },
    ),
    "transactions are otherwise unknown": Sabotage(
        {"transactions-6": "refused with amqp:not-found"},
        {"sbpair.broker.errors.UnknownTransactionError.condition": "amqp:not-found"},
    ),
    "what is not transferred is lost": Sabotage(
        {"transactions-7": "a message was expected"},
        {f"{QUEUE}.dead_letter_untransferred": lambda *what: None},
    ),
    "keys are ignored": Sabotage(
        {"partitions-1": "the partitions are {"},
        {f"{ENTITIES}.queue.Queue.partition_for": _in_turn},
    ),
    "a peek shows one partition": Sabotage(
        {"partitions-4": "of 3 were shown"}, {f"{ENTITIES}.queue.Queue.peek": _from_one}
    ),
}
