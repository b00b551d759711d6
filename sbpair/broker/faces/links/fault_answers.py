"""How does a fault answer, where it does not let the entity answer?"""

from __future__ import annotations

from ....amqp.link import Link
from ....amqp.performatives import RELEASED, Condition, DeliveryState, Modified, Rejected
from ....amqp.types import Described, Symbol, ULong
from ...faults import AnswerModified, AnswerReleased, CloseConnection, Effect, Ending, Refusal, TwoFieldError
from ..moment import Moment
from ..wording import tracked
from .host import LinkHost


def lie(effect: Effect, tracker: str, moment: Moment) -> DeliveryState:
    """The outcome of an effect that refuses what was sent or settled."""
    match effect:
        case AnswerReleased():
            return RELEASED
        case AnswerModified():
            return Modified(delivery_failed=True)
        case TwoFieldError():
            # Spelt out, since the engine always writes three fields: the third is what this fault leaves out.
            error = Described(ULong(0x1D), [Symbol(effect.condition), effect.description])
            return Described(ULong(0x25), [error])
        case Refusal():
            return Rejected(refusal(effect, tracker, moment))
        case _:
            raise TypeError(f"{effect!r} has no outcome")


def refusal(effect: Refusal | Ending, tracker: str, moment: Moment) -> Condition:
    """The condition of an effect that refuses or ends, worded as the service words it."""
    return Condition(effect.condition, tracked(effect.description, tracker, moment.entity))


def end(effect: Ending, connection: LinkHost, link: Link, tracker: str, moment: Moment) -> None:
    """End the link, or the connection, that the effect struck."""
    if isinstance(effect, CloseConnection):
        connection.close(effect.condition, effect.description, moment)
    else:
        link.refuse(refusal(effect, tracker, moment))  # a link not answered yet is answered first
