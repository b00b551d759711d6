"""What can go wrong on purpose? Small named effects, each with its settings.

A *striking* effect changes one operation; a *standing* one holds for as long as its rule does. Which
operations an effect can strike stands with it (``strikes``), its name in plans and over HTTP in ``name``.
``happens``: what was asked for is carried out all the same. ``answers``: an answer goes out, if another.
An effect without settings of its own is the dataclass that its base is: to make another costs each start.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Outage(Enum):
    """What a client meets at the port of a namespace that was taken down."""

    REFUSE = "refuse"  # the port is closed; connections are aborted
    RESET = "reset"  # connections are accepted and reset at once; those that are open are aborted
    SILENT = "silent"  # connections are accepted, and nothing is ever read or answered
    SLOW = "slow"  # everything works, and each answer leaves late
    HALF_OPEN = "half-open"  # connections that are open die without a sign, for ever; new ones are served


class Operation(Enum):
    """What a striking effect can strike."""

    CONNECT = "connect"  # an AMQP connection comes in
    ATTACH = "attach"  # a link to an entity is opened
    SEND = "send"  # a message or a batch comes in over a link
    SCHEDULE = "schedule"  # messages are scheduled over $management
    RECEIVE = "receive"  # a message goes out to a receiver
    SETTLE = "settle"  # a receiver says what became of messages
    MANAGE = "manage"  # any other request to $management: peek, renew, settle, session state
    ADMINISTER = "administer"  # an entity or a rule is created, updated or deleted over HTTP


_SENDS = frozenset({Operation.SEND, Operation.SCHEDULE})
_REQUESTS = frozenset({*_SENDS, Operation.SETTLE, Operation.ATTACH, Operation.MANAGE})
_TRAFFIC = frozenset({Operation.ATTACH, Operation.SEND, Operation.RECEIVE, Operation.SETTLE})


@dataclass(frozen=True, slots=True)
class Effect:
    """Base of all effects. ``usual``: the operations a rule strikes that names none."""

    name: ClassVar[str]
    strikes: ClassVar[frozenset[Operation]] = frozenset()
    usual: ClassVar[frozenset[Operation]] = _SENDS
    happens: ClassVar[bool] = False
    answers: ClassVar[bool] = True


class Withhold(Effect):
    """Do it and never answer: a lost acknowledgement, and the client cannot know."""

    __slots__ = ()
    name: ClassVar[str] = "withhold"
    strikes: ClassVar[frozenset[Operation]] = _REQUESTS | {Operation.RECEIVE}
    happens: ClassVar[bool] = True
    answers: ClassVar[bool] = False


class Lose(Effect):
    """Neither do it nor answer: the request was lost on its way."""

    __slots__ = ()
    name: ClassVar[str] = "lose"
    strikes: ClassVar[frozenset[Operation]] = _REQUESTS
    answers: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Delay(Effect):
    """Do it at once, and let the answer, or the delivery, leave ``seconds`` later."""

    name: ClassVar[str] = "delay"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND, Operation.SETTLE, Operation.RECEIVE})
    happens: ClassVar[bool] = True
    seconds: float = 1.0


class AnswerReleased(Effect):
    """Refuse with the outcome ``released`` (3.4.4), which hangs some clients for ever."""

    __slots__ = ()
    name: ClassVar[str] = "released"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})


class AnswerModified(Effect):
    """Refuse with the outcome ``modified`` (3.4.5), which hangs some clients for ever."""

    __slots__ = ()
    name: ClassVar[str] = "modified"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})


@dataclass(frozen=True, slots=True)
class Refusal(Effect):
    """Base of the effects that refuse with a condition and a text."""

    strikes: ClassVar[frozenset[Operation]] = _REQUESTS
    condition: str = "amqp:internal-error"
    description: str = "Refused by a fault that was set on this entity."


class RejectWith(Refusal):
    """Refuse with any condition: ``rejected`` for what is sent or settled, a detach for an attach."""

    __slots__ = ()
    name: ClassVar[str] = "reject"


@dataclass(frozen=True, slots=True)
class Throttle(Refusal):
    """Refuse as the service does when it is too much: server busy, 50009, wait two seconds."""

    name: ClassVar[str] = "throttle"
    condition: str = "com.microsoft:server-busy"
    description: str = (
        "The request was terminated because the entity is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again."
    )


@dataclass(frozen=True, slots=True)
class Full(Refusal):
    """Refuse as a full entity does: the quota is exceeded."""

    name: ClassVar[str] = "full"
    strikes: ClassVar[frozenset[Operation]] = _SENDS
    condition: str = "amqp:resource-limit-exceeded"
    description: str = "The maximum entity size has been reached or exceeded. Error code: 40305."


@dataclass(frozen=True, slots=True)
class TwoFieldError(Refusal):
    """Refuse with an error of two fields, the trailing null left out: legal (1.4), and fatal to some."""

    name: ClassVar[str] = "two-field-error"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    condition: str = "amqp:internal-error"
    description: str = "Rejected with an error of two fields."


@dataclass(frozen=True, slots=True)
class Ending(Effect):
    """Base of the effects that end a link or a connection: after it was ``carried_out``, or instead."""

    strikes: ClassVar[frozenset[Operation]] = _TRAFFIC
    usual: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    answers: ClassVar[bool] = False
    condition: str = "amqp:link:detach-forced"
    description: str = "Ended by a fault that was set on this entity."
    carried_out: bool = False

    @property
    def happens(self) -> bool:  # type: ignore[override]
        """Whether what was asked for is carried out before the end."""
        return self.carried_out


class DetachLink(Ending):
    """Detach the link with a condition; ``carried_out``: after what came was done, else instead."""

    __slots__ = ()
    name: ClassVar[str] = "detach"


@dataclass(frozen=True, slots=True)
class CloseConnection(Ending):
    """Close the connection with a condition; ``carried_out``: after what came was done, else instead."""

    name: ClassVar[str] = "close"
    condition: str = "amqp:connection:forced"


@dataclass(frozen=True, slots=True)
class CutAfter(Effect):
    """Cut a new connection once ``count`` bytes came from the client (``in``) or went to it (``out``)."""

    name: ClassVar[str] = "cut"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.CONNECT})
    usual: ClassVar[frozenset[Operation]] = strikes
    happens: ClassVar[bool] = True
    count: int = 0
    direction: str = "out"


class NoCredit(Effect):
    """Open the sender's link and give it no credit, for as long as the link lives; some SDKs send anyway."""

    __slots__ = ()
    name: ClassVar[str] = "no-credit"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.ATTACH})
    usual: ClassVar[frozenset[Operation]] = strikes
    happens: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LateVisibility(Effect):
    """Accept, and let the message become visible ``seconds`` of entity time later: till then scheduled."""

    name: ClassVar[str] = "late-visibility"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.SEND})
    happens: ClassVar[bool] = True
    seconds: float = 60.0


class Conflict(Effect):
    """Refuse as the administration does while another change is under way there: 409, sub-code 40901."""

    __slots__ = ()
    name: ClassVar[str] = "conflict"
    strikes: ClassVar[frozenset[Operation]] = frozenset({Operation.ADMINISTER})
    usual: ClassVar[frozenset[Operation]] = strikes


class Standing(Effect):
    """Base of the effects that hold from the beginning of a rule's window to its end."""

    __slots__ = ()
    usual: ClassVar[frozenset[Operation]] = frozenset()


@dataclass(frozen=True, slots=True)
class Down(Standing):
    """The whole namespace fails: ``how`` is one of the outages; ``delay`` in seconds, for ``slow``."""

    name: ClassVar[str] = "down"
    how: str = "refuse"
    delay: float = 0.2


@dataclass(frozen=True, slots=True)
class PartitionDown(Standing):
    """One partition of an entity is down, or ``throttled``: hands out what it has, takes nothing (Q-4)."""

    name: ClassVar[str] = "partition-down"
    index: int = 0
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class Disabled(Standing):
    """The entity has this ``status``: Disabled, SendDisabled or ReceiveDisabled."""

    name: ClassVar[str] = "disabled"
    status: str = "Disabled"


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
        LateVisibility,
        Conflict,
        Disabled,
        PartitionDown,
    )
}
