"""Fault effects: small named dataclasses, each with its settings.

An effect either changes single operations or, as a *standing* effect, holds for as long as its rule does.
``applies_to``: the operations that it can change. ``name``: its name in plans and over HTTP. ``happens``: whether the
operation is carried out nevertheless. ``answers``: whether the client gets an answer, possibly a different one. An
effect without settings is a plain class, because generating a dataclass takes time at every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sbpair.pair.amqp.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    INTERNAL_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
)


class Outage(Enum):
    """How a namespace that was taken down behaves towards its clients."""

    REFUSE = "refuse"  # the port is closed; connections are aborted
    RESET = "reset"  # connections are accepted and reset at once; those that are open are aborted
    SILENT = "silent"  # connections are accepted, but nothing is read or answered
    SLOW = "slow"  # everything works, but each answer is delayed
    HALF_OPEN = "half-open"  # open connections go silent forever; new ones are served


class Operation(Enum):
    """The operations that a fault can change."""

    CONNECT = "connect"  # an AMQP connection comes in
    ATTACH = "attach"  # a link to an entity is opened
    SEND = "send"  # a message or a batch comes in over a link
    SCHEDULE = "schedule"  # messages are scheduled over $management
    RECEIVE = "receive"  # a message goes out to a receiver
    SETTLE = "settle"  # a receiver settles messages
    MANAGE = "manage"  # any other request to $management: peek, renew, settle, session state
    ADMINISTER = "administer"  # an entity or a rule is created, updated or deleted over HTTP


_SENDS = frozenset({Operation.SEND, Operation.SCHEDULE})
_REQUESTS = frozenset({*_SENDS, Operation.SETTLE, Operation.ATTACH, Operation.MANAGE})
_TRAFFIC = frozenset({Operation.ATTACH, Operation.SEND, Operation.RECEIVE, Operation.SETTLE})


@dataclass(frozen=True, slots=True)
class Effect:
    """Base of all effects. ``usual``: the operations a rule covers when it names none."""

    name: ClassVar[str]
    applies_to: ClassVar[frozenset[Operation]] = frozenset()
    usual: ClassVar[frozenset[Operation]] = _SENDS
    happens: ClassVar[bool] = False
    answers: ClassVar[bool] = True


class Withhold(Effect):
    """Carry the operation out and never answer: a lost acknowledgement, which leaves the client in doubt."""

    __slots__ = ()
    name: ClassVar[str] = "withhold"
    applies_to: ClassVar[frozenset[Operation]] = _REQUESTS | {Operation.RECEIVE}
    happens: ClassVar[bool] = True
    answers: ClassVar[bool] = False


class Lose(Effect):
    """Neither perform the operation nor answer, as if the request was lost."""

    __slots__ = ()
    name: ClassVar[str] = "lose"
    applies_to: ClassVar[frozenset[Operation]] = _REQUESTS
    answers: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Delay(Effect):
    """Carry the operation out at once; send the answer, or the delivery, ``seconds`` later."""

    name: ClassVar[str] = "delay"
    applies_to: ClassVar[frozenset[Operation]] = frozenset(
        {Operation.SEND, Operation.SETTLE, Operation.RECEIVE}
    )
    happens: ClassVar[bool] = True
    seconds: float = 1.0


class AnswerReleased(Effect):
    """Refuse with the outcome ``released`` (AMQP 3.4.4), which makes some clients wait forever."""

    __slots__ = ()
    name: ClassVar[str] = "released"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})


class AnswerModified(Effect):
    """Refuse with the outcome ``modified`` (AMQP 3.4.5), which makes some clients wait forever."""

    __slots__ = ()
    name: ClassVar[str] = "modified"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})


@dataclass(frozen=True, slots=True)
class RefusingEffect(Effect):
    """Base of the effects that refuse with an error condition and its description."""

    applies_to: ClassVar[frozenset[Operation]] = _REQUESTS
    condition: str = INTERNAL_ERROR
    description: str = "Refused by a fault that was set on this entity."


class RejectWith(RefusingEffect):
    """Refuse with any condition: ``rejected`` for transfers and settlements, a detach for an attach."""

    __slots__ = ()
    name: ClassVar[str] = "reject"


@dataclass(frozen=True, slots=True)
class Throttle(RefusingEffect):
    """Refuse as the throttled service does: server busy, code 50009, retry after two seconds."""

    name: ClassVar[str] = "throttle"
    condition: str = SERVER_BUSY
    description: str = (
        "The request was terminated because the entity is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again."
    )


@dataclass(frozen=True, slots=True)
class Full(RefusingEffect):
    """Refuse as a full entity does: the quota is exceeded."""

    name: ClassVar[str] = "full"
    applies_to: ClassVar[frozenset[Operation]] = _SENDS
    condition: str = RESOURCE_LIMIT_EXCEEDED
    description: str = "The maximum entity size has been reached or exceeded. Error code: 40305."


@dataclass(frozen=True, slots=True)
class TwoFieldError(RefusingEffect):
    """Refuse with an error that omits the trailing null field: legal (AMQP 1.4), and fatal to some clients."""

    name: ClassVar[str] = "two-field-error"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    condition: str = INTERNAL_ERROR
    description: str = "Rejected with an error of two fields."


@dataclass(frozen=True, slots=True)
class EndingEffect(Effect):
    """Base of the effects that end a link or a connection, instead of the operation or (``carried_out``) after it."""

    applies_to: ClassVar[frozenset[Operation]] = _TRAFFIC
    usual: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    answers: ClassVar[bool] = False
    condition: str = DETACH_FORCED
    description: str = "Ended by a fault that was set on this entity."
    carried_out: bool = False

    @property
    def happens(self) -> bool:  # type: ignore[override]
        """Whether the operation is carried out before the link or connection ends."""
        return self.carried_out


class DetachLink(EndingEffect):
    """Detach the link with a condition, instead of the operation or (``carried_out``) after it."""

    __slots__ = ()
    name: ClassVar[str] = "detach"


@dataclass(frozen=True, slots=True)
class CloseConnection(EndingEffect):
    """Close the connection with a condition, instead of the operation or (``carried_out``) after it."""

    name: ClassVar[str] = "close"
    condition: str = CONNECTION_FORCED


@dataclass(frozen=True, slots=True)
class CutAfter(Effect):
    """Cut a new connection once ``count`` bytes came from the client (``in``) or were sent to it (``out``)."""

    name: ClassVar[str] = "cut"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.CONNECT})
    usual: ClassVar[frozenset[Operation]] = applies_to
    happens: ClassVar[bool] = True
    count: int = 0
    direction: str = "out"


class NoCredit(Effect):
    """Attach the sender's link without ever granting credit; some SDKs send anyway."""

    __slots__ = ()
    name: ClassVar[str] = "no-credit"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.ATTACH})
    usual: ClassVar[frozenset[Operation]] = applies_to
    happens: ClassVar[bool] = True


class SilenceLink(Effect):
    """Deliver nothing more on the receiver's link, which stays attached; a message locked for it is released."""

    __slots__ = ()
    name: ClassVar[str] = "silence"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.RECEIVE})
    usual: ClassVar[frozenset[Operation]] = applies_to
    answers: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class LoseLock(Effect):
    """Deliver the message, and end its lock (or its session's) after ``seconds``, before the lock would expire."""

    name: ClassVar[str] = "lose-lock"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.RECEIVE})
    usual: ClassVar[frozenset[Operation]] = applies_to
    happens: ClassVar[bool] = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LateVisibility(Effect):
    """Accept the message and keep it scheduled for ``seconds`` of entity time."""

    name: ClassVar[str] = "late-visibility"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    happens: ClassVar[bool] = True
    seconds: float = 60.0


class Conflict(Effect):
    """Refuse as the administration API does during a concurrent change: 409, sub-code 40901."""

    __slots__ = ()
    name: ClassVar[str] = "conflict"
    applies_to: ClassVar[frozenset[Operation]] = frozenset({Operation.ADMINISTER})
    usual: ClassVar[frozenset[Operation]] = applies_to


class StandingEffect(Effect):
    """Base of the effects that hold from the beginning of a rule's window to its end."""

    __slots__ = ()
    usual: ClassVar[frozenset[Operation]] = frozenset()


@dataclass(frozen=True, slots=True)
class Down(StandingEffect):
    """The whole namespace fails; ``how``: the value of an Outage; ``delay``: seconds, for ``slow``."""

    name: ClassVar[str] = "down"
    how: str = "refuse"
    delay: float = 0.2


@dataclass(frozen=True, slots=True)
class PartitionDown(StandingEffect):
    """One partition of an entity is down, or ``throttled``: it delivers but accepts nothing."""

    name: ClassVar[str] = "partition-down"
    index: int = 0
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class Disabled(StandingEffect):
    """The entity has this ``status``: Disabled, SendDisabled or ReceiveDisabled."""

    name: ClassVar[str] = "disabled"
    status: str = "Disabled"


class FrontEndCache(StandingEffect):
    """Front ends cache messages of partitioned entities: for a connection, messages of other partitions stay locked."""

    __slots__ = ()
    name: ClassVar[str] = "front-end-cache"


EFFECTS: dict[str, type[Effect]] = {
    kind.name: kind
    for kind in (
        Down,
        CutAfter,
        NoCredit,
        DetachLink,
        CloseConnection,
        RejectWith,
        Throttle,
        Full,
        TwoFieldError,
        AnswerReleased,
        AnswerModified,
        Withhold,
        Lose,
        Delay,
        SilenceLink,
        LoseLock,
        LateVisibility,
        Conflict,
        Disabled,
        PartitionDown,
        FrontEndCache,
    )
}
