"""On which frame does the proxy act, and how? A rule counts what matches it, and says when it is its turn."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from .frame_stream import IN, OUT, PERFORMATIVES, Passing


class Action(Enum):
    """What becomes of a frame."""

    DROP = "drop"  # it never arrives; the rest of the connection goes on
    DELAY = "delay"  # it, and what follows it, arrives `seconds` later
    HOLD = "hold"  # it, and what follows it, waits until the rule is released
    CUT = "cut"  # the connection ends in front of it, both ways
    RESET = "reset"  # as cut, with a reset
    KILL = "kill"  # the process `pid` is killed in front of it, and it never arrives

    @classmethod
    def _missing_(cls, value: object) -> None:
        known = ", ".join(each.value for each in cls)
        raise ValueError(f"there is no action {value!r}: one of {known}")


@dataclass(frozen=True, slots=True)
class FrameRule:
    """``performative``: open … close; ``direction``: ``in`` (from the client) or ``out``; ``address``: an
    entity's path, or a pattern with ``*``; None for all of each. ``nth``: the n-th of these alone, from 1;
    None for every one. ``after``: let the frame pass first, then act (cut, reset, kill). Raises ValueError.
    """

    action: Action
    performative: str | None = None
    direction: str | None = None
    address: str | None = None
    nth: int | None = 1
    seconds: float = 0.0
    pid: int | None = None
    after: bool = False

    def __post_init__(self) -> None:
        known = PERFORMATIVES.values()
        if self.performative not in (None, *known):
            raise ValueError(f"there is no performative '{self.performative}': one of {', '.join(known)}")
        if self.direction not in (None, IN, OUT):
            raise ValueError(f"direction is '{self.direction}': in (from the client) or out")
        if self.nth is not None and self.nth < 1:
            raise ValueError(f"nth is {self.nth}: at least 1, or None for every one")
        if not self.seconds >= 0:
            raise ValueError(f"seconds is {self.seconds}: not below 0")
        if (self.action is Action.KILL) != (self.pid is not None):
            raise ValueError("kill needs a pid, and nothing else has one")

    def matches(self, passing: Passing) -> bool:
        """Whether the rule is about this frame."""
        if passing.performative is None or self.direction not in (None, passing.direction):
            return False
        if self.performative not in (None, passing.performative):
            return False
        if self.address is None:
            return True
        return passing.address is not None and fnmatchcase(
            passing.address.casefold(), self.address.casefold()
        )


class ActiveRule:
    """A rule of a proxy: how often it struck, and whether it has."""

    def __init__(self, rule: FrameRule) -> None:
        self.rule = rule
        self.seen = 0
        self.hits = 0
        self._struck = threading.Event()
        self.released = threading.Event()

    def meets(self, passing: Passing) -> bool:
        """Tell it of a frame; True when it strikes."""
        if not self.rule.matches(passing):
            return False
        self.seen += 1
        return self.rule.nth in (None, self.seen)

    def struck(self) -> None:
        """It was done: who waits for that goes on."""
        self.hits += 1
        self._struck.set()

    def wait(self, seconds: float = 20.0) -> bool:
        """Wait until it has struck; False when it did not in time."""
        return self._struck.wait(seconds)

    def release(self) -> None:
        """Let what it holds go on."""
        self.released.set()
