"""What is a canary, and what becomes of one? Pure.

An application that meets a canary recognises it by its content type, or by the application property, and
completes it without a look at the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

CONTENT_TYPE = "application/vnd.sbpair.canary"
PROPERTY = "sbpair-canary"
"""An application property of every canary; its value is the id of the drill."""

TIME_TO_LIVE = timedelta(minutes=10)
MARGIN = timedelta(minutes=10)
"""How much later than the end of the drill a canary is due, where it is to be cancelled before."""


class Proof(StrEnum):
    """How the drill finds out that a canary came home."""

    CANCEL = "cancel"  # scheduled ahead, found by peeking, and cancelled before anybody can receive it
    PEEK = "peek"  # found by peeking, or gone from the backlog: consumers receive it, and skip it
    RECEIVE = "receive"  # received and completed by the drill: for a scratch entity


class Fate(StrEnum):
    """Where a canary is."""

    UNSENT = "not sent"  # the drill was ended before
    REFUSED = "refused"  # no backlog queue took it
    PARKED = "parked"  # in its backlog queue
    HOME = "home"  # seen on the primary
    TAKEN = "taken"  # it left the backlog, and was received before it was seen
    DEAD_LETTERED = "dead-lettered"  # on its backlog, by the syphon
    MISSING = "missing"  # neither in its backlog nor on the primary


ARRIVED = (Fate.HOME, Fate.TAKEN)


@dataclass(slots=True)
class Canary:
    """One canary and what is known of it; spans in seconds since the entity was held."""

    number: int
    message_id: str
    fate: Fate = Fate.UNSENT
    backlog: int | None = None
    parked_after: float | None = None
    home_after: float | None = None
    why: str | None = None
    """Why it was refused or dead-lettered."""


def canaries(drill: str, count: int) -> list[Canary]:
    """``count`` canaries of the drill with that id."""
    return [Canary(number, f"sbpair-canary-{drill}-{number}") for number in range(count)]
