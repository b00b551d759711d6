"""The billable operations in the period of the journals, counted in two ways, since billing models differ.

    paired-namespaces   each message sent or received and each empty receive counts as one:
                        four for a parked message, two for a direct one
    operations          every call counts as one, settlements included

Prices are not included, since they depend on tier and year.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Meter(Enum):
    """A way of counting operations."""

    PAIRED_NAMESPACES = "paired-namespaces"
    OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class CountedUsage:
    """The numbers counted in the journals."""

    direct: int  # messages that the primary accepted from a sender
    parked: int  # messages that a backlog queue accepted
    forwarded: int  # messages that the syphons forwarded
    polls: int  # receives of the syphons, each beginning without credit
    settled: int  # messages completed, dead-lettered or released by a syphon
    pings: int  # that were accepted
    received: int  # copies in the journals of receivers


@dataclass(frozen=True, slots=True)
class Charge:
    """The number of operations of one kind by one meter."""

    meter: Meter
    kind: str
    operations: int


def bill(used: CountedUsage) -> list[Charge]:
    """The charges by both meters.

    Receives from the primary are estimated as one per message, since not all receivers keep journals.
    """
    by_message = {
        "sends to the primary": used.direct + used.forwarded,
        "receives from the primary": used.direct + used.forwarded,
        "sends to a backlog": used.parked,
        "receives from a backlog": used.forwarded,
        "long polls of the syphons": used.polls,
        "pings": used.pings,
    }
    by_call = by_message | {
        "settlements by the syphons": used.settled,
        "settlements by receivers": used.received,
    }
    return [
        Charge(meter, kind, operations)
        for meter, kinds in ((Meter.PAIRED_NAMESPACES, by_message), (Meter.OPERATIONS, by_call))
        for kind, operations in kinds.items()
    ]
