"""Pools of SDK senders, as used by both runtimes: their methods, their keys, and which senders return to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

from sbpair.pair.ground.side import Side

from ..outcome import Failure

if TYPE_CHECKING:
    from azure.servicebus.exceptions import MessagingEntityNotFoundError

MAX_OPENINGS = 64
KEPT = frozenset({Failure.CALLER, Failure.FULL, Failure.BUSY})  # failures after which a link is reused


class Pooled(Protocol):
    """One SDK sender, blocking or asyncio."""

    has_overrun: bool
    opened_at: float

    @property
    def is_open(self) -> bool: ...

    def deletion(self) -> MessagingEntityNotFoundError | None:
        """The error of the link if its entity was deleted; None otherwise."""

    def cut(self) -> None:
        """Close its connection now, so that no frame of an earlier call arrives after a later one."""


PooledT = TypeVar("PooledT", bound=Pooled, contravariant=True)


class Pool(Protocol[PooledT]):
    """The pool to which a sender returns."""

    def release(self, pooled: PooledT) -> None: ...
    def discard(self, pooled: PooledT) -> None: ...
    def abandon(self, pooled: PooledT) -> None: ...
    def renew(self) -> None: ...
    def recall(self) -> None: ...


def openings_at_once() -> int:
    """Return how many links to one namespace are opened at a time: well below the limit of file descriptors.

    A silent namespace leaves that many hanging, and descriptors must be left to reach the other one.
    """
    if sys.platform == "win32":
        return MAX_OPENINGS
    import resource  # not available everywhere

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPENINGS if soft == resource.RLIM_INFINITY else max(2, min(MAX_OPENINGS, soft // 4))


def spare_links(key: str) -> int:
    """Return how many idle links the pool of this key keeps: 1 for a primary entity, 0 for a backlog queue."""
    return 1 if role_of(key) is Side.PRIMARY else 0


def role_of(key: str) -> Side:
    """Return the namespace of the pool of this key; only keys of backlog queues begin with a slash."""
    return Side.SECONDARY if key.startswith("/") else Side.PRIMARY
