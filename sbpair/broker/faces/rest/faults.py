"""What becomes of an answer over HTTP that a fault strikes?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import BrokerError
from ...faults import AnswerModified, AnswerReleased, Delay, Effect, Ending, Refusal
from ..administration.http_messages import Request, Response, failed
from ..moment import Moment


@dataclass(frozen=True, slots=True)
class Fate:
    """How a request ends: with ``response`` after so many seconds, or with none.

    ``happens``: what was asked for is carried out. ``cuts``: the connection ends instead of an answer; where
    it does not, and there is no response, the client waits in vain.
    """

    response: Response | None = None
    after: float = 0.0
    happens: bool = True
    answers: bool = True
    cuts: bool = False

    def of(self, response: Response) -> Fate:
        """The same, with what would be answered."""
        return replace(self, response=response if self.answers else None)


UNTOUCHED = Fate()


class _Refused(BrokerError):
    """A refusal that a fault asked for; the condition's class says with which status."""


def fate_of(effect: Effect | None, request: Request, moment: Moment) -> Fate:
    """The fate of a request that ``effect`` strikes; its response is yet to come where it is carried out."""
    match effect:
        case None:
            return UNTOUCHED
        case Ending():
            return Fate(happens=effect.happens, answers=False, cuts=True)
        case Refusal() | AnswerReleased() | AnswerModified():
            return Fate(_refusal(effect, request, moment), happens=False)
        case Delay():
            return Fate(after=effect.seconds)
        case _:
            return Fate(happens=effect.happens, answers=effect.answers)


def _refusal(effect: Effect, request: Request, moment: Moment) -> Response:
    condition = effect.condition if isinstance(effect, Refusal) else ""
    text = effect.description if isinstance(effect, Refusal) else f"Refused by the fault '{effect.name}'."
    known = next((kind for kind in _kinds(BrokerError) if kind.condition == condition), BrokerError)
    return failed(_Refused(text), request, moment.entity, known.status)


def _kinds(kind: type[BrokerError]) -> list[type[BrokerError]]:
    found = [kind]
    for each in kind.__subclasses__():
        found += _kinds(each)
    return found
