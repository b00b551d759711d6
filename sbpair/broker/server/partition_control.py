"""One partition as a test holds it: let it fail, and let it come back.

with namespace.partition("orders", 3).take_down():
    ...  # keyed sends to it fail, others go on
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..entities.partition import Health


class PartitionControl:
    """A partition of an entity, or the store of one index under all of them; safe to use from any thread."""

    def __init__(self, set_health: Callable[[Health, int], None], description: str) -> None:
        self._set_health = set_health
        self._description = description

    def __repr__(self) -> str:
        return f"PartitionControl({self._description})"

    @contextmanager
    def take_down(self, *, reroute_after: int = 0) -> Iterator[None]:
        """Be down inside the ``with``: what is in it waits, a send with a key of it is refused.

        ``reroute_after``: how many ms of entity time pass until senders without a key are led around it at
        once; up to then one whose turn it is waits (Q-16: up to 15 000 in the service). Raises ValueError
        below 0.
        """
        if reroute_after < 0:
            raise ValueError(f"reroute_after is {reroute_after!r}: milliseconds, at least 0")
        with self._while(Health.DOWN, reroute_after):
            yield

    @contextmanager
    def throttle(self) -> Iterator[None]:
        """Be throttled inside the ``with``: it hands out what it has, and takes nothing (Q-4)."""
        with self._while(Health.THROTTLED, 0):
            yield

    @contextmanager
    def _while(self, health: Health, reroute_after: int) -> Iterator[None]:
        self._set_health(health, reroute_after)
        try:
            yield
        finally:
            self._set_health(Health.UP, 0)
