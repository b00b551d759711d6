"""The forty faults: what breaks, at which moment, for how long. Twenty-six hit a sender, fourteen a receiver.

A fault is a rule of the proxy, a rule of the broker, or an event of the stage. One with ``seconds`` lasts so long; any
other strikes once, and is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sbpair.broker.faults import (
    AnswerModified,
    AnswerReleased,
    CloseConnection,
    Delay,
    DetachLink,
    FaultRule,
    Lose,
    LoseLock,
    NoCredit,
    Operation,
    SilenceLink,
    Throttle,
    TwoFieldError,
    Withhold,
)
from sbpair.broker.testing.frames import IN, OUT, Action, FrameRule
from sbpair.broker.testing.proxy_plan import LineSettings

QUEUE = "orders"
LASTING = 5.0  # seconds of a fault that lasts


class Side(Enum):
    """What the client does while the fault strikes."""

    SEND = "send"
    RECEIVE = "receive"


class Moment(Enum):
    """When the fault is set."""

    OPENING = "opening"  # before the first operation of the client
    UNDER_WAY = "under way"  # after two operations that succeeded


class Event(Enum):
    """What happens to the whole namespace, or to every connection with it."""

    REFUSE = "refuse"  # nothing listens on the port, and the connections are gone
    RESET = "reset"  # every connection is reset
    DEAF = "deaf"  # what the client sends is discarded
    MUTE = "mute"  # what the broker sends is discarded
    BLACKHOLE = "blackhole"  # both
    KILL = "kill"  # the broker is killed, and started again on its disk
    UNRESOLVED = "unresolved"  # the name of the host does not exist, from the beginning to the end


@dataclass(frozen=True, slots=True)
class Cut:
    """The next connection ends after so many bytes in a direction."""

    direction: str
    count: int


Cause = FrameRule | FaultRule | Cut | LineSettings | Event


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table. ``seconds`` is how long it lasts, 0 for once; ``over_tls`` lets the client speak TLS."""

    name: str
    title: str
    role: Side
    cause: Cause
    seconds: float = 0.0
    moment: Moment = Moment.UNDER_WAY
    over_tls: bool = False


def _frame(
    action: str, performative: str, direction: str, address: str | None = QUEUE, seconds: float = 0.0
) -> FrameRule:
    return FrameRule(Action(action), performative, direction, address, seconds=seconds)


def _opening(name: str, title: str, cause: Cause, seconds: float = 0.0, *, over_tls: bool = False) -> Fault:
    return Fault(name, title, Side.SEND, cause, seconds, Moment.OPENING, over_tls)


def _sending(name: str, title: str, cause: Cause, seconds: float = 0.0, *, over_tls: bool = False) -> Fault:
    return Fault(name, title, Side.SEND, cause, seconds, over_tls=over_tls)


def _receiving(name: str, title: str, cause: Cause, seconds: float = 0.0) -> Fault:
    return Fault(name, title, Side.RECEIVE, cause, seconds)


def _once(effect: object, operation: Operation | None = None, times: int = 1) -> FaultRule:
    return FaultRule(effect, QUEUE, operation, times=times)  # type: ignore[arg-type]


EXPIRED = DetachLink("amqp:unauthorized-access", "ExpiredToken: The token is expired.")
FAULTS: tuple[Fault, ...] = (
    _opening("refused", "the port refuses connections", Event.REFUSE, LASTING),
    _opening("unresolved", "the host name does not resolve, ever", Event.UNRESOLVED),
    _opening("cut-sasl", "cut after the protocol header", Cut(OUT, 8)),
    _opening("reset-open", "reset in place of the answer to open", _frame("reset", "open", OUT, None)),
    _opening("drip", "a byte a write, 2 kB a second", LineSettings(bandwidth=2_000, slice=1), LASTING),
    _opening("lost-cbs", "the answer to the token is lost", _frame("drop", "transfer", OUT, "$cbs")),
    _opening("lost-attach", "the answer to attach is lost", _frame("drop", "attach", OUT)),
    _opening("busy-attach", "attach is refused, server busy", _once(Throttle(), Operation.ATTACH)),
    _opening("no-credit", "attached, and no credit comes", _once(NoCredit())),
    _opening("tls-cut", "cut in the TLS handshake", Cut(OUT, 600), over_tls=True),
    _sending("tls-reset", "a TLS connection is reset", Event.RESET, over_tls=True),
    _sending("reset-transfer", "reset before the message arrives", _frame("reset", "transfer", IN)),
    _sending("half-transfer", "cut in the middle of the message", _frame("truncate", "transfer", IN)),
    _sending("reset-answer", "reset after the message is stored", _frame("reset", "disposition", OUT)),
    _sending("lost-answer", "stored, and the answer is lost", _once(Withhold(), Operation.SEND)),
    _sending("late-answer", "stored, and the answer comes 4 s late", _once(Delay(4.0), Operation.SEND)),
    _sending("twice-answer", "the answer arrives twice", _frame("repeat", "disposition", OUT)),
    _sending("huge-answer", "the answer announces a frame of 64 MiB", _frame("oversize", "disposition", OUT)),
    _sending("released", "the outcome is released", _once(AnswerReleased())),
    _sending("modified", "the outcome is modified", _once(AnswerModified())),
    _sending("short-error", "rejected, with an error of two fields", _once(TwoFieldError())),
    _sending("throttled", "server busy, three times", _once(Throttle(), Operation.SEND, times=3)),
    _sending("detached", "stored, then the link is detached", _once(DetachLink(carried_out=True))),
    _sending("mute", "what the broker sends is lost", Event.MUTE, LASTING),
    _sending("killed", "the broker is killed, and back after 5 s", Event.KILL, LASTING),
    _sending("expired", "the link is detached, for its token has expired", _once(EXPIRED, Operation.SEND)),
    _receiving("r-reset-message", "reset in place of a message", _frame("reset", "transfer", OUT)),
    _receiving("r-half-message", "cut in the middle of a message", _frame("truncate", "transfer", OUT)),
    _receiving("r-twice-message", "the frame of a message arrives twice", _frame("repeat", "transfer", OUT)),
    _receiving(
        "r-huge-message", "a message announces a frame of 64 MiB", _frame("oversize", "transfer", OUT)
    ),
    _receiving("r-lost-credit", "the credit is lost on its way", _frame("drop", "flow", IN)),
    _receiving("r-silent", "the link delivers nothing more", _once(SilenceLink())),
    _receiving("r-reset-settle", "reset before a completion arrives", _frame("reset", "disposition", IN)),
    _receiving("r-lost-settle", "a completion is lost", _once(Lose(), Operation.SETTLE)),
    _receiving(
        "r-lost-confirmation", "completed, and the confirmation is lost", _once(Withhold(), Operation.SETTLE)
    ),
    _receiving("r-lock-lost", "the lock is lost at once", _once(LoseLock())),
    _receiving(
        "r-closed", "the connection is closed with an error", _once(CloseConnection(), Operation.RECEIVE)
    ),
    _receiving("r-blackhole", "both directions are lost", Event.BLACKHOLE, LASTING),
    _receiving("r-deaf", "what the client sends is lost", Event.DEAF, LASTING),
    _receiving("r-killed", "the broker is killed, and back after 5 s", Event.KILL, LASTING),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
