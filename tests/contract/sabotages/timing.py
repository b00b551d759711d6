"""Brokers whose locks, times to live and schedules are otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sbpair.broker.entities.audit_recorder import Removal
from sbpair.broker.entities.locked_store import LockedStore
from sbpair.broker.entities.message_store import MessageStore
from sbpair.broker.entities.queue_partition import QueuePartition
from sbpair.broker.entities.sessions import MessageSessions, SessionLock
from sbpair.broker.entities.stored_message import LockToken, StoredMessage
from sbpair.broker.errors import InvalidArgumentError, LockLostError

from .keeping import DELIVERED, ENTITIES, LOCKED, QUEUE, RECEIVED, replacing
from .sabotage import Around, Sabotage

WIRE, LIMITS = "sbpair.contract.subjects.wire", "sbpair.broker.frontends.amqp.connection_limits"
_check, _complete = QueuePartition.check_acceptable, LockedStore.complete
_pop_run = MessageStore.pop_run


def _as_it_was(queue: LockedStore, token: LockToken, now: int) -> int:
    return queue.locked_message(token, now).locked_until


def _session_as_it_was(sessions: MessageSessions, lock: SessionLock, now: int) -> int:
    sessions.check(lock, now)
    return lock.locked_until


def _unless_expired(queue: LockedStore, token: LockToken, now: int) -> None:
    if queue._expired(queue.locked_message(token, now), now):
        raise LockLostError
    _complete(queue, token, now)


def _from_the_send(queue: MessageStore, message: StoredMessage) -> None:
    if message.time_to_live is not None and message.expires_at is None:
        message.expires_at = time.time_ns() // 1_000_000 + message.time_to_live


def _expiring_dead_letters(
    queue: MessageStore, line: object, limit: int, room: int, now: int
) -> list[StoredMessage]:
    found = _pop_run(queue, line, limit, room, now)
    gone = [
        each for each in found if queue.parent is not None and each.enqueued_at + each.time_to_live <= now
    ]
    for each in gone:
        queue._remove(each, Removal.EXPIRED)
    return [each for each in found if each not in gone]


@Around
def _at_once(accept: Callable[..., int], queue: QueuePartition, message: StoredMessage, now: int) -> int:
    message.scheduled_for = None
    return accept(queue, message, now)


def _never_late(queue: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    if any(each.scheduled_for is not None and each.scheduled_for < time.time() * 1000 for each in messages):
        raise InvalidArgumentError("The scheduled time is past.")
    _check(queue, messages)


SABOTAGES = {
    "time stands still": Sabotage(
        {
            "locks-3": "it was renewed until",
            "expiry-1": "a message came that should not",
            "expiry-4": "a message came that should not",
            "expiry-6": "it was received after its time to live",
            "forwarding-7": "a message came that should not",
        },
        stands=True,
    ),
    "annotations have other names": Sabotage(
        {
            "locks-4": "x-opt-locked-until is None",
            "forwarding-5": "x-opt-enqueue-sequence-number is None",
        },
        {
            DELIVERED: replacing(
                (b"x-opt-locked-until", b"x-opt-locked-while"),
                (b"x-opt-enqueue-sequence-number", b"x-opt-enqueue-sequence-ordinal"[:29]),
            )
        },
    ),
    "a renewal changes nothing": Sabotage(
        {"locks-5": "the renewal after 3.5 s ends 0.0 s later", "sessions-7": "after the enqueued time"},
        {
            f"{LOCKED}.renew": _as_it_was,
            f"{ENTITIES}.sessions.MessageSessions.renew": _session_as_it_was,
        },
    ),
    "the reason of expiry is another": Sabotage(
        {"expiry-2": "the reason is 'Expired'"},
        {f"{ENTITIES}.message_store.EXPIRED": {"DeadLetterReason": "Expired"}},
    ),
    "what is locked expires": Sabotage(
        {"expiry-3": "message-lock-lost"},
        {f"{LOCKED}.complete": _unless_expired, f"{LOCKED}.complete_all": lambda *what: False},
    ),
    "a time to live begins with the send": Sabotage(
        {"expiry-7": "a message was expected"},
        {f"{ENTITIES}.message_store.MessageStore._stamp": _from_the_send},
    ),
    "a time to live is in the header only": Sabotage(
        {"expiry-9": "a message came that should not"},
        {f"{RECEIVED}._time_to_live": lambda ttl, properties: ttl},
    ),
    "dead letters expire": Sabotage(
        {"expiry-10": "a message was expected"},
        {f"{ENTITIES}.message_store.MessageStore.pop_run": _expiring_dead_letters},
    ),
    "schedules are ignored": Sabotage(
        {
            "schedule-1": "a message came that should not",
            "schedule-3": "x-opt-message-state is Int(0)",
            "schedule-4": "cancelling was refused",
            "schedule-5": "it is still",
            "topics-13": "the topic counts 0",
        },
        {f"{QUEUE}._accept_message": _at_once},
    ),
    "what is scheduled late is refused": Sabotage(
        {"schedule-2": "argument-error"}, {f"{QUEUE}.check_acceptable": _never_late}
    ),
    "what is idle stays": Sabotage(
        {
            "wire-9": "it was there after",
            "wire-10": "it was there after",
            "wire-11": "it was there after",
        },
        {f"{WIRE}.NEW": 1.0, f"{WIRE}.BARE": 1.0, f"{WIRE}.UNUSED": 1.0},
    ),
    "what is idle ends early": Sabotage(
        {"wire-10": "closed after 1 s already", "wire-11": "detached after 1 s already"},
        {f"{LIMITS}.BARE_SPAN": 1.0, f"{LIMITS}.LINK_SPAN": 1.0},
    ),
    "a queue is never full": Sabotage(
        {"errors-11": "more than 2 MB were accepted"}, {"sbpair.contract.subjects.errors.FULL": 2}
    ),
    "what cannot be cancelled is an argument": Sabotage(
        {"schedule-4": "the condition is"},
        {"sbpair.broker.errors.NoSuchMessageError.condition": "com.microsoft:argument-error"},
    ),
}
