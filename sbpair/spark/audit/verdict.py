"""What became of a message, as far as the journals prove it?

What somebody saw is proved by one line. That something did *not* happen is proved only by the silence of a
journal that is whole (:mod:`.writers`), up to a moment at which its writer found the place empty.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Verdict(Enum):
    """Each message has one."""

    DELIVERED = "delivered"  # a receiver says so
    RECOVERED = "recovered"  # its send was raised, and yet it arrived
    DEAD_LETTERED = "dead-lettered"  # the syphon set it aside, with a reason
    EXPIRED = "expired"  # set aside, because its deadline had passed
    ACCEPTED = "accepted"  # the primary has it: proved up to its accept, no receiver's journal says more
    WAITING = "waiting"  # in a backlog or a spool, and nothing is missing that could say otherwise
    LOST = "lost"  # accepted, and it is nowhere
    NOT_ACCEPTED = "not accepted"  # its send was raised, and it is nowhere: the caller knows
    UNEXPECTED = "unexpected"  # it arrived, and nobody sent it
    UNPROVEN = "unproven"  # a journal that could tell is not whole, or not there


SOUND = (
    Verdict.DELIVERED,
    Verdict.RECOVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.ACCEPTED,
    Verdict.WAITING,
    Verdict.NOT_ACCEPTED,
)

# The first condition that holds decides. The columns are those of messages() and of evidence().
RULES: tuple[tuple[str, Verdict], ...] = (
    ("received > 0 AND is_sent", Verdict.DELIVERED),
    ("received > 0 AND raised > 0", Verdict.RECOVERED),
    ("received > 0 AND senders_whole", Verdict.UNEXPECTED),
    ("received > 0", Verdict.UNPROVEN),  # delivered, but by whom it was sent is not known
    ("expired > 0", Verdict.EXPIRED),
    ("set_aside > 0 OR refused_in_spool > 0", Verdict.DEAD_LETTERED),
    ("is_home AND is_sent AND emptied_at > home_at AND receivers_whole", Verdict.LOST),
    ("is_home AND is_sent", Verdict.ACCEPTED),
    ("is_home AND raised > 0", Verdict.ACCEPTED),
    ("is_home AND senders_whole", Verdict.UNEXPECTED),
    ("is_home", Verdict.UNPROVEN),
    ("parked > 0 AND drained_at > parked_at AND syphons_whole", Verdict.LOST),
    ("parked > 0 AND syphons_whole", Verdict.WAITING),
    ("parked > 0", Verdict.UNPROVEN),
    ("spooled > left_spool AND senders_whole", Verdict.WAITING),
    ("spooled > 0", Verdict.UNPROVEN),
    ("raised > 0", Verdict.NOT_ACCEPTED),
    ("TRUE", Verdict.UNPROVEN),
)


def evidence(events: DataFrame, writers: DataFrame, skew: float) -> DataFrame:
    """One row a primary: which journals are whole, and when its backlogs were last found empty.

    ``skew`` is how far apart, in seconds, the clocks of two machines may be.
    """
    roles = events.select(F.col("pair.primary").alias("primary"), "writer").where("primary IS NOT NULL")
    of_pair = roles.distinct().join(writers, "writer", "right")  # damaged ones may not say of which pair
    every = events.select(F.col("pair.primary").alias("primary")).where("primary IS NOT NULL").distinct()
    judged = every.alias("p").join(
        of_pair.alias("w"), F.expr("w.primary = p.primary OR w.primary IS NULL"), "left"
    )
    whole = judged.groupBy("p.primary").agg(*(_whole(role) for role in ("sender", "syphon", "receiver")))
    drained = (
        events.where("event = 'backlogs_drained'")
        .groupBy(F.col("pair.primary").alias("primary"))
        .agg((F.max("at") - F.expr(f"INTERVAL {skew} SECOND")).alias("drained_at"))
    )
    return whole.join(drained, "primary", "left")


def _whole(role: str) -> Column:
    mine = F.col("w.role") == role
    all_whole = F.min(F.when(mine | F.col("w.role").isNull(), F.col("w.is_whole")))
    there = F.max(mine)
    return (F.coalesce(all_whole, F.lit(False)) & F.coalesce(there, F.lit(False))).alias(f"{role}s_whole")


def emptied(events: DataFrame, skew: float) -> DataFrame:
    """When each entity was last found empty by one of its receivers."""
    return (
        events.where("event = 'entity_emptied'")
        .groupBy(F.col("pair.primary").alias("primary"), F.lower("path").alias("path_key"))
        .agg((F.max("at") - F.expr(f"INTERVAL {skew} SECOND")).alias("emptied_at"))
    )


def judged(messages: DataFrame, evidence: DataFrame, emptied: DataFrame) -> DataFrame:
    """The messages with a column ``verdict``."""
    facts = (
        messages.join(F.broadcast(evidence), "primary", "left")
        .join(F.broadcast(emptied), ["primary", "path_key"], "left")
        .withColumn("is_sent", F.expr("accepted_by_primary + parked + spooled > 0"))
        .withColumn("is_home", F.expr("accepted_by_primary + forwarded > 0"))
    )
    verdict = F.coalesce(*(F.when(F.expr(condition), F.lit(each.value)) for condition, each in RULES))
    return facts.withColumn("verdict", verdict).drop(
        "is_sent", "is_home", "senders_whole", "syphons_whole", "receivers_whole", "drained_at", "emptied_at"
    )
