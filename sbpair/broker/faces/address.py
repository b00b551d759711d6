"""Which node does an address mean?

Python's client sends ``amqps://host:port/orders`` even over plain TCP, JavaScript's and proton send
``orders``: scheme and authority are taken off. Case does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..entities.paths import path_of

_MANAGEMENT = "/$management"


class NodeKind(Enum):
    """What stands at an address."""

    CLAIMS = "$cbs"
    MANAGEMENT = "$management"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Address:
    """A node's kind, and the path of the entity it belongs to ("" for $cbs)."""

    kind: NodeKind
    path: str


def parse_address(text: str) -> Address:
    """The node that ``text`` addresses; whether its entity exists is not asked."""
    path = path_of(text)
    folded = path.casefold()
    if folded == "$cbs":
        return Address(NodeKind.CLAIMS, "")
    if folded.endswith(_MANAGEMENT):
        return Address(NodeKind.MANAGEMENT, path[: -len(_MANAGEMENT)])
    return Address(NodeKind.QUEUE, path)


def management_of(path: str) -> str:
    """The path of an entity's management node; clients may hold a claim for it alone."""
    return f"{path}/$management"
