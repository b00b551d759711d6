"""The effects of injected faults on the answers of the REST frontend."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...clock import ClockReading
from ...errors import BrokerError
from ...faults import AnswerModified, AnswerReleased, Delay, Effect, EndingEffect, RefusingEffect
from ..admin.http_messages import Request, Response, failed


@dataclass(frozen=True, slots=True)
class FaultedResponse:
    """The outcome of a request: ``response`` after ``after`` seconds, or no response.

    ``happens``: the request is carried out. ``answers``: the client gets a response. ``cuts``: the connection is
    aborted; without ``cuts`` and without a response, the client waits until it gives up.
    """

    response: Response | None = None
    after: float = 0.0
    happens: bool = True
    answers: bool = True
    cuts: bool = False

    def of(self, response: Response) -> FaultedResponse:
        """Return the same outcome with the response it would send."""
        return replace(self, response=response if self.answers else None)


UNTOUCHED = FaultedResponse()


class _RefusedError(BrokerError):
    """A refusal by a fault; its status is that of the error class with the fault's condition."""


def faulted_response(effect: Effect | None, request: Request, now: ClockReading) -> FaultedResponse:
    """Return the outcome of a request under ``effect``.

    If the request is to be carried out, add the response with :meth:`FaultedResponse.of`.
    """
    match effect:
        case None:
            return UNTOUCHED
        case EndingEffect():
            return FaultedResponse(happens=effect.happens, answers=False, cuts=True)
        case RefusingEffect() | AnswerReleased() | AnswerModified():
            return FaultedResponse(_refusal(effect, request, now), happens=False)
        case Delay():
            return FaultedResponse(after=effect.seconds)
        case _:
            return FaultedResponse(happens=effect.happens, answers=effect.answers)


def _refusal(effect: Effect, request: Request, now: ClockReading) -> Response:
    condition = effect.condition if isinstance(effect, RefusingEffect) else ""
    text = (
        effect.description if isinstance(effect, RefusingEffect) else f"Refused by the fault '{effect.name}'."
    )
    known = next((kind for kind in _kinds(BrokerError) if kind.condition == condition), BrokerError)
    return failed(_RefusedError(text), request, now.entity, known.status)


def _kinds(kind: type[BrokerError]) -> list[type[BrokerError]]:
    found = [kind]
    for each in kind.__subclasses__():
        found += _kinds(each)
    return found
