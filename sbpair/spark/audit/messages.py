"""One row for each message, from one pass over its mentions.

Only numbers are kept of a message while its mentions are read: Spark folds numbers in place in compiled code, and
anything else several times slower. A text is represented by its hash and looked up at the end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .folds import Folds, again, first
from .mentions import COUNTS, KEY, common, counted, mentions, tells

TWICE_TOLD = {  # a detour has a line by itself, and another when somebody asked for it
    "parked": ("told_parked", "told_backlog"),
    "spooled": ("told_spooled", "told_spool"),
    "detoured_ambiguously": ("rested_ambiguously", "accepted_ambiguously"),
}
AMBIGUITIES = ("raised_ambiguously", "detoured_ambiguously", "accepted_by_primary_ambiguously")
HELD = {  # messages that are in a broker's store, each copy
    "held": ("put", "taken"),
    "held_in_backlog": ("put_in_backlog", "taken_from_backlog"),
}
PARTS = {part for parts in (*TWICE_TOLD.values(), AMBIGUITIES, *HELD.values()) for part in parts}
ASIDE = ("number_received", "number_stored", "other_secondary", "other_sender")
TEXTS = ("path", "secondary", "sender")  # known by their hashes
POSITIONS = 2**20  # more than an event has messages: a place in a journal is one number


def messages(events: DataFrame) -> DataFrame:
    """One row a message: its counts, the ``copies`` that arrived, its times, and its place in order."""
    told = mentions(events)
    found = _numbers(told).join(_sessions(told).hint("shuffle_hash"), [*KEY], "left")
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


def _numbers(told: DataFrame) -> DataFrame:
    """A copy is a number at a place: folded are first those of one number, then of one place, then all.

    Bare rows are shuffled, once: they are narrower than counts.
    """
    rows = _bare(told).repartition(*KEY)
    folds = _folds()
    by_number = rows.groupBy(*KEY, "arrived_at", "number").agg(*first(folds))
    by_place = by_number.groupBy(*KEY, "arrived_at").agg(*again(folds), F.count("number").alias("copies"))
    whole = by_place.groupBy(*KEY).agg(*again(folds), F.max("copies").alias("copies"))
    together = whole.withColumns(
        {name: F.greatest(*told) for name, told in TWICE_TOLD.items()}
        | {name: F.col(put) - F.col(taken) for name, (put, taken) in HELD.items()}
        | {"sequence_number": F.coalesce("number_received", "number_stored")}
        | {
            name: F.when(F.col(name) == F.col(f"other_{name}"), F.col(name))
            for name in ("secondary", "sender")
        }
    )
    return together.withColumn("ambiguities", F.expr(" + ".join(AMBIGUITIES))).drop(*PARTS, *ASIDE)


def _bare(told: DataFrame) -> DataFrame:
    """What is shuffled of a mention."""
    arrives, is_sent = tells("is_arrival"), tells("is_sent")
    at_backlog = tells("is_parked", "is_in_store_of_backlog")
    return told.selectExpr(
        *KEY, "facts", "at", "backlog", "sequence_number",
        # the two may have numbered it differently
        f"IF({arrives}, concat(place, coalesce(in_store, '')), NULL) AS arrived_at",
        # a copy without a number is like no other
        f"IF({arrives}, coalesce(sequence_number, xxhash64(writer, ordinal, position)), NULL) AS number",
        "xxhash64(path) AS path",
        f"IF({at_backlog}, xxhash64(secondary), NULL) AS secondary",
        f"IF({is_sent}, xxhash64(writer), NULL) AS sender",
        f"IF({is_sent}, ordinal * {POSITIONS} + position, NULL) AS sent_in",
    )  # fmt: skip


def _sessions(told: DataFrame) -> DataFrame:
    """The session of each message that has one."""
    return told.where("session_id <> ''").groupBy(*KEY).agg(F.max("session_id").alias("session_id"))


def _texts(events: DataFrame) -> DataFrame:
    """The texts that are known by their hashes, once each."""
    seen = events.select(*common()).select("path", "secondary", "writer").distinct()
    texts = seen.select(F.explode(F.array("path", "secondary", "writer")).alias("text"))
    return texts.groupBy(F.xxhash64("text").alias("hash")).agg(F.min("text").alias("text"))


def _folds() -> Folds:
    """How each column of a message is folded, and from what of its mentions."""
    return {
        **{name: ("sum", counted(name)) for name in COUNTS},
        "path": ("min", "path"),
        "backlog": ("max", "backlog"),
        "number_received": ("min", f"IF({tells('received')}, sequence_number, NULL)"),
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
    return f"IF({tells(*names)}, at, NULL)"
