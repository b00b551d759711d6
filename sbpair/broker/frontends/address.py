"""Link addresses and the nodes they name.

The Python SDK sends ``amqps://host:port/orders`` even over plain TCP; the JavaScript SDK and proton send ``orders``.
Scheme and authority are therefore removed. Addresses are case-insensitive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..entities.descriptions import path_of, without_alias

_MANAGEMENT = "/$management"


class NodeKind(Enum):
    """The kinds of nodes."""

    CLAIMS = "$cbs"
    MANAGEMENT = "$management"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Address:
    """An address: the kind of its node, and the path of the entity ("" for $cbs)."""

    kind: NodeKind
    path: str


def parse_address(text: str) -> Address:
    """Parse an address. The entity need not exist."""
    path = path_of(text)
    folded = path.casefold()
    if folded == "$cbs":
        return Address(NodeKind.CLAIMS, "")
    if folded.endswith(_MANAGEMENT):
        return Address(NodeKind.MANAGEMENT, without_alias(path[: -len(_MANAGEMENT)]))
    return Address(NodeKind.QUEUE, without_alias(path))


def management_of(path: str) -> str:
    """Return the path of an entity's management node; a client may hold a claim for this path alone."""
    return f"{path}/$management"
