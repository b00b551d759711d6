"""The answers of an entity to a parked message: what each means for the message, and for the entity."""

from __future__ import annotations

from enum import Enum

from sbpair.amqp.performatives import Accepted, Condition, DeliveryState, Rejected


class DeliveryAction(Enum):
    """The action on a parked message once its destination has answered."""

    COMPLETE = "complete"  # accepted: remove it from the backlog
    DEAD_LETTER = "dead-letter"  # refused finally: retrying would not help
    HOLD = "hold"  # do not settle; retry later


DEAD_LETTER_REASONS: dict[str, str] = {
    "amqp:not-found": "DestinationNotFound",
    "amqp:resource-deleted": "DestinationNotFound",
    "com.microsoft:entity-disabled": "DestinationDisabled",
    "amqp:link:message-size-exceeded": "MessageSizeExceeded",
    "amqp:not-allowed": "DestinationRefused",
    "amqp:not-implemented": "DestinationRefused",
    "amqp:invalid-field": "DestinationRefused",
    "amqp:decode-error": "DestinationRefused",
    "amqp:precondition-failed": "DestinationRefused",
    "com.microsoft:precondition-failed": "DestinationRefused",
    "com.microsoft:argument-error": "DestinationRefused",
    "com.microsoft:argument-out-of-range": "DestinationRefused",
}
"""The dead-letter reason for each final condition.

Messages refused with any other condition are held: waiting is always safe, and dead-lettering a deliverable message is
not.
"""

BUSY_CONDITIONS = frozenset(
    ("com.microsoft:server-busy", "amqp:resource-limit-exceeded", "amqp:unauthorized-access")
)
"""Conditions of an entity that is reachable but accepts no messages now: the primary still serves its consumers."""


def action_for(state: object) -> DeliveryAction:
    """Return the action for the outcome of a transfer; HOLD for a state that is not terminal, or None (F-56)."""
    if isinstance(state, Accepted):
        return DeliveryAction.COMPLETE
    if isinstance(state, Rejected):
        return action_for_condition(state.error)
    return DeliveryAction.HOLD


def action_for_condition(condition: Condition | None) -> DeliveryAction:
    """Return the action when a transfer, a link, or the token for it was refused with ``condition``."""
    if condition is not None and str(condition.symbol) in DEAD_LETTER_REASONS:
        return DeliveryAction.DEAD_LETTER
    return DeliveryAction.HOLD


def is_answer(condition: Condition | None, *, is_final: bool) -> bool:
    """Return whether a refusal with ``condition`` shows that the entity is reachable."""
    return is_final or (condition is not None and str(condition.symbol) in BUSY_CONDITIONS)


def is_busy(state: DeliveryState | None) -> bool:
    """Return whether the outcome of a transfer shows that the entity is reachable but cannot accept it now."""
    return isinstance(state, Rejected) and is_answer(state.error, is_final=False)
