"""What can peers say to each other? The nine performatives (2.7) and five SASL frames (5.3.3), as tables.

A field without a default is mandatory. Names are the standard's with hyphens as underscores; an
error is called `error` on the wire and a `Condition` here.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from .composite import BINARY, BOOLEAN, MAP, STRING, SYMBOL, SYMBOLS, UBYTE, UINT, ULONG, USHORT, composite
from .delivery_state import STATE, DeliveryState
from .outcomes import (
    ACCEPTED,
    CONDITION,
    RELEASED,
    Accepted,
    AmqpMap,
    Condition,
    Modified,
    Received,
    Rejected,
    Released,
)
from .terminus import SOURCE, TARGET, Coordinator, Source, Target
from .transactions import Declare, Declared, Discharge, TransactionalState

MAX_UINT = 0xFFFFFFFF
SENDER, RECEIVER = False, True  # 2.8.1, role


@composite(0x10, "amqp:open:list")
@dataclass(slots=True)
class Open:
    """2.7.1."""

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = MAX_UINT
    channel_max: Annotated[int, USHORT] = 0xFFFF
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    incoming_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[AmqpMap | None, MAP] = None


@composite(0x11, "amqp:begin:list")
@dataclass(slots=True)
class Begin:
    """2.7.2."""

    remote_channel: Annotated[int | None, USHORT]
    next_outgoing_id: Annotated[int, UINT]
    incoming_window: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle_max: Annotated[int, UINT] = MAX_UINT
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[AmqpMap | None, MAP] = None


@composite(0x12, "amqp:attach:list")
@dataclass(slots=True)
class Attach:
    """2.7.3."""

    name: Annotated[str, STRING]
    handle: Annotated[int, UINT]
    role: Annotated[bool, BOOLEAN]
    snd_settle_mode: Annotated[int, UBYTE] = 2
    rcv_settle_mode: Annotated[int, UBYTE] = 0
    source: Annotated[Source | None, SOURCE] = None
    target: Annotated[Target | Coordinator | None, TARGET] = None
    unsettled: Annotated[AmqpMap | None, MAP] = None
    incomplete_unsettled: Annotated[bool, BOOLEAN] = False
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[AmqpMap | None, MAP] = None


@composite(0x13, "amqp:flow:list")
@dataclass(slots=True)
class Flow:
    """2.7.4."""

    next_incoming_id: Annotated[int | None, UINT]
    incoming_window: Annotated[int, UINT]
    next_outgoing_id: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool, BOOLEAN] = False
    echo: Annotated[bool, BOOLEAN] = False
    properties: Annotated[AmqpMap | None, MAP] = None


@composite(0x14, "amqp:transfer:list")
@dataclass(slots=True)
class Transfer:
    """2.7.5; the payload follows it in the frame."""

    handle: Annotated[int, UINT]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool, BOOLEAN] = False
    rcv_settle_mode: Annotated[int | None, UBYTE] = None
    state: Annotated[DeliveryState | None, STATE] = None
    resume: Annotated[bool, BOOLEAN] = False
    aborted: Annotated[bool, BOOLEAN] = False
    batchable: Annotated[bool, BOOLEAN] = False


@composite(0x15, "amqp:disposition:list")
@dataclass(slots=True)
class Disposition:
    """2.7.6; the role is that of who sends it."""

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[DeliveryState | None, STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@composite(0x16, "amqp:detach:list")
@dataclass(slots=True)
class Detach:
    """2.7.7."""

    handle: Annotated[int, UINT]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[Condition | None, CONDITION] = None


@composite(0x17, "amqp:end:list")
@dataclass(slots=True)
class End:
    """2.7.8."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x18, "amqp:close:list")
@dataclass(slots=True)
class Close:
    """2.7.9."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x40, "amqp:sasl-mechanisms:list")
@dataclass(slots=True)
class SaslMechanisms:
    """5.3.3.1."""

    sasl_server_mechanisms: Annotated[tuple[str, ...], SYMBOLS]


@composite(0x41, "amqp:sasl-init:list")
@dataclass(slots=True)
class SaslInit:
    """5.3.3.2."""

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None

    def __repr__(self) -> str:  # the response is a secret
        return f"SaslInit(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@composite(0x42, "amqp:sasl-challenge:list")
@dataclass(slots=True)
class SaslChallenge:
    """5.3.3.3."""

    challenge: Annotated[bytes, BINARY]


@composite(0x43, "amqp:sasl-response:list")
@dataclass(slots=True, repr=False)
class SaslResponse:
    """5.3.3.4."""

    response: Annotated[bytes, BINARY]


@composite(0x44, "amqp:sasl-outcome:list")
@dataclass(slots=True)
class SaslOutcome:
    """5.3.3.5; code 0 is ok, 1 a refused authentication."""

    code: Annotated[int, UBYTE]
    additional_data: Annotated[bytes | None, BINARY] = None


def without_details(performative: object) -> object:
    """The same, but for an error in it: its description cut to 100 characters and its info dropped."""
    if isinstance(performative, Detach | End | Close) and performative.error is not None:
        return replace(performative, error=_brief(performative.error))
    if isinstance(performative, Disposition) and isinstance(performative.state, Rejected):
        error = performative.state.error
        return replace(performative, state=Rejected(error and _brief(error)))
    return performative


def _brief(error: Condition) -> Condition:
    return Condition(error.symbol, error.description and error.description[:100])


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslFrame = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome

__all__ = [
    "ACCEPTED",
    "MAX_UINT",
    "RECEIVER",
    "RELEASED",
    "SENDER",
    "Accepted",
    "AmqpMap",
    "Attach",
    "Begin",
    "Close",
    "Condition",
    "Coordinator",
    "Declare",
    "Declared",
    "DeliveryState",
    "Detach",
    "Discharge",
    "Disposition",
    "End",
    "Flow",
    "Modified",
    "Open",
    "Performative",
    "Received",
    "Rejected",
    "Released",
    "SaslChallenge",
    "SaslFrame",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslResponse",
    "Source",
    "Target",
    "TransactionalState",
    "Transfer",
    "without_details",
]
