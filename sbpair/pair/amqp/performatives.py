"""The composite types of AMQP 1.0 parts 2 to 5: performatives, SASL frames, termini, delivery states, transactions.

Each is a dataclass whose annotations carry the wire type of its fields. A field without a default is mandatory.
Names are those of the standard, with underscores for hyphens; its ``error`` type is :class:`Condition`.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Final

from .composite import (
    ANYTHING,
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    FieldType,
    composite,
    nested_field,
    read_nested,
    write_composite,
)
from .types import Described

MAX_UINT: Final = 0xFFFFFFFF
SENDER: Final = False  # the values of a role (2.8.1)
RECEIVER: Final = True
LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"  # 4.5.8
MULTI_TRANSACTIONS: Final = "amqp:multi-txns-per-ssn"
MULTI_SESSIONS: Final = "amqp:multi-ssns-per-txn"

# Errors and delivery states (2.8.14, 3.4, 4.5)

AmqpMap = dict[object, object]


@composite(0x1D, "amqp:error:list")
@dataclass(frozen=True, slots=True)
class Condition:
    """An AMQP error: a symbol for programs, a description for people, and additional info (2.8.14)."""

    symbol: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[AmqpMap | None, FIELDS] = None


CONDITION = nested_field(Condition)


@composite(0x23, "amqp:received:list")
@dataclass(frozen=True, slots=True)
class Received:
    """How much of a partial delivery arrived (3.4.1)."""

    section_number: Annotated[int, UINT]
    section_offset: Annotated[int, ULONG]


@composite(0x24, "amqp:accepted:list")
@dataclass(frozen=True, slots=True)
class Accepted:
    """Accepted by the receiver (3.4.2)."""


@composite(0x25, "amqp:rejected:list")
@dataclass(frozen=True, slots=True)
class Rejected:
    """The message is invalid; ``error`` says why (3.4.3)."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x26, "amqp:released:list")
@dataclass(frozen=True, slots=True)
class Released:
    """The message was not processed and is available again (3.4.4)."""


@composite(0x27, "amqp:modified:list")
@dataclass(frozen=True, slots=True)
class Modified:
    """The message was modified and not processed (3.4.5)."""

    delivery_failed: Annotated[bool | None, BOOLEAN] = None
    undeliverable_here: Annotated[bool | None, BOOLEAN] = None
    message_annotations: Annotated[AmqpMap | None, FIELDS] = None


Outcome = Accepted | Rejected | Released | Modified
OUTCOME = nested_field(Accepted, Rejected, Released, Modified)
ACCEPTED = Accepted()
RELEASED = Released()


@composite(0x33, "amqp:declared:list")
@dataclass(frozen=True, slots=True)
class Declared:
    """The outcome of a declare (4.5.5)."""

    txn_id: Annotated[bytes, BINARY]


@composite(0x34, "amqp:transactional-state:list")
@dataclass(frozen=True, slots=True)
class TransactionalState:
    """The state of a delivery that is part of a transaction, and its outcome on commit (4.5.6)."""

    txn_id: Annotated[bytes, BINARY]
    outcome: Annotated[Outcome | None, OUTCOME] = None


DeliveryState = (
    Accepted | Rejected | Released | Modified | Received | Declared | TransactionalState | Described
)


def _read_state(value: object) -> object:
    state = read_nested(value)
    if not isinstance(state, DeliveryState):
        raise ValueError("not a delivery state")
    return state


STATE = FieldType("a delivery state", write_composite, _read_state)


# Sources and targets (3.5, 4.5.1)


@composite(0x28, "amqp:source:list")
@dataclass(frozen=True, slots=True)
class Source:
    """The source of a link: the node that messages come from (3.5.3)."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[AmqpMap | None, FIELDS] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[AmqpMap | None, FIELDS] = None
    default_outcome: Annotated[DeliveryState | None, STATE] = None
    outcomes: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@composite(0x29, "amqp:target:list")
@dataclass(frozen=True, slots=True)
class Target:
    """The target of a link: the node that messages go to (3.5.4)."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[AmqpMap | None, FIELDS] = None
    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@composite(0x30, "amqp:coordinator:list")
@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a link that controls transactions (4.5.1)."""

    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


SOURCE = nested_field(Source)
TARGET = nested_field(Target, Coordinator)


# The values of messages to a coordinator (4.5)


@composite(0x31, "amqp:declare:list")
@dataclass(frozen=True, slots=True)
class Declare:
    """Begins a transaction; a global id makes it part of a distributed one (4.5.2)."""

    global_id: Annotated[object | None, ANYTHING] = None


@composite(0x32, "amqp:discharge:list")
@dataclass(frozen=True, slots=True)
class Discharge:
    """Ends a transaction: rolls it back with ``fail``, and commits it without (4.5.3)."""

    txn_id: Annotated[bytes, BINARY]
    fail: Annotated[bool | None, BOOLEAN] = None


# Performatives (2.7)


@composite(0x10, "amqp:open:list")
@dataclass(slots=True)
class Open:
    """The fields of an open frame (2.7.1)."""

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = MAX_UINT
    channel_max: Annotated[int, USHORT] = 0xFFFF
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    incoming_locales: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[AmqpMap | None, FIELDS] = None


@composite(0x11, "amqp:begin:list")
@dataclass(slots=True)
class Begin:
    """The fields of a begin frame (2.7.2)."""

    remote_channel: Annotated[int | None, USHORT]
    next_outgoing_id: Annotated[int, UINT]
    incoming_window: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle_max: Annotated[int, UINT] = MAX_UINT
    offered_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    desired_capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    properties: Annotated[AmqpMap | None, FIELDS] = None


@composite(0x12, "amqp:attach:list")
@dataclass(slots=True)
class Attach:
    """The fields of an attach frame (2.7.3)."""

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
    properties: Annotated[AmqpMap | None, FIELDS] = None


@composite(0x13, "amqp:flow:list")
@dataclass(slots=True)
class Flow:
    """The fields of a flow frame (2.7.4)."""

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
    properties: Annotated[AmqpMap | None, FIELDS] = None


@composite(0x14, "amqp:transfer:list")
@dataclass(slots=True)
class Transfer:
    """The fields of a transfer frame (2.7.5); the payload follows them in the frame."""

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
    """The fields of a disposition frame (2.7.6); ``role`` is that of the peer that sends it."""

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[DeliveryState | None, STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@composite(0x16, "amqp:detach:list")
@dataclass(slots=True)
class Detach:
    """The fields of a detach frame (2.7.7)."""

    handle: Annotated[int, UINT]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[Condition | None, CONDITION] = None


@composite(0x17, "amqp:end:list")
@dataclass(slots=True)
class End:
    """The fields of an end frame (2.7.8)."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x18, "amqp:close:list")
@dataclass(slots=True)
class Close:
    """The fields of a close frame (2.7.9)."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x40, "amqp:sasl-mechanisms:list")
@dataclass(slots=True)
class SaslMechanisms:
    """The fields of a sasl-mechanisms frame (5.3.3.1)."""

    sasl_server_mechanisms: Annotated[tuple[str, ...], SYMBOLS]


@composite(0x41, "amqp:sasl-init:list")
@dataclass(slots=True)
class SaslInit:
    """The fields of a sasl-init frame (5.3.3.2)."""

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None

    def __repr__(self) -> str:  # omits the response, which is a secret
        return f"SaslInit(mechanism={self.mechanism!r}, hostname={self.hostname!r})"


@composite(0x42, "amqp:sasl-challenge:list")
@dataclass(slots=True)
class SaslChallenge:
    """The fields of a sasl-challenge frame (5.3.3.3)."""

    challenge: Annotated[bytes, BINARY]


@composite(0x43, "amqp:sasl-response:list")
@dataclass(slots=True, repr=False)
class SaslResponse:
    """The fields of a sasl-response frame (5.3.3.4)."""

    response: Annotated[bytes, BINARY]


@composite(0x44, "amqp:sasl-outcome:list")
@dataclass(slots=True)
class SaslOutcome:
    """The fields of a sasl-outcome frame (5.3.3.5); code 0 is success, 1 a failed authentication."""

    code: Annotated[int, UBYTE]
    additional_data: Annotated[bytes | None, BINARY] = None


def without_details(performative: object) -> object:
    """Return the performative with its error, if any, cut to 100 characters of description and without info."""
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
