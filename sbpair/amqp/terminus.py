"""Where does a link begin and end (3.5)?"""

from dataclasses import dataclass
from typing import Annotated

from .composite import BOOLEAN, MAP, STRING, SYMBOL, SYMBOLS, UINT, composite, nested
from .delivery_state import STATE, DeliveryState
from .outcomes import AmqpMap


@composite(0x28, "amqp:source:list")
@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from (3.5.3)."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[AmqpMap | None, MAP] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[AmqpMap | None, MAP] = None
    default_outcome: Annotated[DeliveryState | None, STATE] = None
    outcomes: Annotated[tuple[str, ...] | None, SYMBOLS] = None
    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@composite(0x29, "amqp:target:list")
@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go to (3.5.4)."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int | None, UINT] = None
    expiry_policy: Annotated[str | None, SYMBOL] = None
    timeout: Annotated[int | None, UINT] = None
    dynamic: Annotated[bool | None, BOOLEAN] = None
    dynamic_node_properties: Annotated[AmqpMap | None, MAP] = None
    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


@composite(0x30, "amqp:coordinator:list")
@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a link that controls transactions (4.5.1)."""

    capabilities: Annotated[tuple[str, ...] | None, SYMBOLS] = None


SOURCE = nested(Source)
TARGET = nested(Target, Coordinator)
