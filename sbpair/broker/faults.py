"""How may an entity, or a whole namespace, fail on purpose?

An entity's fault decides what becomes of each send while it is set; its ``hits`` say how often it struck.
A namespace's outage decides how its port behaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar


class Outage(Enum):
    """What a client meets at the port of a namespace that was taken down; existing connections too."""

    REFUSE = "refuse"  # the port is closed; connections are aborted
    RESET = "reset"  # connections are accepted and reset at once
    SILENT = "silent"  # connections are accepted, and nothing is ever read or answered


class HitCount:
    """How often a fault struck."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Base of the named faults of an entity. ``stores``: the message is kept although the answer lies."""

    stores: ClassVar[bool] = False
    _hits: HitCount = field(default_factory=HitCount, init=False, repr=False, compare=False)

    @property
    def hits(self) -> int:
        """How many sends met this fault."""
        return self._hits.count

    def struck(self) -> None:
        """Count one send."""
        self._hits.count += 1


@dataclass(frozen=True, slots=True)
class Withhold(Fault):
    """Store the message and say nothing: the sender cannot know (an ambiguous send)."""

    stores: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AnswerReleased(Fault):
    """Refuse with the outcome ``released`` (3.4.4), which hangs some clients for ever."""


@dataclass(frozen=True, slots=True)
class AnswerModified(Fault):
    """Refuse with the outcome ``modified`` (3.4.5), which hangs some clients for ever."""


@dataclass(frozen=True, slots=True)
class RejectWith(Fault):
    """Refuse with the outcome ``rejected`` and this condition."""

    condition: str
    description: str = "Rejected by a fault that was set on this entity."


@dataclass(frozen=True, slots=True)
class TwoFieldError(Fault):
    """Refuse with an error of two fields, the trailing null left out: legal (1.4), and fatal to some."""

    condition: str = "amqp:internal-error"
    description: str = "Rejected with an error of two fields."
