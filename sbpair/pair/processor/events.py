"""The events of a processor, and their log lines.

``at`` is in seconds since the epoch, ``side`` is ``primary`` or ``secondary``.
"""

from __future__ import annotations

from dataclasses import dataclass
from logging import DEBUG, ERROR, INFO, WARNING

from sbpair.pair.ground.emitter import LogLine


@dataclass(frozen=True, slots=True)
class ProcessorEvent:
    """The base of all events."""

    at: float
    path: str
    side: str


@dataclass(frozen=True, slots=True)
class ReceivingStarted(ProcessorEvent):
    """A link to the entity is attached, and its messages are being received."""


@dataclass(frozen=True, slots=True)
class ReceivingLost(ProcessorEvent):
    """A side was lost or could not be reached; retried in ``retry_in`` seconds."""

    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class EntityMissing(ProcessorEvent):
    """The entity does not exist on this side; emitted once, while the processor checks for it at intervals."""


@dataclass(frozen=True, slots=True)
class MessagesReceived(ProcessorEvent):
    """Messages whose handling finished: about to be completed, or dead-lettered by their handler.

    Emitted before they are settled, for an audit. The tuples are parallel; "" and 0 stand for missing values.
    ``enqueued``: by the broker's clock, in milliseconds since the epoch; 0 for one that was scheduled.
    ``checksums``: the CRC-32 of each body, -1 for one that is not of data.
    """

    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]
    enqueued: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerFailed(ProcessorEvent):
    """A handler raised an error other than DeadLetter, Defer and Abandon: its message is abandoned."""

    message_id: str
    error: str


@dataclass(frozen=True, slots=True)
class LockEnded(ProcessorEvent):
    """The lock of a message expired before it was settled: it is redelivered.

    ``handled`` is true if the handler had returned.
    """

    message_id: str
    handled: bool


@dataclass(frozen=True, slots=True)
class SettlementUnknown(ProcessorEvent):
    """The link was lost before settlements were confirmed: they took effect, or the messages are delivered again."""

    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettlementRefused(ProcessorEvent):
    """The broker refused a settlement although the lock is held: the message stays locked until the lock expires."""

    message_id: str
    verb: str
    cause: str


@dataclass(frozen=True, slots=True)
class DuplicatesCompleted(ProcessorEvent):
    """Messages were completed without calling their handler: messages with the same ids were handled before."""

    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkSilent(ProcessorEvent):
    """A link that delivered nothing although messages waited was replaced."""

    seconds: float
    """How long it had been silent."""


@dataclass(frozen=True, slots=True)
class SessionAccepted(ProcessorEvent):
    """A session is held: its messages are handled in order."""

    session_id: str


@dataclass(frozen=True, slots=True)
class SessionReleased(ProcessorEvent):
    """A session is no longer held: it was idle, its lock was lost, or the processor stopped."""

    session_id: str


LINES: dict[type[ProcessorEvent], LogLine] = {
    ReceivingStarted: LogLine(INFO, "{path} on the {side} is being received from"),
    ReceivingLost: LogLine(WARNING, "{path} on the {side}: {reason}; {again}", repeats="path side reason"),
    EntityMissing: LogLine(
        WARNING, "{path} does not exist on the {side}; checked again later", repeats="path side"
    ),
    MessagesReceived: LogLine(DEBUG, "handlers of {path} on the {side} ended"),
    HandlerFailed: LogLine(ERROR, "a handler of {path} raised {error}; message {message_id} is abandoned"),
    LockEnded: LogLine(
        WARNING,
        "locks of messages of {path} ended before they were settled, {message_id} first: they are delivered again",
        repeats="path",
    ),
    SettlementUnknown: LogLine(
        WARNING,
        "the link to {path} on the {side} was lost before settlements were confirmed",
        repeats="path side",
    ),
    SettlementRefused: LogLine(
        WARNING,
        "{path} on the {side} refused to {verb} message {message_id}: {cause}",
        repeats="path side verb cause",
    ),
    DuplicatesCompleted: LogLine(DEBUG, "messages of {path} were handled before, and are completed"),
    LinkSilent: LogLine(
        WARNING,
        "a link to {path} on the {side} delivered nothing for {seconds:.0f} s, and is replaced",
        repeats="path side",
    ),
    SessionAccepted: LogLine(DEBUG, "session {session_id} of {path} on the {side} is held"),
    SessionReleased: LogLine(DEBUG, "session {session_id} of {path} on the {side} is no longer held"),
}
"""The log line of each event."""
