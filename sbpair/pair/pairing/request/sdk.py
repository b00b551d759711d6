"""Access to private parts of the SDK: the AMQP condition of an error, the messages in a batch, and what a link reveals.

Besides this module, only wire.py and shared_link.py use such parts, for the connection under a sender. Every private
name has a test. If a later SDK lacks one, the loss is logged once and the feature is off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from azure.core.settings import settings
from azure.core.tracing import SpanKind
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
)

from sbpair.pair.envelope.copies import private
from sbpair.pair.ground.recorded import NO_CHECKSUM

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender
    from azure.servicebus.amqp import AmqpAnnotatedMessage

_logger = logging.getLogger("sbpair")
_new = object.__new__

_OF_THE_SDK = frozenset({None, "amqp:client-error", "amqp:unknown-error", "amqp:socket-error"})


def condition_of(error: BaseException) -> str | None:
    """Return the AMQP condition of the service's error as text, or None."""
    condition = getattr(error, "_condition", None)
    if isinstance(condition, bytes):
        return condition.decode("ascii", "replace")
    return condition if isinstance(condition, str) else None


def token_status_of(error: BaseException) -> int | None:
    """Return the status with which ``$cbs`` refused the token; None for other errors."""
    inner = getattr(error, "inner_exception", None)
    status = getattr(inner, "status_code", None)
    is_token = type(inner).__name__ == "TokenAuthFailure"
    return status if is_token and isinstance(status, int) and not isinstance(status, bool) else None


_CLOCK = (
    "The token was refused as expired, and the key is not the cause: this machine's clock is behind, "
    "or a signature that was given has expired."
)
_NEXT_STEPS = {
    401: "The credential was refused: check the key and its name, and that it was not regenerated.",
    403: "The credential lacks a right here: a sender needs Send.",
    404: "There is no such entity: create it, or correct its name.",
}


def explain_refused_token(error: Exception) -> None:
    """Add to the SDK's error why ``$cbs`` refused the token and what to do; other errors are unchanged.

    The SDK has one class and one text both for a wrong key and for an entity that does not exist.
    """
    status = token_status_of(error)
    if status is None:
        return
    told = " ".join(str(getattr(error, "inner_exception", "")).split())
    step = _CLOCK if status == 401 and "expired" in told.lower() else _NEXT_STEPS.get(status)
    text = f"{step or 'The credential was refused.'} {told}"
    error.message = text  # type: ignore[attr-defined]  # of every AzureError
    error.args = (text, *error.args[1:])


def was_rejected(error: BaseException) -> bool:
    """Whether the service rejected the message itself, which means that it is not stored.

    If the service did not answer, the SDK raises the same class, but with a condition of its own.
    """
    inner = getattr(error, "inner_exception", None)
    is_answer = any(kind.__name__ == "MessageException" for kind in type(inner).__mro__)
    return is_answer and condition_of(error) not in _OF_THE_SDK


def ended_connection(error: BaseException) -> bool:
    """Whether the service closed the whole connection, rather than one link, with this error."""
    return type(getattr(error, "inner_exception", None)).__name__ == "AMQPConnectionError"


NO_DELETION = "a queue that is deleted during a send counts as an outage"
_DELETED = frozenset({"amqp:not-found", "amqp:resource-deleted"})


def deletion_of(link: object) -> MessagingEntityNotFoundError | None:
    """Return the error for the deleted entity of a link that the service ended; None for any other link.

    The SDK raises it only on the next use of the link: a send in progress fails with an unspecific error.
    """
    ended = private(link, "_error", NO_DELETION)
    condition = getattr(ended, "condition", None)
    if not isinstance(condition, bytes) or condition.decode("ascii", "replace") not in _DELETED:
        return None
    text = "The entity was deleted while a message was being sent to it."
    return MessagingEntityNotFoundError(message=text, condition=bytes(condition), error=ended)


def messages_of(batch: ServiceBusMessageBatch) -> list[ServiceBusMessage] | None:
    """Return the messages in a batch of the SDK; None if this SDK does not keep them."""
    kept = private(batch, "_messages", "batches not made by a paired sender cannot be parked")
    return list(cast("list[ServiceBusMessage]", kept)) if isinstance(kept, list) else None


# Else the SDK wraps it, at the cost of an exception.
_IS_WRAPPED = "_raw_amqp_message" in vars(ServiceBusMessage(b""))


def wrap(message: AmqpAnnotatedMessage) -> ServiceBusMessage | AmqpAnnotatedMessage:
    """Return a prepared message in the form that the SDK sends fastest."""
    if not _IS_WRAPPED:
        return message
    made = _new(ServiceBusMessage)
    made._raw_amqp_message = message
    return made


def add(batch: ServiceBusMessageBatch, message: AmqpAnnotatedMessage) -> None:
    """Add a prepared message to a batch, as ``add_message`` does, but encode it once: the SDK does it twice.

    Raises the errors of ``add_message``.
    """
    outgoing = wrap(message)
    # The SDK itself adds the first message, which gives the batch its envelope, and those that it traces.
    is_usual = bool(len(batch)) and settings.tracing_implementation() is None
    if not (is_usual and isinstance(outgoing, ServiceBusMessage) and _append(batch, outgoing)):
        batch.add_message(outgoing)


def _append(batch: ServiceBusMessageBatch, message: ServiceBusMessage) -> bool:
    transport: Any = private(batch, "_amqp_transport", _NO_APPEND)
    kept = private(batch, "_messages", _NO_APPEND)
    if transport is None or not isinstance(kept, list):
        return False
    message._message = transport.to_outgoing_amqp_message(message.raw_amqp_message)
    if not append_encoded(batch, transport.encode_message(message)):
        return False
    kept.append(message)
    return True


_BODY = 5  # the place of the data sections in the SDK's batch
_NO_APPEND = "encoded messages are encoded again for their batch"


def append_encoded(batch: ServiceBusMessageBatch, encoded: bytes) -> bool:
    """Add an encoded message to a batch; return False, and add nothing, if this SDK keeps its batches in another form.

    Raises MessageSizeExceededError when the batch has no room for it.
    """
    inner, size = private(batch, "_message", _NO_APPEND), private(batch, "_size", _NO_APPEND)
    count = private(batch, "_count", _NO_APPEND)
    data = inner[_BODY] if isinstance(inner, list) and len(inner) > _BODY else None
    if not (isinstance(data, list) and isinstance(size, int) and isinstance(count, int)):
        return False
    after = size + len(encoded) + (5 if len(encoded) < 256 else 8)  # the head of a data section
    if after > batch.max_size_in_bytes:
        raise MessageSizeExceededError(message=f"The batch has at most {batch.max_size_in_bytes} bytes.")
    data.append(encoded)
    batch._size, batch._count = after, count + 1
    return True


def creation_context(message: ServiceBusMessage) -> dict[str | bytes, Any]:
    """Return the trace context of a message in an SDK batch, as application properties; empty without one."""
    encoded = private(message, "_message", "messages of the SDK's own batches are parked without their trace")
    carried = getattr(encoded, "application_properties", None) or {}
    return {name: carried[name] for name, _ in _TRACE_PROPERTIES if name in carried}


def message_limit(sender: ServiceBusSender | AsyncServiceBusSender) -> int | None:
    """Return the maximum message size of this open link in bytes; None if this SDK does not reveal it."""
    limit = private(sender, "_max_message_size_on_link", "no warning for messages too large to be parked")
    return limit if isinstance(limit, int) and limit > 0 else None


ROOMY_PROPERTIES = 32 * 1024
"""Bytes of application properties that always fit into a message's header, once it is rewritten for parking."""


def body_size(message: AmqpAnnotatedMessage) -> int:
    """Return the size of a data body in bytes; 0 for any other body, which would have to be encoded."""
    return sum(len(part) for part in getattr(message, "_data_body", None) or ())


def body_checksum(message: AmqpAnnotatedMessage) -> int:
    """Return the CRC-32 of a data body; NO_CHECKSUM for any other, and for a body that cannot be sent."""
    data = getattr(message, "_data_body", None)
    try:
        return NO_CHECKSUM if data is None else crc32(b"".join(data))
    except TypeError:
        return NO_CHECKSUM


def is_smaller(message: AmqpAnnotatedMessage, limit: int) -> bool:
    """Whether body and application properties are certainly smaller than ``limit`` bytes, and the latter few.

    Fast, since every send calls it; False if an exact answer would take longer.
    """
    try:
        body: Any = message._data_body
    except AttributeError:
        private(message, "_data_body", "every message must be encoded to learn its size, which is slower")
        return False
    if body is None:
        return False
    size = 0
    for part in body:
        size += len(part)
    carried = message.application_properties
    if carried:
        properties = 0
        for value in carried.values():
            if value.__class__ is str:
                properties += 4 * len(value)  # the maximum in UTF-8
            elif value.__class__ is bytes:
                properties += len(value)
        size += properties
        return size < limit and properties < ROOMY_PROPERTIES
    return size < limit


_PEEK = b"com.microsoft:peek-message"
_NO_PEEK = "ordered sessions stay parked: their backlog queues cannot be peeked"


def is_empty(sender: ServiceBusSender, session_id: str | None, seconds: float) -> bool:
    """Whether the queue of this sender contains no message, or none of this session.

    Peeks over the ``$management`` node on the sender's own connection; a receiver of the SDK would have to accept the
    session first, which can be refused. Raises the SDK's exceptions.
    """
    ask = _mgmt(sender)
    return bool(ask(_PEEK, _peek_body(sender, session_id), _answer, timeout=seconds))


async def is_empty_async(sender: AsyncServiceBusSender, session_id: str | None, seconds: float) -> bool:
    """The asyncio twin of :func:`is_empty`."""
    ask = _mgmt(sender)
    return bool(await ask(_PEEK, _peek_body(sender, session_id), _answer, timeout=seconds))


def _mgmt(sender: object) -> Callable[..., Any]:
    ask = private(sender, "_mgmt_request_response_with_retry", _NO_PEEK)
    transport = private(sender, "_amqp_transport", _NO_PEEK)
    if not callable(ask) or getattr(transport, "AMQP_LONG_VALUE", None) is None:
        raise ServiceBusError("this version of azure-servicebus cannot peek over a sender")
    return ask


def _peek_body(sender: Any, session_id: str | None) -> dict[str, object]:  # noqa: ANN401 -- private parts
    first = {"from-sequence-number": sender._amqp_transport.AMQP_LONG_VALUE(1), "message-count": 1}
    return first if session_id is None else {**first, "session-id": session_id}


def _answer(status: int, message: Any, description: object, amqp_transport: Any) -> bool:  # noqa: ANN401
    """Whether the answer to a peek reports that no message was found. Raises for any other status."""
    if status == 200:
        return False
    if status in (202, 204):
        return True
    condition = (message.application_properties or {}).get(b"errorCondition")
    amqp_transport.handle_amqp_mgmt_error(_logger, "The peek failed.", condition, description, status)
    raise ServiceBusError(f"The peek failed with status {status}.")


def carry_trace(message: AmqpAnnotatedMessage) -> None:
    """Add the caller's trace context to a message, as the SDK does on sending. Existing context is kept."""
    kind = settings.tracing_implementation()
    if kind is None:
        return
    with kind(name="ServiceBus.message", kind=SpanKind.PRODUCER) as span:
        headers = span.to_header()
    carried: dict[str | bytes, Any] = dict(message.application_properties or {})
    for name, header in _TRACE_PROPERTIES:
        if header in headers and name.decode() not in carried:
            carried.setdefault(name, headers[header])
    message.application_properties = carried or None


_TRACE_PROPERTIES = (
    (b"Diagnostic-Id", "traceparent"),
    (b"traceparent", "traceparent"),
    (b"tracestate", "tracestate"),
)
