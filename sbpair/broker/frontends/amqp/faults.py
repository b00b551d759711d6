"""The answers of injected faults to AMQP clients."""

from __future__ import annotations

from sbpair.pair.amqp.link import Link
from sbpair.pair.amqp.performatives import RELEASED, Condition, DeliveryState, Modified, Rejected
from sbpair.pair.amqp.types import Described, Symbol, ULong

from ...clock import ClockReading
from ...faults import (
    AnswerModified,
    AnswerReleased,
    CloseConnection,
    Effect,
    EndingEffect,
    RefusingEffect,
    TwoFieldError,
)
from ..refusals import tracked
from .node import ConnectionContext


def fault_outcome(effect: Effect, tracker: str, now: ClockReading) -> DeliveryState:
    """Return the delivery outcome of an effect that refuses a transfer or a settlement.

    Raises TypeError for an effect that does not refuse.
    """
    match effect:
        case AnswerReleased():
            return RELEASED
        case AnswerModified():
            return Modified(delivery_failed=True)
        case TwoFieldError():
            # Encoded by hand: the engine always writes three fields, and this fault omits the third.
            error = Described(ULong(0x1D), [Symbol(effect.condition), effect.description])
            return Described(ULong(0x25), [error])
        case RefusingEffect():
            return Rejected(refusal(effect, tracker, now))
        case _:
            raise TypeError(f"{effect!r} has no outcome")


def refusal(effect: RefusingEffect | EndingEffect, tracker: str, now: ClockReading) -> Condition:
    """Return the error condition of a refusing or ending effect, in the service's wording."""
    return Condition(effect.condition, tracked(effect.description, tracker, now.entity))


def end_faulted(
    effect: EndingEffect, connection: ConnectionContext, link: Link, tracker: str, now: ClockReading
) -> None:
    """End the link or the connection, depending on the effect."""
    if isinstance(effect, CloseConnection):
        connection.close(effect.condition, effect.description, now)
    else:
        link.refuse(refusal(effect, tracker, now))  # answers the attach first when it is still open
