"""Pools of SDK senders as both runtimes use them: what a pool does, its key, and which senders return to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from sbpair.pair.ground.side import Side

from ..outcome import Failure

if TYPE_CHECKING:
    from azure.servicebus.exceptions import MessagingEntityNotFoundError

KEPT = frozenset({Failure.CALLER, Failure.FULL, Failure.BUSY})  # failures after which a link is reused


class Pooled(Protocol):
    """One SDK sender, blocking or asyncio."""

    has_overrun: bool
    opened_at: float

    @property
    def is_open(self) -> bool: ...

    def deletion(self) -> MessagingEntityNotFoundError | None:
        """The error of an entity that was deleted under the link; None for any other."""

    def cut(self) -> None:
        """End its connection now, so that no frame of an earlier call arrives behind a later one."""


PooledT = TypeVar("PooledT", bound=Pooled, contravariant=True)


class Pool(Protocol[PooledT]):
    """The pool that a sender is returned to."""

    def release(self, pooled: PooledT) -> None: ...
    def discard(self, pooled: PooledT) -> None: ...
    def abandon(self, pooled: PooledT) -> None: ...
    def renew(self) -> None: ...
    def recall(self) -> None: ...


def spare_links(key: str) -> int:
    """The number of idle links that the pool of this key keeps: 1 for a primary entity, 0 for a backlog queue."""
    return 1 if role_of(key) is Side.PRIMARY else 0


def role_of(key: str) -> Side:
    """The namespace of the pool of this key; keys of backlog queues begin with a slash, entity paths never do."""
    return Side.SECONDARY if key.startswith("/") else Side.PRIMARY
