"""The operations of the journals' period, counted in two ways, since billing differs.

    paired-namespaces   a message sent or received is one, and so is a receive that ends empty:
                        four for a parked message, two for a direct one (P-43, P-41, P-34)
    operations          every call is one, settlements included

Prices are not included: they differ by tier and year.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Meter(Enum):
    """Which way of counting."""

    PAIRED_NAMESPACES = "paired-namespaces"
    OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class Usage:
    """What the journals count."""

    direct: int  # messages the primary took without a detour
    parked: int  # messages a backlog took
    forwarded: int  # messages the syphons moved
    polls: int  # receives of the syphons, each from no credit
    settled: int  # completed, dead-lettered or given back by a syphon
    pings: int
    received: int  # copies that receivers say they received


@dataclass(frozen=True, slots=True)
class Charge:
    """Operations of one kind by one meter."""

    meter: Meter
    kind: str
    operations: int


def usage(events: DataFrame) -> Usage:
    """The numbers, from what was told."""
    row = events.agg(
        _total("event = 'send_accepted' AND stored_in = 'primary'", "size(message_ids)", "direct"),
        _total("event = 'spool_replayed' AND backlog IS NULL", "count", "replayed"),
        _total("event = 'message_parked'", "count", "parked"),
        _total("event = 'messages_forwarded'", "size(message_ids)", "forwarded"),
        _total("event = 'ping_sent'", "1", "pings"),
        _total("event = 'messages_received'", "size(message_ids)", "received"),
    ).collect()[0]
    last = events.where("event = 'syphon_counters'").groupBy("writer").agg(
        F.max_by(F.struct("receives", "completed", "dead_lettered", "released"), "ordinal").alias("c")
    )  # fmt: skip
    syphons = last.agg(
        _total("TRUE", "c.receives", "polls"),
        _total("TRUE", "c.completed + c.dead_lettered + c.released", "settled"),
    ).collect()[0]
    return Usage(
        row.direct + row.replayed, row.parked, row.forwarded, syphons.polls, syphons.settled, row.pings,
        row.received,
    )  # fmt: skip


def _total(condition: str, amount: str, name: str) -> Column:
    return F.coalesce(F.sum(F.when(F.expr(condition), F.expr(amount))), F.lit(0)).alias(name)


def bill(used: Usage) -> list[Charge]:
    """Both meters. Receives of the primary are counted once a message: what receivers tell may be less."""
    articles = {
        "sends to the primary": used.direct + used.forwarded,
        "receives from the primary": used.direct + used.forwarded,
        "sends to a backlog": used.parked,
        "receives from a backlog": used.forwarded,
        "long polls of the syphons": used.polls,
        "pings": used.pings,
    }
    every_call = articles | {
        "settlements by the syphons": used.settled,
        "settlements by receivers": used.received,
    }
    return [
        Charge(meter, kind, operations)
        for meter, kinds in ((Meter.PAIRED_NAMESPACES, articles), (Meter.OPERATIONS, every_call))
        for kind, operations in kinds.items()
    ]
