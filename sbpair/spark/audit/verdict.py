"""What became of a message, as far as the journals prove it?

What somebody saw is proved by one line. That something did *not* happen is proved only by the silence of a
journal that is whole (:mod:`.writers`), up to a moment at which its writer found the place empty.
"""

from __future__ import annotations

from enum import Enum

from pyspark.sql import Column, DataFrame, Window
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

EVIDENCE = ("is_sent", "is_home", "is_aside", "is_stranded", "senders_whole", "senders_tell", "syphons_whole",
            "receivers_whole", "stranded_from", "drained_at", "emptied_at")  # fmt: skip
# The first condition that holds decides. The columns are those of messages(), and these.
RULES: tuple[tuple[str, Verdict], ...] = (
    ("received > 0 AND is_sent", Verdict.DELIVERED),
    ("received > 0 AND raised > 0", Verdict.RECOVERED),
    ("received > 0 AND NOT senders_tell", Verdict.DELIVERED),  # a healthy send has no line here
    ("received > 0 AND senders_whole", Verdict.UNEXPECTED),
    ("received > 0", Verdict.UNPROVEN),  # it is there, but whether anybody sent it is not known
    ("expired > 0 AND is_aside", Verdict.EXPIRED),
    ("set_aside > 0 AND is_aside OR refused_in_spool > 0 AND NOT is_home", Verdict.DEAD_LETTERED),
    ("is_home AND is_sent AND emptied_at > home_at AND receivers_whole", Verdict.LOST),
    ("is_home AND is_sent", Verdict.ACCEPTED),
    ("is_home AND raised > 0", Verdict.ACCEPTED),
    ("is_home AND senders_whole", Verdict.UNEXPECTED),
    ("is_home", Verdict.UNPROVEN),
    ("parked > 0 AND drained_at > last_parked_at AND NOT is_stranded AND syphons_whole", Verdict.LOST),
    ("parked > 0 AND syphons_whole", Verdict.WAITING),
    ("parked > 0", Verdict.UNPROVEN),
    ("spooled > left_spool AND senders_whole", Verdict.WAITING),
    ("spooled > 0", Verdict.UNPROVEN),
    ("raised > 0", Verdict.NOT_ACCEPTED),
    ("TRUE", Verdict.UNPROVEN),
)


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


def _before(name: str, seconds: float) -> Column:
    return F.timestamp_micros(F.unix_micros(name) - round(seconds * 1e6))


def judged(messages: DataFrame, evidence: DataFrame, drained: DataFrame, emptied: DataFrame) -> DataFrame:
    """The messages with a column ``verdict``."""
    facts = (
        messages.join(F.broadcast(evidence), "primary", "left")
        .join(F.broadcast(drained), ["primary", "secondary"], "left")
        .join(F.broadcast(emptied), ["primary", "path_key"], "left")
        .withColumn("is_sent", F.expr("accepted_by_primary + parked + spooled > 0"))
        .withColumn("is_home", F.expr("accepted_by_primary + forwarded > 0"))
        .withColumn("is_aside", F.expr("home_at IS NULL OR set_aside_at >= home_at"))  # else it was redriven
        .withColumn("is_stranded", F.expr("stranded_from IS NOT NULL AND backlog >= stranded_from"))
    )
    verdict = F.coalesce(*(F.when(F.expr(condition), F.lit(each.value)) for condition, each in RULES))
    return facts.withColumn("verdict", verdict).drop(*EVIDENCE)
