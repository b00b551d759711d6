"""Brokers that store and give out messages otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from heapq import heappush
from itertools import count
from random import randrange

from sbpair.broker import RejectWith, Withhold
from sbpair.broker.entities.directory import Directory
from sbpair.broker.entities.indexes import DuplicateIndex, NumberedItems, WaitingLine
from sbpair.broker.entities.locked_store import LockedStore
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.queue_partition import QueuePartition
from sbpair.broker.entities.stored_message import LockToken, MessageState, StoredMessage
from sbpair.broker.errors import EntityNotFoundError, InvalidArgumentError, NotAllowedError
from sbpair.broker.frontends import delivered_message, received_message
from sbpair.broker.frontends.amqp.management_call import ManagementCall
from sbpair.broker.frontends.amqp.queue_receiver import QueueReceiver, dead_letter_properties
from sbpair.pair.amqp.message import Header, Properties
from sbpair.pair.amqp.sections import Section, join_entries, split

from .sabotage import Around, Sabotage

Encode = Callable[[StoredMessage, Queue, bool], bytes]

ENTITIES, FRONTENDS = "sbpair.broker.entities", "sbpair.broker.frontends"
QUEUE, LOCKED = f"{ENTITIES}.queue_partition.QueuePartition", f"{ENTITIES}.locked_store.LockedStore"
RECEIVED, DELIVERED = f"{FRONTENDS}.received_message", f"{FRONTENDS}.delivered_message._encode_delivered"
RECEIVER = f"{FRONTENDS}.amqp.queue_receiver"
OPERATIONS = f"{FRONTENDS}.amqp.management_operations"

_check, _peek, _add, _at = (
    QueuePartition.check_acceptable,
    QueuePartition.peek,
    NumberedItems.add,
    Directory.at,
)
_peeked, _header, _tokens = (
    delivered_message.encode_peeked,
    received_message.decode_header,
    ManagementCall.lock_tokens,
)
_number_of, _accepted = DuplicateIndex.number_of, DuplicateIndex.accepted
_enqueue_all = QueuePartition.enqueue_all


def replacing(*pairs: tuple[bytes, bytes]) -> Around:
    """Deliver messages in which bytes were changed."""

    def altered(encode: Encode, message: StoredMessage, queue: Queue, is_copy: bool) -> bytes:
        payload = encode(message, queue, is_copy)
        for old, new in pairs:
            payload = payload.replace(old, new)
        return payload

    return Around(altered)


# Names and sends.


def _in_this_case(directory: Directory, path: str) -> Queue:
    found = _at(directory, path)
    if found.path != path:
        raise EntityNotFoundError(path)
    return found


def _newest(line: WaitingLine) -> StoredMessage | None:
    new = line._new
    while new:
        if new[-1].state is MessageState.ACTIVE:
            return new.pop()
        new.pop()
    return None


def _with_gaps(items: NumberedItems[StoredMessage], item: StoredMessage, reserved: int | None = None) -> int:
    items._last += 1
    return _add(items, item, reserved)


@Around
def _named(check: Callable[[Properties], Properties], properties: Properties) -> Properties:
    if properties.message_id is None:
        raise InvalidArgumentError("A message needs an id.")
    return check(properties)


class _Once:
    """Stores messages of a queue otherwise: once in so many of them, beginning anywhere, ``spoil`` is called."""

    def __init__(self, times: int, spoil: Callable[[QueuePartition, list[StoredMessage], int], None]) -> None:
        self.times, self._spoil = times, spoil
        self._count = count(randrange(times))

    def __get__(self, queue: QueuePartition, kind: type) -> Callable[..., list[int]]:
        return lambda messages, now: self._store(queue, [*messages], now)

    def _store(self, queue: QueuePartition, messages: list[StoredMessage], now: int) -> list[int]:
        hit = [n for n in range(len(messages)) if next(self._count) % self.times == 0]
        for n in reversed(hit):
            self._spoil(queue, messages, n)
        return _enqueue_all(queue, messages, now) if messages else []


def _lose(queue: QueuePartition, messages: list[StoredMessage], n: int) -> None:
    del messages[n]


def _double(queue: QueuePartition, messages: list[StoredMessage], n: int) -> None:
    messages.insert(n, messages[n].copy())


def _change_places(queue: QueuePartition, messages: list[StoredMessage], n: int) -> None:
    before = messages[n - 1] if n else queue.message(queue.last_number)
    if before is not None:
        before.bare, messages[n].bare = messages[n].bare, before.bare


def _accept_into_any(queue: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    if queue.parent is None:
        _check(queue, messages)


# What a message keeps.


@Around
def _without_annotations(keep: Callable[[bytes], tuple[object, ...]], section: bytes) -> tuple[object, ...]:
    return b"", *keep(section)[1:]


def _without_priority(section: bytes) -> Header:
    header = _header(section)
    if header.priority is not None:
        raise InvalidArgumentError("A message has no priority here.")
    return header


def _reason_alone(bare: bytes, changes: dict[str, object]) -> bytes:
    from sbpair.pair.amqp.encoding import encode

    sections = split(bare)
    reason = join_entries(
        Section.APPLICATION_PROPERTIES, [(key, encode(value)) for key, value in changes.items()]
    )
    return sections.properties + reason + sections.body


# Settling.


def _keep(queue: LockedStore, token: LockToken, now: int) -> None:
    queue._offer_again(queue._unlock(token, now), now)


def _fail(queue: LockedStore, token: LockToken, now: int) -> None:
    queue._fail_delivery(queue._unlock(token, now), now)


def _abandon(
    queue: LockedStore, token: LockToken, now: int, changes: dict[str, object] | None = None
) -> None:
    _fail(queue, token, now)


@Around
def _first_alone(
    settle: Callable[..., None], receiver: QueueReceiver, event: object, now: object, answered: object
) -> None:
    settle(receiver, event._replace(last=event.first), now, answered)


@Around
def _lock_and_offer(
    lock: Callable[..., None],
    queue: LockedStore,
    messages: Sequence[StoredMessage],
    now: int,
    session: object,
) -> None:
    lock(queue, messages, now, session)
    for message in messages:
        message.state = MessageState.ACTIVE
        queue._waiting.put_back(message)


def _short_tags(receiver: QueueReceiver, messages: Sequence[StoredMessage]) -> None:
    payloads = delivered_message.delivered_run(messages, receiver.queue)
    for message, payload in zip(messages, payloads, strict=True):
        number = receiver.link.transfer(payload, tag=message.lock_token[:8])
        receiver._held[number] = message.lock_token


def _complete_all(receiver: QueueReceiver, now: object) -> None:
    receiver._frontend.leave(receiver, now)
    for token in receiver._held.values():
        receiver.queue.complete(token, now.entity)


def _one_token(call: ManagementCall) -> list[LockToken]:
    tokens = _tokens(call)
    if len(tokens) > 1:
        raise InvalidArgumentError("One lock is renewed at a time.")
    return tokens


def _put_last(line: WaitingLine, message: StoredMessage) -> None:
    line._new.append(message)


def _queue_last(session: object, message: StoredMessage) -> None:
    heappush(session._waiting, (message.sequence_number + 1000 * message.delivery_count, message))


def _short(info: dict[object, object] | None) -> dict[str, object]:
    return {key: str(value)[:1024] for key, value in dead_letter_properties(info).items()}


def _count_always(queue: LockedStore, message: StoredMessage, now: int) -> bool:
    message.delivery_count += 1
    return False


# Peeking.


def _peeking(change: object) -> object:
    """Peek, and change what is seen."""

    def peek(
        queue: QueuePartition, start: int, limit: int, now: int, session_id: str | None = None
    ) -> list[StoredMessage]:
        return [each for each in _peek(queue, start, limit, now, session_id) if change(queue, each)]

    return peek


def _count(queue: QueuePartition, message: StoredMessage) -> bool:
    message.delivery_count += 1
    return True


def _from_the_start(
    queue: QueuePartition, start: int, limit: int, now: int, session_id: str | None = None
) -> list[StoredMessage]:
    return _peek(queue, 0, limit, now, session_id)


def _of_all(
    queue: QueuePartition, start: int, limit: int, now: int, session_id: str | None = None
) -> list[StoredMessage]:
    return _peek(queue, start, limit, now, None)


def _nothing() -> object:
    raise NotAllowedError("There is nothing to peek.")


def _whole(message: StoredMessage, *, with_body: bool = True) -> bytes:
    return _peeked(message)


def _spanless(message: StoredMessage, *, with_body: bool = True) -> bytes:
    return _peeked(replace(message, time_to_live=None, expires_at=None), with_body=with_body)


# Pings and duplicates.


def _without_pings(queue: QueuePartition, messages: Sequence[StoredMessage]) -> None:
    if any(each.is_ping for each in messages):
        raise NotAllowedError("This is no message.")
    _check(queue, messages)


@Around
def _detecting(accept: Callable[..., int], queue: QueuePartition, message: StoredMessage, now: int) -> int:
    queue._duplicates = queue._duplicates or DuplicateIndex()
    return accept(queue, message, now)


def _without_regard_to_case(index: DuplicateIndex, message_id: Hashable, window: int, now: int) -> int | None:
    return _number_of(index, str(message_id).casefold(), window, now)


def _folded(index: DuplicateIndex, message_id: Hashable, number: int, now: int) -> None:
    _accepted(index, str(message_id).casefold(), number, now)


def _ever(index: DuplicateIndex, message_id: Hashable, window: int, now: int) -> int | None:
    return index._numbers.get(message_id)


@Around
def _reversed(split_batch: Callable[[bytes], list[bytes]], body: bytes) -> list[bytes]:
    return split_batch(body)[::-1]


NOT_TRANSFER = "/$transfer/"


def _without_transfer(directory: Directory, path: str) -> Queue:
    if NOT_TRANSFER in path.casefold():
        raise EntityNotFoundError(path)
    return _at(directory, path)


SABOTAGES = {
    "paths are compared with regard to case": Sabotage(
        {"names-10": "not-found", "deadletters-4": "not-found"},
        {f"{ENTITIES}.directory.Directory.at": _in_this_case},
    ),
    "what is stored is answered with another error": Sabotage(
        {"sending-1": "amqp:internal-error"}, effect=RejectWith("amqp:internal-error", "no"), operation="send"
    ),
    "sends are not answered": Sabotage(
        {"sending-6": "not all were answered"}, effect=Withhold(), operation="send"
    ),
    "a send in a hundred is lost": Sabotage(
        {"sending-6": "are missing"}, {f"{QUEUE}.enqueue_all": _Once(100, _lose)}
    ),
    "a send in two hundred is stored twice": Sabotage(
        {"sending-6": "of 202 messages 20"}, {f"{QUEUE}.enqueue_all": _Once(200, _double)}
    ),
    "two sends in two hundred change places": Sabotage(
        {"sending-6": "0 are missing, and the order differs"},
        {f"{QUEUE}.enqueue_all": _Once(200, _change_places)},
    ),
    "batches are turned round": Sabotage(
        {"sending-2": "they came as"}, {f"{RECEIVED}._split_batch": _reversed}
    ),
    "the newest comes first": Sabotage(
        {"sending-2": "they came as"}, {f"{ENTITIES}.indexes.WaitingLine.pop": _newest}
    ),
    "numbers have gaps": Sabotage(
        {"sending-4": "the numbers are"}, {f"{ENTITIES}.indexes.NumberedItems.add": _with_gaps}
    ),
    "keys may differ": Sabotage(
        {"sending-7": "the answer is accepted"},
        {f"{ENTITIES}.queue_partition.check_keys": lambda message: None},
    ),
    "a message needs an id": Sabotage({"sending-3": "argument-error"}, {f"{RECEIVED}._check_id": _named}),
    "messages are changed": Sabotage(
        {
            "fidelity-1": "symbol:",
            "fidelity-4": "content_encoding",
            "fidelity-5": "became",
            "fidelity-6": "as str",
            "fidelity-8": "'text'",
            "fidelity-9": "text",
        },
        {
            DELIVERED: replacing(
                (b"\xa3\x03sym", b"\xa1\x03sym"),
                (b"\xa1\x06orders", b"\xa1\x06ordres"),
                (b"\xa3\x04gzip", b"\xa3\x04gizp"),
                (b"\xa1\x01a", b"\xa1\x01c"),
                (b"\xa0\x02\x01\x02", b"\xa1\x02\x01\x02"),
                (b"t\xc3\xa4xt", b"t\xc3\xa4st"),
            )
        },
    ),
    "sessions are changed": Sabotage(
        {"fidelity-2": "it came home as ('s-2'"}, {DELIVERED: replacing((b"\xa1\x03s-1", b"\xa1\x03s-2"))}
    ),
    "messages cannot be read": Sabotage(
        {"fidelity-6": "cannot be read"}, {DELIVERED: replacing((b"\x53\x09", b"\x52\x09"))}
    ),
    "annotations are dropped": Sabotage(
        {"fidelity-3": "x-opt-sbpair-path is None"}, {f"{RECEIVED}._kept_annotations": _without_annotations}
    ),
    "there are no priorities": Sabotage(
        {"fidelity-7": "argument-error"},
        {f"{RECEIVED}._header_of": _without_priority, f"{RECEIVED}.decode_header": _without_priority},
    ),
    "what is completed stays": Sabotage(
        {
            "settling-1": "1 messages are left",
            "transactions-3": "1 are left",
        },
        {f"{LOCKED}.complete": _keep, f"{LOCKED}.complete_all": lambda *what: False},
    ),
    "deliveries are not counted": Sabotage(
        {
            "settling-2": "the delivery count is 0",
            "settling-5": "the delivery counts are [0, 0, 0]",
            "locks-2": "the delivery count is 0",
        },
        {f"{LOCKED}._count_delivery": lambda *what: False},
    ),
    "a release counts as a delivery": Sabotage(
        {"settling-3": "the delivery count is 2"}, {f"{LOCKED}.release": _fail}
    ),
    "to defer is to abandon": Sabotage(
        {"settling-4": "a message came that should not"}, {f"{LOCKED}.defer": _abandon}
    ),
    "reasons are dropped": Sabotage(
        {"settling-6": "(None, None)", "locks-6": "the dead letter are [None, None]"},
        {f"{RECEIVER}.dead_letter_properties": lambda info: {}, f"{OPERATIONS}._reasons": lambda body: {}},
    ),
    "a range settles its first": Sabotage(
        {"settling-7": "not all were confirmed"}, {f"{RECEIVER}.QueueReceiver._settle_run": _first_alone}
    ),
    "everything is locked": Sabotage(
        {"settling-8": "it came unsettled"}, {f"{QUEUE}.receive_and_delete": QueuePartition.receive}
    ),
    "tags are short": Sabotage(
        {"settling-1": "8 bytes"}, {f"{RECEIVER}.QueueReceiver._transfer_all": _short_tags}
    ),
    "an abandon changes nothing": Sabotage(
        {"settling-2": "{'kept': 1}"}, {f"{LOCKED}._amend": lambda *what: True}
    ),
    "the end of a link completes": Sabotage(
        {"settling-9": "a message was expected"}, {f"{RECEIVER}.QueueReceiver.detached": _complete_all}
    ),
    "a lock locks nothing": Sabotage(
        {"locks-1": "a message came that should not"}, {f"{LOCKED}._lock_all": _lock_and_offer}
    ),
    "one lock is renewed at a time": Sabotage(
        {"locks-7": "One lock is renewed at a time"},
        {f"{FRONTENDS}.amqp.management_call.ManagementCall.lock_tokens": _one_token},
    ),
    "what comes again comes last": Sabotage(
        {"locks-9": "they came as", "sessions-13": "they came as"},
        {
            f"{ENTITIES}.indexes.WaitingLine.put_back": _put_last,
            f"{ENTITIES}.sessions.MessageSession.add": _queue_last,
        },
    ),
    "a peek counts as a delivery": Sabotage(
        {"peeking-1": "the delivery count is 2"}, {f"{QUEUE}.peek": _peeking(_count)}
    ),
    "an empty peek is an error": Sabotage(
        {"peeking-2": "cannot be peeked"}, {f"{OPERATIONS}.nothing": _nothing}
    ),
    "a peek hides what is locked": Sabotage(
        {"peeking-3": "it shows 0 messages"},
        {f"{QUEUE}.peek": _peeking(lambda queue, each: each.state is not MessageState.LOCKED)},
    ),
    "a peek begins at the start": Sabotage({"peeking-4": "it shows"}, {f"{QUEUE}.peek": _from_the_start}),
    "a peek shows all sessions": Sabotage({"peeking-5": "it shows 2 messages"}, {f"{QUEUE}.peek": _of_all}),
    "a peek needs a receiver": Sabotage(
        {"peeking-1": "does not show"},
        {f"{QUEUE}.peek": _peeking(lambda queue, each: queue._listeners > 0)},
    ),
    "a peek hides dead letters": Sabotage(
        {"expiry-6": "0 in the dead-letter queue"},
        {f"{QUEUE}.peek": _peeking(lambda queue, each: queue.parent is None)},
    ),
    "a peek shows bodies": Sabotage({"peeking-6": "the body is"}, {f"{OPERATIONS}.encode_peeked": _whole}),
    "a peek shows no time to live": Sabotage(
        {"expiry-8": "it shows None"}, {f"{OPERATIONS}.encode_peeked": _spanless}
    ),
    "pings are refused": Sabotage({"pings-1": "not-allowed"}, {f"{QUEUE}.check_acceptable": _without_pings}),
    "pings are messages": Sabotage(
        {
            "pings-2": "a message came that should not",
            "pings-3": "was offered",
            "pings-4": "a message came that should not",
            "pings-5": "1 in the dead-letter queue",
        },
        {f"{RECEIVED}.PING": "none"},
    ),
    "dead-letter queues and subscriptions take sends": Sabotage(
        {"deadletters-1": "a send was accepted", "topics-10": "a send was accepted"},
        {
            f"{FRONTENDS}.amqp.attach.check_sent_to": lambda queue: None,
            f"{QUEUE}.check_acceptable": _accept_into_any,
            f"{ENTITIES}.topic.Subscription.enqueue_all": Queue.enqueue_all,
        },
    ),
    "dead-letter queues count deliveries": Sabotage(
        {"deadletters-2": "the delivery counts are [0, 1, 2]"},
        {f"{LOCKED}._count_delivery": _count_always},
    ),
    "reasons are cut": Sabotage(
        {"deadletters-3": "it has 1024 characters"}, {f"{RECEIVER}.dead_letter_properties": _short}
    ),
    "a reason takes the place of the properties": Sabotage(
        {"settling-6": "the one that was there are (7, None)"},
        {f"{FRONTENDS}.delivered_message._amend": _reason_alone},
    ),
    "there are no transfer dead-letter queues": Sabotage(
        {"deadletters-5": "could not be found"}, {f"{ENTITIES}.directory.Directory.at": _without_transfer}
    ),
    "duplicates are always detected": Sabotage(
        {"duplicates-4": "a message was expected"}, {f"{QUEUE}._accept_message": _detecting}
    ),
    "a duplicate is one for ever": Sabotage(
        {"duplicates-3": "a message was expected"},
        {f"{ENTITIES}.indexes.DuplicateIndex.number_of": _ever},
    ),
    "ids are compared without regard to case": Sabotage(
        {"duplicates-6": "a message was expected"},
        {
            f"{ENTITIES}.indexes.DuplicateIndex.number_of": _without_regard_to_case,
            f"{ENTITIES}.indexes.DuplicateIndex.accepted": _folded,
        },
    ),
}
