"""Batches of messages that their sender has already encoded, for senders to whom the SDK's encoding costs too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, overload

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair.pair.envelope.copies import Message
from sbpair.pair.pairing.request import sdk
from sbpair.pair.pairing.request.request import PairedMessageBatch, SendRequest, prepare
from sbpair.pair.tracing import current


class EncodedMessage(Protocol):
    """A message that never changes."""

    @property
    def message_id(self) -> str: ...

    @property
    def encoded(self) -> bytes | None:
        """Return the message as the SDK would encode it; None if only the SDK can encode it."""

    def original(self) -> ServiceBusMessage:
        """The message for the SDK."""


MessageT = TypeVar("MessageT", bound=EncodedMessage)
Messages = Sequence[Message]


class EncodedBatch(PairedMessageBatch, Generic[MessageT]):
    """A batch of encoded messages: :meth:`add` them. The SDK's messages are created only when they must be parked.

    Some messages are still added by the SDK: the first one, from which the batch gets its envelope, and while tracing
    is on each one, since it carries the context of its creation.
    """

    def __init__(self, max_size_in_bytes: int, path: str = "") -> None:
        super().__init__(max_size_in_bytes, path)
        self.messages: list[MessageT] = []
        self._prepared: dict[int, AmqpAnnotatedMessage] = {}
        self._largest = 0

    def add(self, message: MessageT) -> None:
        """Add a message.

        Raises MessageSizeExceededError when there is no room for it. If the SDK encodes it, raises the errors of its
        ``original`` and of :func:`~sbpair.pair.pairing.request.request.prepare`.
        """
        before, encoded = self.size_in_bytes, message.encoded
        is_by_sdk = encoded is None or not self.messages or current.active is not None
        if is_by_sdk or encoded is None or not sdk.append_encoded(self, encoded):
            self.add_message(message.original())
            self._prepared[len(self.messages)] = self.originals.pop()
        self._largest = max(self._largest, self.size_in_bytes - before)
        self.messages.append(message)

    def freeze(self) -> SendRequest:
        return _EncodedRequest(self, _Originals(self), self._largest)

    def message_ids(self) -> tuple[str, ...]:
        """The ids of the messages, in order."""
        return tuple([each.message_id for each in self.messages])

    def original(self, place: int) -> AmqpAnnotatedMessage:
        """The message at ``place`` as it is sent."""
        found = self._prepared.get(place)
        if found is None:
            found = self._prepared[place] = prepare(self.messages[place].original(), self._path)
        return found


class _Originals(Sequence[Message], Generic[MessageT]):
    """The messages of a batch, each made at first use."""

    def __init__(self, batch: EncodedBatch[MessageT]) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.messages)

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> Messages: ...

    def __getitem__(self, place: int | slice) -> Message | Messages:
        places = range(len(self))[place]
        return (
            self._batch.original(places)
            if isinstance(places, int)
            else list(map(self._batch.original, places))
        )


class _EncodedRequest(SendRequest, Generic[MessageT]):
    __slots__ = ("_batch", "_largest")

    def __init__(self, batch: EncodedBatch[MessageT], messages: Messages, largest: int) -> None:
        super().__init__(batch, messages)
        self._batch = batch
        self._largest = largest

    def is_smaller(self, limit: int) -> bool:
        return self._largest < limit

    def message_ids(self) -> tuple[str, ...]:
        return self._batch.message_ids()
