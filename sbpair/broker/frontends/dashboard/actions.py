"""The dashboard's actions on an entity: send a message, purge waiting messages, resubmit dead letters. Pure.

An action takes effect at once: faults and outages of the namespace do not prevent it, but the entity's own rules
(status, size, sessions, quota) do. The work of one call is bounded; call again if there is more to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from sbpair.pair.amqp.message import DataBody, Header, Message, Properties

from ...entities.allowed_use import check_enabled, check_received_from, check_sent_to
from ...entities.queue import Queue
from ...entities.queue_partition import QueuePartition
from ...entities.sessions import MessageSessions
from ...entities.stored_message import Instant, MessageState
from ...errors import InvalidArgumentError, NoSuchMessageError
from ..namespace_frontend import NamespaceFrontend
from ..received_message import messages_of

MAX_AT_ONCE = 500  # messages purged or resubmitted in one call
MAX_PROPERTIES = 100
TEXTS = ("body", "message_id", "session_id", "subject", "content_type")
MAX_LONG = 2**63


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to send; empty strings are omitted."""

    body: str = ""
    message_id: str = ""
    session_id: str = ""
    subject: str = ""
    content_type: str = ""
    properties: tuple[tuple[str, str | bool | int | float], ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Draft:
        """Read a draft from JSON. Raises InvalidArgumentError, which names the field."""
        unknown = sorted(given.keys() - {*TEXTS, "properties"})
        if unknown:
            raise InvalidArgumentError(f"A message has no field {unknown[0][:40]!r}.")
        texts = {name: given.get(name, "") for name in TEXTS}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise InvalidArgumentError(f"{name} must be a string.")
            _check_letters(name, value, "ascii" if name == "content_type" else "utf-8")
        return cls(**texts, properties=_properties(given.get("properties", {})))  # type: ignore[arg-type]

    def encode(self) -> bytes:
        """Return the message in AMQP's encoding, with the body as data and whole numbers as longs."""
        properties = Properties(
            message_id=self.message_id or None,
            group_id=self.session_id or None,
            subject=self.subject or None,
            content_type=self.content_type or None,
        )
        return Message(
            header=Header(durable=True),
            properties=properties,
            application_properties=dict(self.properties),
            body=DataBody((self.body.encode(),)),
        ).encode()


def _check_letters(name: str, text: str, encoding: str = "utf-8") -> None:
    """Raise InvalidArgumentError for characters that AMQP cannot encode, such as the lone surrogates of JSON."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} has a letter that is not {encoding.upper()}: {text[error.start]!a}."
        ) from None


def _properties(given: object) -> tuple[tuple[str, str | bool | int | float], ...]:
    if not isinstance(given, dict):
        raise InvalidArgumentError("properties must be an object of names and values.")
    if len(given) > MAX_PROPERTIES:
        raise InvalidArgumentError(
            f"A message sent here has at most {MAX_PROPERTIES} application properties."
        )
    for name, value in given.items():
        is_long = not isinstance(value, int) or -MAX_LONG <= value < MAX_LONG
        if not isinstance(value, str | bool | int | float) or not is_long:
            raise InvalidArgumentError(
                f"The property {name[:40]!r} must be a string, a number, true or false."
            )
        _check_letters("The name of a property", name)
        if isinstance(value, str):
            _check_letters(f"The property {name[:40]!r}", value)
    return tuple(given.items())


def send(frontend: NamespaceFrontend, path: str, draft: Draft, now: Instant) -> int:
    """Send one message to a queue or topic, and return its sequence number.

    Raises EntityNotFoundError, NotAllowedError, EntityDisabledError, MessageTooLargeError, SessionRequiredError,
    QuotaExceededError.
    """
    queue = frontend.namespace.queue(path)
    check_sent_to(queue)
    check_enabled(queue, "SendDisabled")
    return queue.enqueue_all(messages_of(frontend, queue, draft.encode(), 0, now), now)[0]


def purge(frontend: NamespaceFrontend, path: str, before: Instant, now: Instant) -> int:
    """Delete waiting messages that have been in a queue, subscription or dead-letter queue since before ``before``.

    Deletes at most :data:`MAX_AT_ONCE` and returns how many; 0 when there are no more. Locked, scheduled and deferred
    messages stay, and so do those of sessions that a receiver holds. Raises EntityNotFoundError, NotAllowedError,
    EntityDisabledError, ForwardingEntityError.
    """
    entity = frontend.namespace.queue(path)
    check_received_from(entity)
    deleted = 0
    for partition in entity.partitions:
        left = MAX_AT_ONCE - deleted
        if partition.sessions is None:
            deleted += partition.delete_waiting(left, before, now)
        else:
            deleted += _purge_sessions(partition, partition.sessions, left, before, now)
    return deleted


def _purge_sessions(
    partition: QueuePartition, sessions: MessageSessions, limit: int, before: Instant, now: Instant
) -> int:
    deleted = 0
    for _ in range(len(sessions)):
        lock = sessions.accept(None, now) if deleted < limit else None
        if lock is None:
            break
        try:
            deleted += partition.delete_waiting(limit - deleted, before, now, lock)
        finally:
            sessions.release(lock, now)
    return deleted


def waiting(frontend: NamespaceFrontend, path: str, start: int) -> tuple[list[int], int | None]:
    """Return a page of the numbers of waiting messages from ``start`` on, and the start of the next page or None.

    Raises EntityNotFoundError.
    """
    page = frontend.namespace.queue(path).browse(start, MAX_AT_ONCE)
    numbers = [each.sequence_number for each in page if each.state is MessageState.ACTIVE]
    return numbers, page[-1].sequence_number + 1 if page else None


def resubmit(frontend: NamespaceFrontend, path: str, numbers: Iterable[int], now: Instant) -> int:
    """Move dead letters back to the queue or subscription that they came from; return how many.

    ``path``: the dead-letter queue. Messages that a receiver has locked or removed meanwhile are skipped. Raises
    EntityNotFoundError, NotAllowedError, EntityDisabledError, SessionRequiredError, QuotaExceededError; the messages
    before the refused one have then been moved.
    """
    entity, moved = frontend.namespace.queue(path), 0
    for number in numbers:
        with suppress(NoSuchMessageError):
            _holder(entity, number).resubmit(number, now)
            moved += 1
    return moved


def _holder(entity: Queue, number: int) -> QueuePartition:
    """Return the partition that stores a message; if none does, the first one, which then refuses the number."""
    return next(
        (each for each in entity.partitions if each.message(number) is not None), entity.partitions[0]
    )
