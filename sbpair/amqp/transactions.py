"""How does a controller open and end a transaction, and what says that something is part of one (4.5)?

declare            -->  coordinator       a message with Declare as its value; answered Declared{txn-id}
transfer, disposition   their state is TransactionalState{txn-id, outcome}
discharge{fail}    -->  coordinator       answered accepted; rejected when nothing of it was done
"""

from dataclasses import dataclass
from typing import Annotated

from .composite import ANYTHING, BINARY, BOOLEAN, build, composite, encode_composite
from .decoding import decode
from .errors import DecodeError
from .outcomes import OUTCOME, Outcome
from .primitives import Described
from .sections import Section, split

LOCAL_TRANSACTIONS = "amqp:local-transactions"  # 4.5.8
MULTI_TRANSACTIONS = "amqp:multi-txns-per-ssn"
MULTI_SESSIONS = "amqp:multi-ssns-per-txn"
_VALUE = bytes((0x00, 0x53, Section.VALUE))


@composite(0x31, "amqp:declare:list")
@dataclass(frozen=True, slots=True)
class Declare:
    """Asks for a transaction; a global id would make it part of a distributed one (4.5.2)."""

    global_id: Annotated[object | None, ANYTHING] = None


@composite(0x32, "amqp:discharge:list")
@dataclass(frozen=True, slots=True)
class Discharge:
    """Ends a transaction: with ``fail`` all of it is undone, else all of it is done (4.5.3)."""

    txn_id: Annotated[bytes, BINARY]
    fail: Annotated[bool | None, BOOLEAN] = None


@composite(0x33, "amqp:declared:list")
@dataclass(frozen=True, slots=True)
class Declared:
    """The outcome of a Declare (4.5.5)."""

    txn_id: Annotated[bytes, BINARY]


@composite(0x34, "amqp:transactional-state:list")
@dataclass(frozen=True, slots=True)
class TransactionalState:
    """The state of a delivery whose fate is a transaction's, and its outcome if that is done (4.5.6)."""

    txn_id: Annotated[bytes, BINARY]
    outcome: Annotated[Outcome | None, OUTCOME] = None


def encode_request(request: Declare | Discharge) -> bytes:
    """The message that asks a coordinator for this (4.2, 4.3)."""
    return _VALUE + encode_composite(request)


def decode_request(payload: bytes) -> Declare | Discharge:
    """What the message to a coordinator asks for. Raises DecodeError."""
    body = split(payload).body
    section = decode(body)[0] if body else None
    request = section.value if isinstance(section, Described) else None
    asked = build(request) if isinstance(request, Described) else None
    if not isinstance(asked, Declare | Discharge):
        raise DecodeError("a message to a coordinator holds a declare or a discharge as its value")
    return asked
