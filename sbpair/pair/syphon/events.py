"""The events of a syphon, and their log lines; ``at`` is in seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from logging import DEBUG, ERROR, INFO, WARNING

from sbpair.pair.ground.emitter import LogLine


@dataclass(frozen=True, slots=True)
class SyphonEvent:
    """The base of all events."""

    at: float


@dataclass(frozen=True, slots=True)
class SyphonConnected(SyphonEvent):
    """Both sides are connected; messages of the backlog queues that exist are forwarded."""


@dataclass(frozen=True, slots=True)
class SyphonDisconnected(SyphonEvent):
    """A side was lost or could not be reached; retried in ``retry_in`` seconds."""

    side: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class SideRefused(SyphonEvent):
    """A side has refused the syphon as a whole for five seconds: nothing is settled, and it is retried."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideAccepted(SyphonEvent):
    """A side accepts the syphon again."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogMissing(SyphonEvent):
    """A backlog queue does not exist; emitted once, while the syphon retries at intervals."""

    backlog: str


@dataclass(frozen=True, slots=True)
class BacklogDetached(SyphonEvent):
    """The link to a backlog queue was refused or detached; it is retried."""

    backlog: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockDiffers(SyphonEvent):
    """The secondary's clock is about ``ahead`` seconds ahead of the local one (behind when negative); emitted once.

    Lock renewal accounts for the difference; expiry and ages use the local clock.
    """

    ahead: float


@dataclass(frozen=True, slots=True)
class MessageSetAside(SyphonEvent):
    """A parked message was dead-lettered on its backlog; ``path`` is None if it has no valid destination."""

    backlog: str
    path: str | None
    reason: str
    description: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionHeld(SyphonEvent):
    """A session waits for an operator: its next message cannot be delivered, and ``on_poison`` is "hold".

    ``session`` is the parked session id, ``reason`` the dead-letter reason that the message would have.
    """

    backlog: str
    session: str
    reason: str
    message_id: str


@dataclass(frozen=True, slots=True)
class MessagesForwarded(SyphonEvent):
    """A destination accepted these messages, which are then completed on their backlog.

    ``side`` is "secondary" for messages that landed there, reported before their transaction commits.
    """

    backlog: str
    path: str
    message_ids: tuple[str, ...]
    side: str = "primary"


@dataclass(frozen=True, slots=True)
class MessagesInDoubt(SyphonEvent):
    """Links ended before these messages were answered: the destination may have a copy, and they are sent again."""

    backlog: str
    path: str
    message_ids: tuple[str, ...]
    side: str = "primary"


@dataclass(frozen=True, slots=True)
class DestinationHeld(SyphonEvent):
    """A destination cannot accept messages now; they wait unsettled, and it is retried in ``retry_in`` seconds."""

    path: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class DestinationResumed(SyphonEvent):
    """A held destination accepts messages again."""

    path: str


@dataclass(frozen=True, slots=True)
class LandingBegan(SyphonEvent):
    """A destination has been out of reach for ``out_of_reach`` seconds; its messages land on the secondary."""

    path: str
    out_of_reach: float


@dataclass(frozen=True, slots=True)
class LandingEnded(SyphonEvent):
    """A destination answers again; its messages go to the primary."""

    path: str


@dataclass(frozen=True, slots=True)
class LandingRefused(SyphonEvent):
    """The secondary has no usable entity with this path; messages wait. Retried in ``retry_in`` seconds."""

    path: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class MessagesUntransferred(SyphonEvent):
    """The transfer dead-letter queue of a backlog has ``count`` messages that landed but were then refused.

    They stay there until ``sbpair backlog redrive --transfer`` parks them again.
    """

    backlog: str
    count: int


@dataclass(frozen=True, slots=True)
class BacklogsDrained(SyphonEvent):
    """All backlogs are empty, and nothing is unsettled."""


@dataclass(frozen=True, slots=True)
class BacklogStranded(SyphonEvent):
    """A backlog queue beyond ``backlog_queue_count`` exists: senders may use it, but this syphon does not."""

    backlog: str
    holds_messages: bool


@dataclass(frozen=True, slots=True)
class BacklogOverdue(SyphonEvent):
    """The oldest message of a backlog queue is ``age`` seconds old, more than ``threshold``; emitted once."""

    backlog: str
    age: float
    threshold: float


@dataclass(frozen=True, slots=True)
class BacklogCaughtUp(SyphonEvent):
    """The oldest message of an overdue backlog queue is below the threshold again."""

    backlog: str


LINES: dict[type[SyphonEvent], LogLine] = {
    SyphonConnected: LogLine(INFO, "connected; messages of the backlog queues that exist are forwarded"),
    SyphonDisconnected: LogLine(WARNING, "{side}: {reason}; {again}", repeats="side reason"),
    SideRefused: LogLine(
        ERROR,
        "the {side} refuses the syphon: {cause}; no message moves until it accepts",
        repeats="side cause",
    ),
    SideAccepted: LogLine(WARNING, "the {side} accepts the syphon again"),
    BacklogMissing: LogLine(DEBUG, "{backlog} does not exist on the secondary; checked again later"),
    BacklogDetached: LogLine(WARNING, "{backlog}: {reason}", repeats="reason"),
    ClockDiffers: LogLine(
        WARNING, "the secondary's clock is {ahead:+.0f} s from this machine's: check its time"
    ),
    MessageSetAside: LogLine(
        ERROR, "{backlog}: a message for {path} was dead-lettered: {reason}; see `sbpair backlog peek`"
    ),
    SessionHeld: LogLine(
        ERROR,
        "{backlog}: session {session} is held: message {message_id} cannot be delivered: {reason}; fix the cause, or "
        "restart with --on-poison dead-letter",
    ),
    MessagesForwarded: LogLine(DEBUG, "{path} on the {side} accepted messages of {backlog}"),
    MessagesInDoubt: LogLine(DEBUG, "{path} on the {side} did not answer for messages of {backlog}"),
    DestinationHeld: LogLine(WARNING, "{path} is held: {reason}; {again}", repeats="path reason"),
    DestinationResumed: LogLine(WARNING, "{path} accepts messages again"),
    LandingBegan: LogLine(
        WARNING, "{path} has been out of reach for {out_of_reach:.0f} s; its messages land on the secondary"
    ),
    LandingEnded: LogLine(WARNING, "{path} answers again; its messages go to the primary"),
    LandingRefused: LogLine(WARNING, "{path} cannot land: {reason}; {again}", repeats="path reason"),
    MessagesUntransferred: LogLine(
        ERROR,
        "{backlog} has {count} messages that landed and were refused after all, because their entity was full for "
        "example; park them again with `sbpair backlog redrive --transfer`",
    ),
    BacklogsDrained: LogLine(INFO, "all backlog queues are empty"),
    BacklogStranded: LogLine(
        ERROR,
        "{backlog} exists beyond the syphon's --backlogs (it holds messages: {holds_messages}); use the senders' "
        "backlog count",
    ),
    BacklogOverdue: LogLine(
        ERROR, "{backlog}: its oldest message has waited {age:.0f} s, longer than {threshold:g} s"
    ),
    BacklogCaughtUp: LogLine(WARNING, "{backlog} is no longer overdue"),
}
"""The log line of each event."""
