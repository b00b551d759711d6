"""The log lines of a syphon's events."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING

from sbpair.pair.ground.emitter import LogLine

from . import events

LINES: dict[type[events.SyphonEvent], LogLine] = {
    events.SyphonConnected: LogLine(
        INFO, "connected; messages of the backlog queues that exist are forwarded"
    ),
    events.SyphonDisconnected: LogLine(WARNING, "{reason}; {again}"),
    events.SideRefused: LogLine(
        ERROR, "the {side} refuses the syphon: {cause}; no message moves until it accepts"
    ),
    events.SideAccepted: LogLine(WARNING, "the {side} accepts the syphon again"),
    events.BacklogMissing: LogLine(DEBUG, "{backlog} does not exist on the secondary; checked again later"),
    events.BacklogDetached: LogLine(WARNING, "{backlog}: {reason}", repeats="backlog"),
    events.ClockDiffers: LogLine(
        WARNING, "the secondary's clock is {ahead:+.0f} s from this machine's: check its time"
    ),
    events.MessageSetAside: LogLine(
        ERROR, "{backlog}: a message for {path} was dead-lettered: {reason}; see `sbpair backlog peek`"
    ),
    events.SessionHeld: LogLine(
        ERROR,
        "{backlog}: session {session} is held: message {message_id} cannot be delivered: {reason}; fix the cause, or "
        "restart with --on-poison dead-letter",
    ),
    events.MessagesForwarded: LogLine(DEBUG, "{path} on the {side} accepted messages of {backlog}"),
    events.DestinationHeld: LogLine(WARNING, "{path} is held: {reason}; {again}", repeats="path"),
    events.DestinationResumed: LogLine(WARNING, "{path} accepts messages again"),
    events.LandingBegan: LogLine(
        WARNING, "{path} has been out of reach for {out_of_reach:.0f} s; its messages land on the secondary"
    ),
    events.LandingEnded: LogLine(WARNING, "{path} answers again; its messages go to the primary"),
    events.LandingRefused: LogLine(WARNING, "{path} cannot land: {reason}; {again}", repeats="path"),
    events.MessagesUntransferred: LogLine(
        ERROR,
        "{backlog} has {count} messages that landed and were refused after all, because their entity was full for "
        "example; park them again with `sbpair backlog redrive --transfer`",
    ),
    events.BacklogsDrained: LogLine(INFO, "all backlog queues are empty"),
    events.BacklogStranded: LogLine(
        ERROR,
        "{backlog} exists beyond the syphon's --backlogs (it holds messages: {holds_messages}); use the senders' "
        "backlog count",
    ),
    events.BacklogOverdue: LogLine(
        ERROR, "{backlog}: its oldest message has waited {age:.0f} s, longer than {threshold:g} s"
    ),
    events.BacklogCaughtUp: LogLine(WARNING, "{backlog} is no longer overdue"),
}
