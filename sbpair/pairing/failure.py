"""What kinds of failure does a pairing distinguish? (P-3)

Only UNAVAILABLE can fail an entity over. Which error is of which kind stands in outcome.py. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Failure(Enum):
    """The kind of a failed attempt, and so what becomes of the message."""

    UNAVAILABLE = "unavailable"  # starts the timer, can fail over
    BUSY = "busy"  # wait and send again within the caller's budget
    CONFIGURATION = "configuration"  # raised at once: a person must act
    FULL = "full"  # raised: the quota of the entity is used up
    CALLER = "caller"  # raised: this message or argument will never be accepted


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one error means for the entity and for the message."""

    failure: Failure
    why: str
    is_missing: bool = False  # the entity does not exist: a backlog can be created
    is_too_large: bool = False  # the message does not fit (P-22)
    is_ambiguous: bool = False  # the message may have been stored all the same
    is_of_namespace: bool = False  # every entity there would refuse us: credential, certificate (P-50)
    is_link_in_doubt: bool = False  # an idle link may have died, a token run out: worth a fresh one
    retry_after: float | None = None  # seconds the broker asks to wait
