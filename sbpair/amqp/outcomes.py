"""What became of a delivery (3.4), and how is an error told (2.8.14)?"""

from dataclasses import dataclass
from typing import Annotated

from .composite import (
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL,
    UINT,
    ULONG,
    composite,
    nested,
)

AmqpMap = dict[object, object]


@composite(0x1D, "amqp:error:list")
@dataclass(frozen=True, slots=True)
class Condition:
    """An AMQP error: the symbol peers switch on, a sentence for people, and more (2.8.14)."""

    symbol: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[AmqpMap | None, MAP] = None


CONDITION = nested(Condition)


@composite(0x23, "amqp:received:list")
@dataclass(frozen=True, slots=True)
class Received:
    """How far a partial delivery came (3.4.1)."""

    section_number: Annotated[int, UINT]
    section_offset: Annotated[int, ULONG]


@composite(0x24, "amqp:accepted:list")
@dataclass(frozen=True, slots=True)
class Accepted:
    """Taken over by the receiver (3.4.2)."""


@composite(0x25, "amqp:rejected:list")
@dataclass(frozen=True, slots=True)
class Rejected:
    """Invalid, the error says why (3.4.3)."""

    error: Annotated[Condition | None, CONDITION] = None


@composite(0x26, "amqp:released:list")
@dataclass(frozen=True, slots=True)
class Released:
    """Not, and not going to be, acted upon (3.4.4)."""


@composite(0x27, "amqp:modified:list")
@dataclass(frozen=True, slots=True)
class Modified:
    """Not acted upon, and changed (3.4.5)."""

    delivery_failed: Annotated[bool | None, BOOLEAN] = None
    undeliverable_here: Annotated[bool | None, BOOLEAN] = None
    message_annotations: Annotated[AmqpMap | None, MAP] = None


Outcome = Accepted | Rejected | Released | Modified
OUTCOME = nested(Accepted, Rejected, Released, Modified)
ACCEPTED = Accepted()
RELEASED = Released()

__all__ = [
    "ACCEPTED",
    "CONDITION",
    "OUTCOME",
    "RELEASED",
    "Accepted",
    "AmqpMap",
    "Condition",
    "Modified",
    "Outcome",
    "Received",
    "Rejected",
    "Released",
]
