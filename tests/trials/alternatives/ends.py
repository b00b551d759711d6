"""The two ends of a run, and their queues."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = ("contoso", "contoso-dr")


@dataclass(frozen=True, slots=True)
class Ends:
    """The connection strings of both namespaces, the queue that each has, and one to park in, on the secondary."""

    primary: str
    secondary: str
    queue: str = "orders"
    parking: str = "orders-parked"
