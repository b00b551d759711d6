"""The verdict on each message: the fate that the journals prove.

One record proves that something happened. That it did *not* happen follows only from a complete journal without
such a record (:mod:`.writers`), up to a time at which its writer found the queue empty.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


class Verdict(Enum):
    """The verdict on one message."""

    DELIVERED = "delivered"  # received, by a receiver's journal, or completed, by the broker's
    RECOVERED = "recovered"  # its send raised an error, but it arrived
    DEAD_LETTERED = (
        "dead-lettered"  # dead-lettered by the syphon or the broker, for a reason other than expiry
    )
    EXPIRED = "expired"  # removed or dead-lettered because its time to live had passed
    DELETED = "deleted"  # deleted, cancelled, or removed with its entity, by the broker's journal
    ACCEPTED = "accepted"  # accepted by the primary; no journal shows that it was received
    WAITING = "waiting"  # in a backlog queue, a spool or its entity, by journals that are complete
    LOST = "lost"  # accepted, but stored nowhere and not received
    NOT_ACCEPTED = "not accepted"  # its send raised an error and no journal shows that it was stored
    UNEXPECTED = "unexpected"  # it arrived, but complete journals of the senders do not mention it
    UNPROVEN = "unproven"  # a journal that could decide is incomplete or missing


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
# The first condition that is true decides. Columns: those of messages(), of EVIDENCE and of FACTS.
RULES: tuple[tuple[str, Verdict], ...] = (
    ("arrived AND is_sent", Verdict.DELIVERED),
    ("arrived AND raised > 0", Verdict.RECOVERED),
    ("arrived AND NOT senders_tell", Verdict.DELIVERED),  # healthy sends are not recorded
    ("arrived AND senders_whole", Verdict.UNEXPECTED),
    ("arrived", Verdict.UNPROVEN),  # it may have been sent or not
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
    ("stored > 0", Verdict.ACCEPTED),  # its sender does not record healthy sends
    ("is_home AND senders_whole", Verdict.UNEXPECTED),
    ("is_home", Verdict.UNPROVEN),
    ("is_never_parked", Verdict.LOST),
    ("left_backlog AND primary_kept AND parked_at > primary_from", Verdict.LOST),  # and did not arrive anywhere
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
    """One row per primary: which roles have complete journals, and whether senders record healthy sends."""
    primaries = writers.where("primary IS NOT NULL").select("primary").distinct()
    is_of_it = F.expr("w.primary = p.primary OR w.primary IS NULL")  # a damaged journal may lack its primary
    judged = primaries.alias("p").join(writers.alias("w"), is_of_it, "left")
    tell = F.min(F.when(F.col("w.role") == "sender", F.col("w.sends") > 0))
    return judged.groupBy("p.primary").agg(
        *(_whole(role) for role in ("sender", "syphon", "receiver")),
        F.coalesce(tell, F.lit(False)).alias("senders_tell"),
    )


def _whole(role: str) -> Column:
    has_role = F.col("w.role") == role
    all_whole = F.min(F.when(has_role | F.col("w.role").isNull(), F.col("w.is_whole")))
    exists = F.max(has_role)
    return (F.coalesce(all_whole, F.lit(False)) & F.coalesce(exists, F.lit(False))).alias(f"{role}s_whole")


def kept(writers: DataFrame, skew: float) -> DataFrame:
    """One row per namespace with a broker's journal: ``kept`` (is it complete?), ``from`` and ``until``.

    Complete means one journal of one run: what happened to stored messages between two runs is unknown.
    """
    is_unknown = F.max(F.col("role").isNull()).over(Window.partitionBy())
    of_brokers = writers.withColumn("is_unknown", is_unknown).where("role = 'broker'")
    return of_brokers.groupBy(F.col("primary").alias("namespace")).agg(
        F.expr("count(*) = 1 AND min(is_whole) AND NOT max(is_unknown)").alias("kept"),
        _before(F.min("first_at"), -skew).alias("from"),
        _before(F.max("last_at"), skew).alias("until"),
    )


def of_side(kept: DataFrame, side: str) -> DataFrame:
    """The result of :func:`kept` with columns named for ``side``, to join with messages."""
    return kept.select(
        F.col("namespace").alias(side), *(F.col(name).alias(f"{side}_{name}") for name in kept.columns[1:])
    )


def drained(events: DataFrame, skew: float) -> DataFrame:
    """When the backlog queues on each secondary were last found empty while no message was locked.

    Messages that another syphon holds at that time may return, so every syphon running then must have found the
    queues empty too. ``stranded_from`` is the first backlog index that no syphon reads (F-48). ``skew`` is the
    tolerated difference between the clocks of two machines in seconds.
    """
    pair = (F.lower("pair.primary").alias("primary"), F.lower("pair.secondary").alias("secondary"))
    of_syphons = events.where("role = 'syphon'").groupBy(*pair, "writer").agg(
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.max(F.when(F.col("event") == "backlogs_drained", F.col("at"))).alias("drained_at"),
        F.min(F.when(F.col("event") == "backlog_stranded", F.col("backlog"))).alias("stranded_from"),
    )  # fmt: skip
    latest = F.max("drained_at").over(Window.partitionBy("primary", "secondary"))
    marked = of_syphons.withColumn("latest", latest).withColumn(
        "is_running",
        (F.col("first_at") <= _before("latest", -skew)) & (F.col("last_at") >= _before("latest", skew)),
    )
    found = marked.groupBy("primary", "secondary").agg(
        F.min("stranded_from").alias("stranded_from"),
        F.min(F.when(F.col("is_running"), F.col("drained_at"))).alias("earliest"),
        F.max(F.expr("is_running AND drained_at IS NULL")).alias("may_be_held"),
    )
    known = F.when(~F.col("may_be_held"), _before("earliest", skew))
    return found.select("primary", "secondary", "stranded_from", known.alias("drained_at"))


def emptied(events: DataFrame, skew: float) -> DataFrame:
    """When each entity was last found empty by one of its receivers; topics have no such record."""
    return (
        events.where("event = 'entity_emptied'")
        .groupBy(F.lower("pair.primary").alias("primary"), F.lower("path").alias("path_key"))
        .agg(F.max("at").alias("at"))
        .select("primary", "path_key", _before("at", skew).alias("emptied_at"))
    )


def _before(at: Column | str, seconds: float) -> Column:
    return F.timestamp_micros(F.unix_micros(at) - round(seconds * 1e6))


# Conditions used in RULES, over the counts of a message and the evidence.
FACTS: tuple[tuple[str, str], ...] = (
    ("arrived", "received + completed > 0"),
    ("is_sent", "accepted_by_primary + parked + spooled + handed_on > 0"),
    ("is_home", "accepted_by_primary + forwarded + stored > 0"),
    ("is_aside", "home_at IS NULL OR set_aside_at >= home_at"),  # otherwise it was redriven
    ("is_strange", "NOT is_sent AND raised = 0 AND backlogged = 0 AND senders_tell"),
    ("is_stranded", "stranded_from IS NOT NULL AND backlog >= stranded_from"),
    # recorded as accepted in a period that the broker's complete journal covers, which does not mention it
    ("is_unseen", "stored = 0 AND primary_kept AND home_at > primary_from AND home_at < primary_until"),
    ("is_never_parked", "parked > 0 AND backlogged = 0 AND secondary_kept"
     " AND parked_at > secondary_from AND last_parked_at < secondary_until"),
    ("left_backlog", "backlogged > 0 AND held_in_backlog <= 0 AND secondary_kept"),
)  # fmt: skip


def judged(
    messages: DataFrame, evidence: DataFrame, drained: DataFrame, emptied: DataFrame, kept: DataFrame
) -> DataFrame:
    """The messages with a column ``verdict``; the other arguments are the results of the functions above."""
    facts = (
        messages.join(F.broadcast(evidence), "primary", "left")
        .join(F.broadcast(drained), ["primary", "secondary"], "left")
        .join(F.broadcast(emptied), ["primary", "path_key"], "left")
        .join(F.broadcast(of_side(kept, "primary")), "primary", "left")
        .join(F.broadcast(of_side(kept, "secondary")), "secondary", "left")
    )
    conditions = (f"{condition} AS {name}" for name, condition in FACTS)
    rules = " ".join(f"WHEN {condition} THEN '{verdict.value}'" for condition, verdict in RULES)
    return facts.selectExpr("*", *conditions, f"CASE {rules} END AS verdict").drop(
        *EVIDENCE, *(name for name, _ in FACTS)
    )
