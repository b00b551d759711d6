"""One row per message, aggregated in one pass over its mentions.

All aggregated columns are numbers, which Spark updates in place in compiled code; other types are several times
slower. Texts are represented by hashes and looked up at the end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .folds import Folds, again, first
from .mentions import COUNTS, KEY, common, counted, is_any, mentions

RECORDED_TWICE = {  # parking and spooling have events of their own, and send_accepted where that is enabled
    "parked": ("parked_events", "accepted_by_backlog"),
    "spooled": ("spooled_events", "accepted_by_spool"),
    "detoured_ambiguously": ("stored_ambiguously", "accepted_ambiguously"),
}
AMBIGUITIES = ("raised_ambiguously", "detoured_ambiguously", "accepted_by_primary_ambiguously")
HELD = {  # copies in a broker's store: added minus removed
    "held": ("put", "taken"),
    "held_in_backlog": ("put_in_backlog", "taken_from_backlog"),
}
PARTS = {part for parts in (*RECORDED_TWICE.values(), AMBIGUITIES, *HELD.values()) for part in parts}
AUXILIARY = ("number_received", "number_stored", "other_secondary", "other_sender")
TEXTS = ("path", "secondary", "sender")  # represented by hashes
POSITIONS = 2**20  # more than the messages of an event, so that ordinal and position fit into one number


def messages(events: DataFrame) -> DataFrame:
    """One row per message: its counts, ``copies``, times, session and ``sent_in``.

    ``sent_in`` is its position in the sender's journal: writer, ordinal, and index in the record.
    """
    rows = mentions(events)
    found = _numbers(rows).join(_sessions(rows).hint("shuffle_hash"), [*KEY], "left")
    texts = F.broadcast(_texts(events))
    for name in TEXTS:
        named = texts.select(F.col("hash").alias(name), F.col("text").alias("named"))
        found = found.join(named, name, "left").drop(name).withColumnRenamed("named", name)
    place = F.struct(
        F.col("sender").alias("writer"),
        F.expr(f"sent_in div {POSITIONS}").alias("ordinal"),
        F.expr(f"sent_in % {POSITIONS}").alias("position"),
    )
    return found.withColumns(
        {"path": F.coalesce("path", F.lit("")), "sent_in": F.when(F.col("sender").isNotNull(), place)}
    ).drop("sender")


def _numbers(mentions: DataFrame) -> DataFrame:
    """The numeric columns of each message.

    A copy is a distinct sequence number at a place, so mentions are aggregated by number, then by place, then by
    message. The rows are shuffled once, before the aggregation, since they are narrower than the counts.
    """
    rows = _narrow(mentions).repartition(*KEY)
    folds = _folds()
    by_number = rows.groupBy(*KEY, "arrived_at", "number").agg(*first(folds))
    by_place = by_number.groupBy(*KEY, "arrived_at").agg(*again(folds), F.count("number").alias("copies"))
    whole = by_place.groupBy(*KEY).agg(*again(folds), F.max("copies").alias("copies"))
    together = whole.withColumns(
        {name: F.greatest(*parts) for name, parts in RECORDED_TWICE.items()}
        | {name: F.col(put) - F.col(taken) for name, (put, taken) in HELD.items()}
        | {"sequence_number": F.coalesce("number_received", "number_stored")}
        | {
            name: F.when(F.col(name) == F.col(f"other_{name}"), F.col(name))
            for name in ("secondary", "sender")
        }
    )
    return together.withColumn("ambiguities", F.expr(" + ".join(AMBIGUITIES))).drop(*PARTS, *AUXILIARY)


def _narrow(mentions: DataFrame) -> DataFrame:
    """The columns of a mention that are shuffled."""
    arrives, is_sent = is_any("is_arrival"), is_any("is_sent")
    at_backlog = is_any("is_parked", "is_in_store_of_backlog")
    return mentions.selectExpr(
        *KEY, "facts", "at", "backlog", "sequence_number",
        # a receiver and a broker may report different numbers of one message
        f"IF({arrives}, concat(place, coalesce(in_store, '')), NULL) AS arrived_at",
        # each arrival without a number counts as a copy of its own
        f"IF({arrives}, coalesce(sequence_number, xxhash64(writer, ordinal, position)), NULL) AS number",
        "xxhash64(path) AS path",
        f"IF({at_backlog}, xxhash64(secondary), NULL) AS secondary",
        f"IF({is_sent}, xxhash64(writer), NULL) AS sender",
        f"IF({is_sent}, ordinal * {POSITIONS} + position, NULL) AS sent_in",
    )  # fmt: skip


def _sessions(mentions: DataFrame) -> DataFrame:
    """The session of each message that has one."""
    return mentions.where("session_id <> ''").groupBy(*KEY).agg(F.max("session_id").alias("session_id"))


def _texts(events: DataFrame) -> DataFrame:
    """Each text with its hash."""
    seen = events.select(*common()).select("path", "secondary", "writer").distinct()
    texts = seen.select(F.explode(F.array("path", "secondary", "writer")).alias("text"))
    return texts.groupBy(F.xxhash64("text").alias("hash")).agg(F.min("text").alias("text"))


def _folds() -> Folds:
    """The aggregations of the columns of a message."""
    return {
        **{name: ("sum", counted(name)) for name in COUNTS},
        "path": ("min", "path"),
        "backlog": ("max", "backlog"),
        "number_received": ("min", f"IF({is_any('received')}, sequence_number, NULL)"),
        "number_stored": ("min", "sequence_number"),
        "secondary": ("min", "secondary"),
        "other_secondary": ("max", "secondary"),
        "sender": ("min", "sender"),
        "other_sender": ("max", "sender"),
        "sent_in": ("min", "sent_in"),
        "sent_at": ("min", _at("is_sent")),
        "parked_at": ("min", _at("is_parked")),
        "last_parked_at": ("max", _at("is_parked")),
        "set_aside_at": ("max", _at("set_aside", "expired")),
        "home_at": ("max", _at("accepted_by_primary", "forwarded")),
        "forwarded_at": ("max", _at("forwarded")),
        "received_at": ("min", _at("received")),
    }


def _at(*names: str) -> str:
    return f"IF({is_any(*names)}, at, NULL)"
