"""The log lines of a processor's events."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING

from sbpair.pair.ground.emitter import LogLine

from . import events

LINES: dict[type[events.ProcessorEvent], LogLine] = {
    events.ReceivingStarted: LogLine(INFO, "{path} on the {side} is being received from"),
    events.ReceivingLost: LogLine(WARNING, "{path} on the {side}: {reason}; {again}", repeats="path"),
    events.EntityMissing: LogLine(WARNING, "{path} does not exist on the {side}; checked again later"),
    events.MessagesReceived: LogLine(DEBUG, "handlers of {path} on the {side} ended"),
    events.HandlerFailed: LogLine(
        ERROR, "a handler of {path} raised {error}; message {message_id} is abandoned"
    ),
    events.LockEnded: LogLine(
        WARNING,
        "the lock of message {message_id} of {path} ended before it was settled: it is delivered again",
    ),
    events.SettlementUnknown: LogLine(
        WARNING, "the link to {path} on the {side} was lost before settlements were confirmed"
    ),
    events.SettlementRefused: LogLine(
        WARNING, "{path} on the {side} refused to {verb} message {message_id}: {cause}"
    ),
    events.DuplicatesCompleted: LogLine(DEBUG, "messages of {path} were handled before, and are completed"),
    events.LinkSilent: LogLine(
        WARNING, "a link to {path} on the {side} delivered nothing for {seconds:.0f} s, and is replaced"
    ),
    events.SessionAccepted: LogLine(DEBUG, "session {session_id} of {path} on the {side} is held"),
    events.SessionReleased: LogLine(DEBUG, "session {session_id} of {path} on the {side} is no longer held"),
}
