"""The interface of the owner of destinations, and their time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from .in_flight import SendingLink

Owned = TypeVar("Owned", contravariant=True)
"""The kind of destination."""


class DestinationHost(Protocol[Owned]):
    """The owner of a destination: it opens links, and decides where messages go while it is out of reach."""

    @property
    def round_trip(self) -> float:
        """The round-trip time to the side of the destination in seconds, as far as it is known."""

    async def open_sender(self, destination: Owned) -> SendingLink:
        """Open a link to ``destination``. Raises ClientError."""

    def destination_idle(self, destination: Owned) -> None:
        """Called when ``destination`` has nothing to send; the host may close its link and forget it."""

    def destination_out_of_reach(self, destination: Owned, since: float) -> None:
        """Called when ``destination`` has not answered since ``since`` (monotonic seconds); may set its detour."""

    def destination_attached(self, destination: Owned) -> None:
        """Called when ``destination`` accepted a link after it was out of reach, and no message waits to probe it."""

    def destination_answered(self, destination: Owned) -> None:
        """Called when ``destination`` has answered after it was out of reach; ends its detour."""

    def unresponsive(self, reason: str) -> None:
        """Replace the connection, because the peer does not answer."""


@dataclass(frozen=True, slots=True)
class DeliveryTimeouts:
    """Time limits of a destination, in seconds."""

    longest_retry: float  # between two attempts
    answer: float  # until a link without progress is given up
