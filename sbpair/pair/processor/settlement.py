"""Outcomes of a handler, and the delivery states that settle a message with them. Pure.

handler                            message        delivery state
returns                            completed      accepted
raises DeadLetter(...)             dead-lettered  rejected{com.microsoft:dead-letter}
raises Defer(...)                  deferred       modified{undeliverable-here}
raises Abandon(...), or any error  abandoned      modified{delivery-failed}
is cancelled, was never called     released       released
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.errors import MESSAGE_LOCK_LOST, SESSION_LOCK_LOST
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Condition,
    DeliveryState,
    Disposition,
    Modified,
    Rejected,
)
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.auth.redaction import blank_keys
from sbpair.pair.client.link import DEAD_LETTER, DESCRIPTION, REASON

MAX_TEXT_LENGTH = 4096  # characters of a dead-letter reason or description
MAX_STATE_BYTES = 60_000  # of an outcome: one frame of the service has 65,536
LOCK_LOST = (MESSAGE_LOCK_LOST, SESSION_LOCK_LOST)


class Verb(StrEnum):
    """The ways to settle a message."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"


class Settle(Exception):  # noqa: N818 - a handler's choice, raised like StopIteration: not an error
    """Base of the exceptions that a handler raises to choose an outcome; ``properties`` are added to the message."""

    verb = Verb.ABANDON

    def __init__(self, properties: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self.properties = dict(properties or {})

    def state(self) -> DeliveryState:
        """Return the delivery state that requests this outcome."""
        raise NotImplementedError


class Abandon(Settle):
    """Raise in a handler to abandon the message: it is delivered again, up to the entity's maximum."""

    def state(self) -> DeliveryState:
        return Modified(delivery_failed=True, message_annotations=_annotations(self.properties))


class Defer(Settle):
    """Raise in a handler to defer the message: it is received again only by its sequence number."""

    verb = Verb.DEFER

    def state(self) -> DeliveryState:
        return Modified(undeliverable_here=True, message_annotations=_annotations(self.properties))


class DeadLetter(Settle):
    """Raise in a handler to move the message to the dead-letter queue, with a reason and a description."""

    verb = Verb.DEAD_LETTER

    def __init__(
        self, reason: str = "", description: str = "", properties: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(properties)
        self.reason, self.description = reason, description

    def state(self) -> DeliveryState:
        info: dict[object, object] = {Symbol(name): value for name, value in self.properties.items()}
        if self.reason:
            info[REASON] = blank_keys(self.reason)[:MAX_TEXT_LENGTH]
        if self.description:
            info[DESCRIPTION] = blank_keys(self.description)[:MAX_TEXT_LENGTH]
        return Rejected(Condition(DEAD_LETTER, None, info))

    def __str__(self) -> str:
        return f"{self.reason}: {self.description}" if self.description else self.reason


def outcome_of(error: BaseException | None) -> tuple[Verb, DeliveryState]:
    """Return the outcome of a message whose handler returned (``error`` None) or raised ``error``.

    Raises ValueError when ``error`` names an outcome that cannot be sent.
    """
    if error is None:
        return Verb.COMPLETE, ACCEPTED
    if isinstance(error, Settle):
        return error.verb, _sendable(error)
    if isinstance(error, Exception):
        return Verb.ABANDON, Modified(delivery_failed=True)
    return Verb.RELEASE, RELEASED


def _sendable(chosen: Settle) -> DeliveryState:
    """Return the delivery state of an outcome. Raises ValueError when it cannot be encoded or is too long."""
    try:
        state = chosen.state()
        size = len(encode_composite(Disposition(True, 0, 0, False, state)))
    except Exception as error:  # any error that a text or a property of the application causes
        text = f"the message cannot be settled so: {type(error).__name__}: {error}"
        raise ValueError(text) from error
    if size > MAX_STATE_BYTES:
        raise ValueError(f"the message cannot be settled so: {size} bytes, at most {MAX_STATE_BYTES}")
    return state


class Answer(StrEnum):
    """The broker's answer to a settlement."""

    CONFIRMED = "confirmed"
    LOCK_LOST = "lock lost"
    REFUSED = "refused"


def answer_to(proposed: DeliveryState, answered: DeliveryState | None) -> Answer:
    """Return what the peer's state ``answered`` means for a settlement with the state ``proposed``."""
    error = answered.error if isinstance(answered, Rejected) else None
    if error is not None:
        return Answer.LOCK_LOST if error.symbol in LOCK_LOST else Answer.REFUSED
    return Answer.CONFIRMED if type(answered) is type(proposed) else Answer.REFUSED


def _annotations(properties: dict[str, object]) -> dict[object, object] | None:
    return {Symbol(name): value for name, value in properties.items()} or None
