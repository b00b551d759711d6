"""Send requests: the messages of one call, and how many of them are parked.

The caller's input is frozen before the first attempt: a generator would be exhausted at the second, and other
iterables could change. A batch created by a paired sender keeps copies of its messages, so that they can be
parked individually. The probes of a failed-over entity are requests too. Performs no I/O.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair.pair.envelope import aliases, copies, park
from sbpair.pair.envelope.copies import Message
from sbpair.pair.tracing import current

from ..errors import MixedSessionsError, ParkedScheduleError
from ..outcome import Location, Stored, StoredIn
from . import sdk
from .headroom import encoded_size, largest_size

if TYPE_CHECKING:
    from sbpair.pair.envelope.ordering import Numbering, OrderStamp


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch that keeps its messages as they were when added.

    ``add_message`` raises ReservedPropertyError in addition to the errors of the SDK's batch.
    """

    def __init__(self, max_size_in_bytes: int | None = None, path: str = "") -> None:
        super().__init__(max_size_in_bytes)
        self._path = path
        self.originals: list[AmqpAnnotatedMessage] = []

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        original = prepare(message, self._path)
        if current.active is None:
            super().add_message(original)
        else:
            with current.only(current.SdkSpans.ATTEMPTS):  # the context of its creation is in it already
                super().add_message(original)
        self.originals.append(original)

    def freeze(self) -> SendRequest:
        """Return the request for the messages that the batch contains now."""
        return SendRequest(self, list(self.originals))

    def _from_list(self, messages: Iterable[ServiceBusMessage]) -> None:
        """Override of the SDK's internal fill, which would bypass :meth:`add_message`."""
        for message in messages:
            self.add_message(message)


ENVELOPE_ROOM = 1024
"""Bytes kept free in a batch for the envelope, which the SDK adds without counting it."""


class ParkedOrder(NamedTuple):
    """The data that parked copies of an ordered session carry."""

    parked_id: str
    numbering: Numbering

    def next(self) -> tuple[str, OrderStamp]:
        """Return the parked session id, and the stamp of the next message."""
        return self.parked_id, self.numbering.next()


class BatchMaker(Protocol):
    """Creates empty batches, by default of the size the link allows: an SDK sender, for one."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch: ...


class LinkBatches:
    """Creates batches of the size that a link allows, without awaiting, unlike the asyncio SDK sender."""

    def __init__(self, kind: type[ServiceBusMessageBatch], limit: int) -> None:
        self._kind = kind
        self._limit = limit

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return self._kind(max_size_in_bytes or self._limit)


class PrimarySender(Protocol):
    """The methods of an SDK sender, blocking or asyncio, that a request uses."""

    # The SDK accepts lists of mixed types, although its annotations do not.
    def send_messages(self, message: Any, *, timeout: float | None = None) -> object: ...  # noqa: ANN401

    def create_message_batch(self) -> object: ...

    def schedule_messages(
        self,
        messages: Any,  # noqa: ANN401
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> object: ...

    def cancel_scheduled_messages(
        self, sequence_numbers: list[int], *, timeout: float | None = None
    ) -> object: ...


class SendRequest:
    """The frozen messages of one call, and the number of them that are parked.

    ``outgoing`` is sent to the primary: the message, a list of messages, or the batch.
    """

    __slots__ = (
        "_checksums",
        "_ids",
        "_parked",
        "_parked_bytes",
        "_stored",
        "answer",
        "deadlines",
        "messages",
        "outgoing",
        "parked_order",
        "rewritten",
        "session",
    )

    is_for_primary_only = False
    wants_numbers = False
    """Whether the caller wants sequence numbers, which only the primary has."""
    is_promised = False
    """Whether the messages were already acknowledged to the caller, so that local checks must not refuse them."""

    def __init__(
        self, outgoing: Message | list[Message] | ServiceBusMessageBatch, messages: Sequence[Message]
    ) -> None:
        self.outgoing = outgoing
        self.messages = messages
        self.rewritten: list[AmqpAnnotatedMessage] | None = None
        self.deadlines: Sequence[int | None] | None = None
        self.answer: object = None  # the primary's result
        self.session: str | None = None  # whose order is kept
        self.parked_order: ParkedOrder | None = None
        self._parked = self._parked_bytes = 0
        self._ids: tuple[str, ...] | None = None
        self._checksums: tuple[int, ...] | None = None
        self._stored: list[tuple[int, int]] = []  # (backlog, end index of the messages it accepted)

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        """Send the request to the primary through an SDK sender; return the result, or an awaitable of it."""
        return sender.send_messages(self.outgoing, timeout=timeout)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def parked(self) -> int:
        """Number of leading messages that backlog queues have accepted."""
        return self._parked

    @property
    def parked_bytes(self) -> int:
        """The size of those messages, as encoded."""
        return self._parked_bytes

    def size(self) -> int:
        """The size of all messages in bytes, except for parts that are quick to transfer."""
        if isinstance(self.outgoing, ServiceBusMessageBatch):
            return self.outgoing.size_in_bytes
        return sum(sdk.body_size(copies.raw(message)) for message in self.messages)

    def is_smaller(self, limit: int) -> bool:
        """Whether every message is certainly smaller than ``limit`` bytes; False if that would take a closer look."""
        return False

    def unstored_messages(self) -> list[tuple[Message, int | None]]:
        """Return the messages not known to be accepted by a broker, each with its deadline."""
        deadlines = self.deadlines or [None] * len(self.messages)
        return list(zip(self.messages, deadlines, strict=True))[self._parked :]

    def message_ids(self) -> tuple[str, ...]:
        if self._ids is None:
            self._ids = tuple([copies.message_id_of(message) for message in self.messages])
        return self._ids

    def checksums(self) -> tuple[int, ...]:
        """Return the checksums of the bodies, as in journals."""
        if self._checksums is None:
            self._checksums = tuple([sdk.body_checksum(copies.raw(message)) for message in self.messages])
        return self._checksums

    def key(self) -> str | None:
        """Return the session id or partition key of all messages; None if they have none or several."""
        keys = {copies.key_of(message) for message in self.messages}
        return keys.pop() if len(keys) == 1 else None

    def carry_trace(self) -> None:
        """Store the caller's trace context in the messages, which are sent later."""
        for message, _ in self.unstored_messages():
            sdk.carry_trace(copies.raw(message))

    def fix_deadlines(self, first_attempt: int) -> None:
        """Fix the deadlines, once: times to live count from ``first_attempt``."""
        if self.deadlines is None:
            self.deadlines = [park.deadline_of(message, first_attempt) for message in self.messages]

    def rewrite(self, path: str) -> None:
        """Create the copies to park, once. Raises ValueError if a message contains an invalid time."""
        if self.rewritten is None:
            order = self.parked_order
            self.rewritten = [
                park.park(message, path, deadline, None if order is None else order.next())
                for message, deadline in self.unstored_messages()
            ]

    def encoding_fault(self) -> Exception | None:
        """Return the error of a message that cannot be encoded, or None.

        Batches encode messages when they are added.
        """
        if isinstance(self.outgoing, ServiceBusMessageBatch):
            return None
        try:
            for message in self.messages:
                encoded_size(message)
        except Exception as fault:  # of any type: the SDK cannot send it
            return fault
        return None

    def backlog_ends(self) -> tuple[tuple[int, int], ...]:
        """(backlog, end index) for each backlog queue that accepted messages so far, in order."""
        return tuple(self._stored)

    def locations(self) -> tuple[Location, ...]:
        """The locations of the messages that backlog queues accepted so far, in order."""
        ids, start, found = self.message_ids(), 0, []
        for backlog, end in self._stored:
            found.append(Location(StoredIn.BACKLOG, backlog, ids[start:end]))
            start = end
        return tuple(found)

    def chunks(self, maker: BatchMaker, backlog: int) -> Iterator[Message | ServiceBusMessageBatch]:
        """Yield the messages still to be parked, in order, as messages and batches that fit the link.

        Request the next one only after the broker has accepted the last.
        """
        rewritten = self.rewritten or []
        while self._parked < len(rewritten):
            if len(rewritten) == self._parked + 1:
                last = rewritten[-1]
                yield sdk.wrap(last)
                # afterwards: to look at all its fields makes each slower to read, and the SDK reads them
                size, taken = 1, largest_size(last)
            else:
                remaining = rewritten[self._parked :]
                limit = maker.create_message_batch().max_size_in_bytes
                batch = maker.create_message_batch(max(limit - ENVELOPE_ROOM, limit // 2))
                size = _fill(batch, remaining)
                taken = batch.size_in_bytes if size else encoded_size(remaining[0])
                yield (
                    batch if size else sdk.wrap(remaining[0])
                )  # too large for a batch, but perhaps not alone
            self._parked_bytes += taken
            self._accepted(backlog, max(size, 1))

    def _accepted(self, backlog: int, count: int) -> None:
        self._parked += count
        if self._stored and self._stored[-1][0] == backlog:
            self._stored.pop()
        self._stored.append((backlog, self._parked))


def one_session(path: str, messages: Sequence[Message]) -> str | None:
    """Return the session of these messages, None if they have none.

    Raises MixedSessionsError when they are not all of one session.
    """
    sessions = {copies.session_of(message) for message in messages}
    if len(sessions) > 1:
        raise MixedSessionsError(path)
    return next(iter(sessions), None)


def in_session(given: Message | SendRequest, session: str | None) -> SendRequest:
    """Return the request for one prepared message, or ``given``, with the session whose order is kept."""
    request = given if isinstance(given, SendRequest) else SendRequest(given, (given,))
    request.session = session
    return request


class SpooledRequest(SendRequest):
    """Messages from the spool, which have ``stored_bytes`` there."""

    __slots__ = ("stored_bytes",)

    is_promised = True

    def __init__(
        self,
        outgoing: Message | list[Message] | ServiceBusMessageBatch,
        messages: Sequence[Message],
        stored_bytes: int = 0,
    ) -> None:
        super().__init__(outgoing, messages)
        self.stored_bytes = stored_bytes

    def size(self) -> int:
        return self.stored_bytes


def prepare(message: object, path: str) -> AmqpAnnotatedMessage:
    """Return the copy of a message that is sent; while tracing is on, with the context of its creation.

    Raises as :func:`sbpair.pair.envelope.copies.prepare` does.
    """
    twin = copies.prepare(message)
    if current.active is not None:
        current.active.create(twin, path)
    return twin


def freeze(given: object, path: str = "") -> SendRequest:
    """Return the request for the input of ``send_messages``, unaffected by later changes of the caller.

    ``path`` is the entity. Raises TypeError for anything but messages, batches and iterables of messages, and
    ReservedPropertyError.
    """
    if isinstance(given, PairedMessageBatch):
        return given.freeze()
    if isinstance(given, ServiceBusMessageBatch):
        return SendRequest(given, _contents(given))
    is_message = isinstance(given, (ServiceBusMessage, AmqpAnnotatedMessage, Mapping, str, bytes))
    if not is_message and isinstance(given, Iterable):
        messages: list[Message] = [prepare(message, path) for message in given]
        return SendRequest(messages, messages)
    message = prepare(given, path)
    return SendRequest(message, (message,))


def _contents(batch: ServiceBusMessageBatch) -> Sequence[Message]:
    kept = sdk.messages_of(batch)
    if kept is None:
        raise TypeError(
            "the messages of this batch cannot be read with this version of azure-servicebus; create the batch "
            "with create_message_batch() of the paired sender"
        )
    return [_traced_twin(message) for message in kept]


def _traced_twin(message: ServiceBusMessage) -> AmqpAnnotatedMessage:
    """Return the copy of a message in a batch of the SDK, with the context that the SDK gave it when it was added."""
    twin = copies.prepare(message)
    context = {} if current.active is None else sdk.creation_context(message)
    if context:
        twin.application_properties = {**(twin.application_properties or {}), **context}
    return twin


def _fill(batch: ServiceBusMessageBatch, messages: Sequence[AmqpAnnotatedMessage]) -> int:
    for count, message in enumerate(messages):
        try:
            sdk.add(batch, message)
        except MessageSizeExceededError:
            return count
    return len(messages)


PARKED = -1
"""The sequence number returned for a parked scheduled message, which the primary has not numbered yet."""


class ScheduleRequest(SendRequest):
    """Messages to be enqueued at a given time."""

    __slots__ = ("at",)
    wants_numbers = True

    def __init__(self, outgoing: list[copies.Message], at: datetime) -> None:
        super().__init__(outgoing, outgoing)
        self.at = at

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        # Copies: the SDK modifies the messages it schedules.
        own = [copies.snapshot(message) for message in self.messages]
        return sender.schedule_messages(own, self.at, timeout=timeout)

    def sequence_numbers(self, outcome: Stored) -> list[int]:
        """Return one number per message: the primary's, or PARKED."""
        if outcome.backlog is None and not outcome.is_spooled:
            return list(cast("Iterable[int]", self.answer))
        return [PARKED] * len(self)


class Cancellation(SendRequest):
    """Sequence numbers to cancel on the primary. A cancellation cannot be parked."""

    __slots__ = ("numbers",)

    is_for_primary_only = True

    def __init__(self, numbers: list[int]) -> None:
        super().__init__([], [])
        self.numbers = numbers

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.cancel_scheduled_messages(self.numbers, timeout=timeout)


def schedule_request(given: object, at: datetime, path: str = "") -> ScheduleRequest:
    """Return a request to enqueue copies of the messages in the entity ``path`` at ``at``.

    Raises TypeError if ``at`` is not a datetime or ``given`` not one or more messages, and ReservedPropertyError.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"schedule_time_utc must be a datetime, not {at!r}")
    if isinstance(given, ServiceBusMessageBatch):
        raise TypeError("a batch cannot be scheduled; pass its messages as a list")
    return ScheduleRequest([_at(message, at) for message in freeze(given, path).messages], at)


def cancellation(path: str, given: int | Iterable[int]) -> Cancellation:
    """Return a request to cancel scheduled messages by their sequence numbers.

    Raises ParkedScheduleError if one of them belongs to a parked message; then none is cancelled. Raises TypeError or
    ValueError for invalid sequence numbers.
    """
    numbers = [given] if isinstance(given, int) else list(given)
    if wrong := next((each for each in numbers if isinstance(each, bool) or not isinstance(each, int)), None):
        raise TypeError(f"a sequence number must be an int, not {wrong!r}")
    if not all(-(2**63) <= each < 2**63 for each in numbers):
        raise ValueError("a sequence number must fit into 64 bits")
    if PARKED in numbers:
        raise ParkedScheduleError(path)
    return Cancellation(numbers)


def _at(message: copies.Message, at: datetime) -> AmqpAnnotatedMessage:
    twin = copies.snapshot(message)
    kept = dict(twin.annotations or {})
    kept.pop(aliases.ANNOTATION_SCHEDULED, None)
    kept[aliases.ANNOTATION_SCHEDULED.encode()] = at
    twin.annotations = kept
    return twin


def ping() -> SendRequest:
    """Return a ping: an empty message that the broker accepts but never delivers.

    It has a session id of its own, which queues with sessions require.
    """
    message = ServiceBusMessage(
        b"",
        content_type=aliases.PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )
    return SendRequest(message, (message,))


class LinkProbe(SendRequest):
    """A probe that sends nothing: it succeeds if the link opens, which is free but proves less than a ping."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__([], [])

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.create_message_batch()  # only opens the link
