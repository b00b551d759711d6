"""The verdict on a message: what the journals prove of its fate.

What somebody saw is proved by one line. That something did *not* happen is proved only by the silence of a
journal that is whole (:mod:`.writers`), up to a moment at which its writer found the place empty.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


class Verdict(Enum):
    """Each message has one."""

    DELIVERED = "delivered"  # a receiver says so, or the broker that a receiver is done with it
    RECOVERED = "recovered"  # its send was raised, and yet it arrived
    DEAD_LETTERED = "dead-lettered"  # the syphon or the broker set it aside, with a reason
    EXPIRED = "expired"  # set aside, or gone, because its time had passed
    DELETED = "deleted"  # somebody deleted it, cancelled it, or deleted its entity: the broker says so
    ACCEPTED = "accepted"  # the primary has it: proved up to its accept, no receiver's journal says more
    WAITING = "waiting"  # in a backlog, a spool or its entity; nothing is missing that could say otherwise
    LOST = "lost"  # accepted, and it is nowhere
    NOT_ACCEPTED = "not accepted"  # its send was raised, and it is nowhere: the caller knows
    UNEXPECTED = "unexpected"  # it arrived, and nobody sent it
    UNPROVEN = "unproven"  # a journal that could tell is not whole, or not there


SOUND = (
    Verdict.DELIVERED,
    Verdict.RECOVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.DELETED,
    Verdict.ACCEPTED,
    Verdict.WAITING,
    Verdict.NOT_ACCEPTED,
)

EVIDENCE = (
    "senders_whole", "senders_tell", "syphons_whole", "receivers_whole", "stranded_from", "drained_at",
    "emptied_at", "primary_kept", "primary_from", "primary_until", "secondary_kept", "secondary_from",
    "secondary_until",
)  # fmt: skip
# The first condition that holds decides. The columns are those of messages(), and these.
RULES: tuple[tuple[str, Verdict], ...] = (
    ("arrived AND is_sent", Verdict.DELIVERED),
    ("arrived AND raised > 0", Verdict.RECOVERED),
    ("arrived AND NOT senders_tell", Verdict.DELIVERED),  # a healthy send has no line here
    ("arrived AND senders_whole", Verdict.UNEXPECTED),
    ("arrived", Verdict.UNPROVEN),  # it is there, but whether anybody sent it is not known
    ("stored > 0 AND is_strange AND senders_whole", Verdict.UNEXPECTED),
    ("stored > 0 AND is_strange", Verdict.UNPROVEN),
    ("held > 0 AND primary_kept", Verdict.WAITING),
    ("expired_there > 0 AND held <= 0", Verdict.EXPIRED),
    ("buried > 0 AND held <= 0", Verdict.DEAD_LETTERED),
    ("deleted > 0 AND held <= 0 AND held_in_backlog <= 0", Verdict.DELETED),
    ("held_in_backlog > 0 AND secondary_kept AND NOT is_home", Verdict.WAITING),
    ("expired > 0 AND is_aside", Verdict.EXPIRED),
    ("set_aside > 0 AND is_aside OR refused_in_spool > 0 AND NOT is_home", Verdict.DEAD_LETTERED),
    ("is_unseen AND is_sent", Verdict.LOST),
    ("is_home AND is_sent AND emptied_at > home_at AND receivers_whole AND NOT (primary_kept AND stored > 0)",
     Verdict.LOST),
    ("is_home AND is_sent", Verdict.ACCEPTED),
    ("is_home AND raised > 0", Verdict.ACCEPTED),
    ("stored > 0", Verdict.ACCEPTED),  # its sender tells of no healthy sends
    ("is_home AND senders_whole", Verdict.UNEXPECTED),
    ("is_home", Verdict.UNPROVEN),
    ("is_never_parked", Verdict.LOST),
    ("left_backlog AND primary_kept AND parked_at > primary_from", Verdict.LOST),  # and came nowhere
    ("left_backlog", Verdict.UNPROVEN),
    ("parked > 0 AND drained_at > last_parked_at AND NOT is_stranded AND syphons_whole", Verdict.LOST),
    ("parked > 0 AND syphons_whole", Verdict.WAITING),
    ("parked > 0", Verdict.UNPROVEN),
    ("backlogged > 0", Verdict.UNPROVEN),
    ("spooled > left_spool AND senders_whole", Verdict.WAITING),
    ("spooled > 0", Verdict.UNPROVEN),
    ("raised > 0", Verdict.NOT_ACCEPTED),
    ("TRUE", Verdict.UNPROVEN),
)  # fmt: skip


def evidence(writers: DataFrame) -> DataFrame:
    """One row a primary: which journals are whole, and whether its senders tell of healthy sends."""
    primaries = writers.where("primary IS NOT NULL").select("primary").distinct()
    is_of_it = F.expr("w.primary = p.primary OR w.primary IS NULL")  # a damaged one may not say of which
    judged = primaries.alias("p").join(writers.alias("w"), is_of_it, "left")
    tell = F.min(F.when(F.col("w.role") == "sender", F.col("w.sends") > 0))
    return judged.groupBy("p.primary").agg(
        *(_whole(role) for role in ("sender", "syphon", "receiver")),
        F.coalesce(tell, F.lit(False)).alias("senders_tell"),
    )


def _whole(role: str) -> Column:
    mine = F.col("w.role") == role
    all_whole = F.min(F.when(mine | F.col("w.role").isNull(), F.col("w.is_whole")))
    there = F.max(mine)
    return (F.coalesce(all_whole, F.lit(False)) & F.coalesce(there, F.lit(False))).alias(f"{role}s_whole")


def kept(writers: DataFrame, skew: float) -> DataFrame:
    """One row a namespace with a broker's journal: whether it ``kept`` a whole one, and ``from``, ``until``.

    One broker that ran once: of two runs nobody knows what happened in between, to what the first one held.
    """
    is_unknown = F.max(F.col("role").isNull()).over(Window.partitionBy())
    of_brokers = writers.withColumn("is_unknown", is_unknown).where("role = 'broker'")
    return of_brokers.groupBy(F.col("primary").alias("namespace")).agg(
        F.expr("count(*) = 1 AND min(is_whole) AND NOT max(is_unknown)").alias("kept"),
        _before(F.min("first_at"), -skew).alias("from"),
        _before(F.max("last_at"), skew).alias("until"),
    )


def of_side(kept: DataFrame, side: str) -> DataFrame:
    """The same, for the namespace in the column ``side`` of the messages."""
    return kept.select(
        F.col("namespace").alias(side), *(F.col(name).alias(f"{side}_{name}") for name in kept.columns[1:])
    )


def drained(events: DataFrame, skew: float) -> DataFrame:
    """When the backlogs on each secondary were last found empty, and in nobody's hands.

    What another syphon held at that moment may come back: one that was at work then must have found them
    empty too. ``stranded_from``: backlogs from this number on are none of the syphons' (F-48).
    ``skew`` is how far apart, in seconds, the clocks of two machines may be.
    """
    pair = (F.lower("pair.primary").alias("primary"), F.lower("pair.secondary").alias("secondary"))
    of_syphons = events.where("role = 'syphon'").groupBy(*pair, "writer").agg(
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.max(F.when(F.col("event") == "backlogs_drained", F.col("at"))).alias("drained_at"),
        F.min(F.when(F.col("event") == "backlog_stranded", F.col("backlog"))).alias("stranded_from"),
    )  # fmt: skip
    latest = F.max("drained_at").over(Window.partitionBy("primary", "secondary"))
    at_work = of_syphons.withColumn("latest", latest).withColumn(
        "is_at_work",
        (F.col("first_at") <= _before("latest", -skew)) & (F.col("last_at") >= _before("latest", skew)),
    )
    found = at_work.groupBy("primary", "secondary").agg(
        F.min("stranded_from").alias("stranded_from"),
        F.min(F.when(F.col("is_at_work"), F.col("drained_at"))).alias("earliest"),
        F.max(F.expr("is_at_work AND drained_at IS NULL")).alias("is_in_hands"),
    )
    known = F.when(~F.col("is_in_hands"), _before("earliest", skew))
    return found.select("primary", "secondary", "stranded_from", known.alias("drained_at"))


def emptied(events: DataFrame, skew: float) -> DataFrame:
    """When each entity was last found empty by one of its receivers; a topic never is: its filters choose."""
    return (
        events.where("event = 'entity_emptied'")
        .groupBy(F.lower("pair.primary").alias("primary"), F.lower("path").alias("path_key"))
        .agg(F.max("at").alias("at"))
        .select("primary", "path_key", _before("at", skew).alias("emptied_at"))
    )


def _before(at: Column | str, seconds: float) -> Column:
    return F.timestamp_micros(F.unix_micros(at) - round(seconds * 1e6))


# What the rules ask, from the counts of a message and the evidence.
FACTS: tuple[tuple[str, str], ...] = (
    ("arrived", "received + completed > 0"),
    ("is_sent", "accepted_by_primary + parked + spooled + handed_on > 0"),
    ("is_home", "accepted_by_primary + forwarded + stored > 0"),
    ("is_aside", "home_at IS NULL OR set_aside_at >= home_at"),  # else it was redriven
    ("is_strange", "NOT is_sent AND raised = 0 AND backlogged = 0 AND senders_tell"),
    ("is_stranded", "stranded_from IS NOT NULL AND backlog >= stranded_from"),
    # told as accepted while the broker kept a journal, which has nothing of it
    ("is_unseen", "stored = 0 AND primary_kept AND home_at > primary_from AND home_at < primary_until"),
    ("is_never_parked", "parked > 0 AND backlogged = 0 AND secondary_kept"
     " AND parked_at > secondary_from AND last_parked_at < secondary_until"),
    ("left_backlog", "backlogged > 0 AND held_in_backlog <= 0 AND secondary_kept"),
)  # fmt: skip


def judged(
    messages: DataFrame, evidence: DataFrame, drained: DataFrame, emptied: DataFrame, kept: DataFrame
) -> DataFrame:
    """The messages with a column ``verdict``."""
    facts = (
        messages.join(F.broadcast(evidence), "primary", "left")
        .join(F.broadcast(drained), ["primary", "secondary"], "left")
        .join(F.broadcast(emptied), ["primary", "path_key"], "left")
        .join(F.broadcast(of_side(kept, "primary")), "primary", "left")
        .join(F.broadcast(of_side(kept, "secondary")), "secondary", "left")
    )
    told = (f"{condition} AS {name}" for name, condition in FACTS)
    rules = " ".join(f"WHEN {condition} THEN '{verdict.value}'" for condition, verdict in RULES)
    return facts.selectExpr("*", *told, f"CASE {rules} END AS verdict").drop(
        *EVIDENCE, *(name for name, _ in FACTS)
    )
