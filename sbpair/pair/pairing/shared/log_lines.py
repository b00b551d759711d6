"""The log lines of a client's events."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING

from sbpair.pair.ground.emitter import LogLine

from .. import events

LINES: dict[type[events.PairingEvent], LogLine] = {
    events.EntitySuspected: LogLine(
        WARNING, "sends to {path} fail: {cause}; the failover interval is running", repeats="path"
    ),
    events.EntityFailedOver: LogLine(
        WARNING, "{path} has failed over, its messages are parked until a syphon brings them home: {cause}"
    ),
    events.EntityRecovered: LogLine(WARNING, "{path} is healthy again: {cause}", repeats="path cause"),
    events.EntityReturning: LogLine(WARNING, "{path} returns: more and more sends try the primary"),
    events.ReturnAborted: LogLine(
        WARNING, "a trial send to {path} failed and is parked: {cause}", repeats="path cause"
    ),
    events.PrimarySlow: LogLine(
        WARNING, "the primary accepted a send to {path} after {seconds:.1f} s only", repeats="path"
    ),
    events.KeySetAside: LogLine(
        WARNING,
        "messages of key {key} of {path} fail while others succeed, and skip the primary: {cause}",
        repeats="path key",
    ),
    events.MessageParked: LogLine(DEBUG, "backlog queue {backlog} accepted messages for {path}: {count}"),
    events.SendRaised: LogLine(DEBUG, "a send to {path} raised {cause}"),
    events.BacklogFilling: LogLine(
        ERROR, "backlog queue {backlog} has reached {threshold:.0%} of its limit of {limit} bytes"
    ),
    events.BacklogWithdrawn: LogLine(
        WARNING,
        "backlog queue {backlog} failed and is not used for {rest:.0f} s: {cause}",
        repeats="backlog cause",
    ),
    events.BacklogReturned: LogLine(
        WARNING, "backlog queue {backlog} accepted a message again", repeats="backlog"
    ),
    events.FenceOpened: LogLine(
        INFO, "ordered backlog queue {backlog} is empty: its sessions use the primary again: {sessions}"
    ),
    events.FenceUnproved: LogLine(
        WARNING,
        "ordered backlog queue {backlog} cannot be peeked, its sessions stay parked: {cause}",
        repeats="backlog cause",
    ),
    events.MessageSpooled: LogLine(DEBUG, "messages for {path} were written to the spool: {count}"),
    events.SpoolReplayed: LogLine(
        DEBUG, "messages for {path} left the spool: {count}; messages that still wait: {left}"
    ),
    events.SpooledMessageRefused: LogLine(
        ERROR,
        "{path} refused message {message_id} of the spool, where it stays: {cause}",
        repeats="path message_id cause",
    ),
    events.PingSent: LogLine(INFO, "a ping was sent to {path}"),
    events.LinkProbed: LogLine(INFO, "a link to {path} is opened as a probe"),
    events.PingFailed: LogLine(INFO, "a ping to {path} was not accepted: {cause}"),
    events.HeadroomShort: LogLine(
        WARNING,
        "message {message_id} for {path} may be too large to be parked: {size} bytes, the smaller limit is {limit}",
        repeats="path",
    ),
    events.PairingDisabled: LogLine(WARNING, "pairing is disabled: {cause}"),
    events.ClassifierFailed: LogLine(ERROR, "the classifier of the options failed: {cause}", repeats="cause"),
    events.SideClosed: LogLine(WARNING, "the {side} was closed: {cause}"),
    events.SideFaulted: LogLine(ERROR, "the {side} refuses this client: {cause}", repeats="side cause"),
    events.SideRecovered: LogLine(
        WARNING, "the {side} accepts this client again: {cause}", repeats="side cause"
    ),
    events.PairFaulted: LogLine(ERROR, "the pair ended, and sends nothing more: {cause}"),
    events.BacklogsCreated: LogLine(INFO, "all backlog queues exist"),
    events.BacklogsNotCreated: LogLine(
        ERROR, "the backlog queues could not be ensured: {cause}", repeats="cause"
    ),
}
