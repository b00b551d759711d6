"""What does the destination's answer mean for the parked message?

    accepted                                       COMPLETE     remove it from the backlog
    refused, and will be however often it is sent  DEAD_LETTER  set it aside, with path and error
    anything else                                  HOLD         settle nothing, come back later

Conditions are AMQP's and Service Bus's; one that is not listed is held: to wait is never wrong, to set aside
what could have been delivered is.
"""

from __future__ import annotations

from enum import Enum

from sbpair.amqp.performatives import Accepted, Condition, Rejected


class Verdict(Enum):
    """What happens to a parked message once its destination has answered."""

    COMPLETE = "complete"
    DEAD_LETTER = "dead-letter"
    HOLD = "hold"


# condition: the dead-letter reason
FINAL: dict[str, str] = {
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


def verdict_on(state: object) -> Verdict:
    """The verdict on the outcome of one transfer; one that is not terminal, or none, is held (F-56)."""
    if isinstance(state, Accepted):
        return Verdict.COMPLETE
    if isinstance(state, Rejected):
        return verdict_on_condition(state.error)
    return Verdict.HOLD


def verdict_on_condition(condition: Condition | None) -> Verdict:
    """The verdict on a refusal: of a transfer, of a link, or of a token for it."""
    if condition is not None and str(condition.symbol) in FINAL:
        return Verdict.DEAD_LETTER
    return Verdict.HOLD
