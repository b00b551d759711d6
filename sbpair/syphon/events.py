"""What has the syphon to report? Facts in the past tense, each with its time (seconds since the epoch)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyphonEvent:
    at: float


@dataclass(frozen=True, slots=True)
class SyphonConnected(SyphonEvent):
    """Both sides are reached, and the pumps run."""


@dataclass(frozen=True, slots=True)
class SyphonDisconnected(SyphonEvent):
    """A side was lost or could not be reached; the next attempt is ``retry_in`` seconds away."""

    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class SideRefused(SyphonEvent):
    """One side refuses us as a whole; if it still does in five seconds, the syphon stops (P-50)."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideAccepted(SyphonEvent):
    """A side that had refused us accepts again."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogMissing(SyphonEvent):
    """A backlog queue does not exist; said once, looked for again every so often."""

    backlog: str


@dataclass(frozen=True, slots=True)
class BacklogDetached(SyphonEvent):
    """The link to a backlog queue was refused or detached; it is attached again."""

    backlog: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockDiffers(SyphonEvent):
    """The secondary's clock is about ``ahead`` seconds ahead of ours (behind when negative); said once.

    Locks are measured against it and are safe; deadlines and ages go by our clock.
    """

    ahead: float


@dataclass(frozen=True, slots=True)
class MessageSetAside(SyphonEvent):
    """A parked message was dead-lettered on its backlog; ``path`` is None when none could be used."""

    backlog: str
    path: str | None
    reason: str
    description: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class MessagesForwarded(SyphonEvent):
    """A destination accepted these messages; what removes them from their backlog goes out next (G-20)."""

    backlog: str
    path: str
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DestinationHeld(SyphonEvent):
    """A destination cannot take messages now; what is for it waits ``retry_in`` seconds, unsettled."""

    path: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class DestinationResumed(SyphonEvent):
    """A destination that was held takes messages again."""

    path: str


@dataclass(frozen=True, slots=True)
class BacklogsDrained(SyphonEvent):
    """Every backlog was found empty, with nothing of it in our hands."""


@dataclass(frozen=True, slots=True)
class BacklogStranded(SyphonEvent):
    """A backlog queue beyond ``backlog_queue_count`` exists: senders may use it, and we do not (F-48)."""

    backlog: str
    holds_messages: bool


@dataclass(frozen=True, slots=True)
class BacklogOverdue(SyphonEvent):
    """The oldest message of a backlog queue is ``age`` seconds old, more than ``threshold``; said once."""

    backlog: str
    age: float
    threshold: float


@dataclass(frozen=True, slots=True)
class BacklogCaughtUp(SyphonEvent):
    """No message of a backlog queue that was overdue is older than the threshold any more."""

    backlog: str
