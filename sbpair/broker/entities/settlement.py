"""What does a receiver want done with a message it holds? Done now, or kept until a transaction commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from .entity import Entity
from .stored_message import Instant, LockToken

Properties = dict[str, object]


class Verb(Enum):
    """The ways to settle (3.1)."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settle what ``queue`` has locked under ``token``; ``properties`` are set on the message."""

    queue: Entity
    token: LockToken
    verb: Verb
    properties: Properties = field(default_factory=dict)

    def check(self, now: Instant) -> None:
        """Raises what :meth:`apply` would raise at the same instant, and changes nothing else."""
        self.queue.held(self.token, now)
        if self.verb is Verb.DEAD_LETTER:
            self.queue.check_can_dead_letter()

    def apply(self, now: Instant) -> None:
        """Do it. Raises LockLost, SessionLockLost, NotAllowed."""
        _WAYS[self.verb](self.queue, self.token, now, self.properties)


_WAYS: dict[Verb, Callable[[Entity, LockToken, Instant, Properties], None]] = {
    Verb.COMPLETE: lambda queue, token, now, _: queue.complete(token, now),
    Verb.ABANDON: lambda queue, token, now, changes: queue.abandon(token, now, changes),
    Verb.DEFER: lambda queue, token, now, changes: queue.defer(token, now, changes),
    Verb.DEAD_LETTER: lambda queue, token, now, reasons: queue.dead_letter(token, now, reasons),
    Verb.RELEASE: lambda queue, token, now, _: queue.release(token, now),
}
