"""What was told of each message? One row for each, from one pass over the events.

A message is its id, at an entity, of a primary (whatever their case): two entities may well use the same
ids. A topic's subscriptions and an entity's dead-letter queue are *places* of the entity, where a copy may
arrive; one copy at each of two subscriptions is one copy.

A broker's journal is told by namespace. What it tells of a backlog queue belongs to the primary in that
queue's name: its rows are ``in_store = 'backlog'``, those of an entity ``'entity'``, others' rows have none.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KEY = ("primary", "path_key", "message_id")
EXPIRED = "TTLExpiredException"  # the reason of a dead-lettered message whose deadline had passed (T-10)
MANY = ("send_accepted", "message_parked", "message_spooled", "spool_replayed", "send_raised",
        "messages_forwarded", "messages_received", "messages_stored", "messages_removed",
        "duplicates_dropped")  # fmt: skip
SINGLE = ("message_set_aside", "spooled_message_refused")
# What follows the entity in a path: a subscription, a dead-letter queue, or one's of the other.
PLACE = r"(?i)(/subscriptions/[^/]+)?(/\$transfer)?(/\$deadletterqueue)?$"
OF_BACKLOG = r"^(.+)/x-servicebus-transfer/"  # P-10
IS_BACKLOG = "role = 'broker' AND backlog_queue <> ''"
IN_STORE = """CASE WHEN role <> 'broker' THEN NULL WHEN backlog_queue = '' THEN 'entity'
    WHEN backlog IS NOT NULL THEN 'backlog' ELSE 'dead letters of a backlog' END"""
HERE, PARKED_HERE = "in_store = 'entity'", "in_store = 'backlog'"
IS_ALIVE = "place NOT LIKE '%$deadletterqueue'"
# One more or one less in a broker's store.
BALANCE = "CASE event WHEN 'messages_stored' THEN 1 WHEN 'messages_removed' THEN -1 ELSE 0 END"
NO_NUMBER = 0  # what a receiver's record has where a message has no sequence number

# What each count of a message's row counts.
COUNTS: Mapping[str, str] = {
    "accepted_by_primary": "(event = 'send_accepted' AND rests = 'primary')"
    " OR (event = 'spool_replayed' AND backlog IS NULL)",
    "told_backlog": "event = 'send_accepted' AND rests = 'backlog'",
    "told_parked": "event = 'message_parked'",
    "told_spool": "event = 'send_accepted' AND rests = 'spool'",
    "told_spooled": "event = 'message_spooled'",
    "left_spool": "event = 'spool_replayed'",
    "refused_in_spool": "event = 'spooled_message_refused'",
    "raised": "event = 'send_raised'",
    "raised_ambiguously": "event = 'send_raised' AND ambiguous",
    "rested_ambiguously": "event IN ('message_parked', 'message_spooled') AND ambiguous",
    "accepted_ambiguously": "event = 'send_accepted' AND rests <> 'primary' AND ambiguous",
    "accepted_by_primary_ambiguously": "event = 'send_accepted' AND rests = 'primary' AND ambiguous",
    "forwarded": "event = 'messages_forwarded'",
    "set_aside": f"event = 'message_set_aside' AND reason <> '{EXPIRED}'"
    f" OR {PARKED_HERE} AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired": f"event = 'message_set_aside' AND reason = '{EXPIRED}'"
    f" OR {PARKED_HERE} AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "received": "event = 'messages_received'",
    # a broker's own word
    "stored": f"{HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
    "handed_on": f"{HERE} AND event = 'messages_stored' AND how = 'forwarded'",
    "completed": f"{HERE} AND event = 'messages_removed' AND how IN ('completed', 'received')",
    "buried": f"{HERE} AND event = 'messages_removed' AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired_there": f"{HERE} AND event = 'messages_removed'"
    f" AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "deleted": "event = 'messages_removed' AND how IN ('deleted', 'cancelled')",
    "backlogged": f"{PARKED_HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
}
HELD = {  # messages that are in a broker's store, each copy
    "held": f"IF({HERE} AND {IS_ALIVE}, {BALANCE}, 0)",
    "held_in_backlog": f"IF({PARKED_HERE}, {BALANCE}, 0)",
}
TWICE_TOLD = {  # a detour has a line by itself, and another when somebody asked for it
    "parked": ("told_parked", "told_backlog"),
    "spooled": ("told_spooled", "told_spool"),
    "detoured_ambiguously": ("rested_ambiguously", "accepted_ambiguously"),
}
AMBIGUITIES = ("raised_ambiguously", "detoured_ambiguously", "accepted_by_primary_ambiguously")
PARKED = "event = 'message_parked' OR (event = 'send_accepted' AND rests = 'backlog')"
# Which rows' numbers say something: those of receivers, and of what a broker stored in an entity.
NUMBERED = f"event = 'messages_received' OR {HERE} AND event = 'messages_stored'"
ARRIVES = NUMBERED
# The most copies at any one place, as a receiver or as the broker tells of it.
COPIES = """coalesce(array_max(transform(array_distinct(arrivals.place),
    there -> size(filter(arrivals, arrival -> arrival.place = there)))), 0)"""
SENT = "event IN ('send_accepted', 'message_parked', 'message_spooled')"


def mentions(events: DataFrame) -> DataFrame:
    """One row for each message that an event tells of, in the order in which the event names them."""
    pathless = _exploded(events.where("path IS NULL"))
    # A message set aside without a usable path is the one of that id that was parked, else of no entity.
    ids = F.broadcast(pathless.select("primary", "message_id"))
    parked = (
        _exploded(events.where("event = 'message_parked' AND path IS NOT NULL"))
        .join(ids, ["primary", "message_id"], "left_semi")
        .select(*KEY, "path")
        .distinct()
    )
    found = pathless.drop("path", "path_key").join(F.broadcast(parked), ["primary", "message_id"], "left")
    return _exploded(events.where("path IS NOT NULL")).unionByName(found.fillna({"path": "", "path_key": ""}))


def _exploded(events: DataFrame) -> DataFrame:
    """In one pass, whether an event names one message or many."""
    ids = F.when(F.col("event").isin(*MANY), F.col("message_ids")).when(
        F.col("event").isin(*SINGLE), F.array("message_id")
    )
    rows = events.select(
        *common(), F.posexplode(ids).alias("position", "message_id"), "session_ids", "sequence_numbers"
    ).where("message_id <> ''")
    number = F.get("sequence_numbers", F.col("position"))
    return rows.select(
        *(column for column in rows.columns if column not in ("session_ids", "sequence_numbers")),
        F.get("session_ids", F.col("position")).alias("session_id"),
        F.when((number != NO_NUMBER) & F.expr(NUMBERED), number).alias("sequence_number"),
    )


def common() -> tuple[Column | str, ...]:
    """Who tells what of which entity, with its names as they are compared."""
    deep = F.col("path").contains("/")  # most are not, and need no regular expression
    path = F.when(deep, F.regexp_replace("path", PLACE, "")).otherwise(F.col("path"))
    return (
        F.expr(f"lower(IF({IS_BACKLOG}, regexp_extract(backlog_queue, '{OF_BACKLOG}', 1), pair.primary))")
        .alias("primary"),
        F.expr(f"lower(IF({IS_BACKLOG}, pair.primary, pair.secondary))").alias("secondary"),
        path.alias("path"), F.lower(path).alias("path_key"),
        F.when(deep, F.lower(F.regexp_extract("path", PLACE, 0))).otherwise(F.lit("")).alias("place"),
        "event", "writer", "ordinal", "at", "rests", "backlog", "ambiguous", "reason", "how",
        F.expr(IN_STORE).alias("in_store"),
    )  # fmt: skip


def messages(events: DataFrame) -> DataFrame:
    """One row a message: the counts above, the ``copies`` that arrived, its times, and its place in order."""
    is_sent = F.expr(SENT)
    is_told_home = f"({COUNTS['accepted_by_primary']}) OR event = 'messages_forwarded'"
    is_received = "event = 'messages_received'"
    is_set_aside = f"({COUNTS['set_aside']}) OR ({COUNTS['expired']})"
    is_parked, is_at_backlog = F.expr(PARKED), F.expr(f"{PARKED} OR {PARKED_HERE}")
    counted = (
        mentions(events)
        .repartition(*KEY)  # bare rows are shuffled, which are narrower than counts
        .groupBy(*KEY)
        .agg(
            F.min("path").alias("path"),
            *(_count(F.expr(what)).alias(name) for name, what in COUNTS.items()),
            *(F.coalesce(F.sum(F.expr(change)), F.lit(0)).alias(name) for name, change in HELD.items()),
            F.collect_set(F.when(F.expr(ARRIVES), _arrival())).alias("arrivals"),
            F.coalesce(
                F.min(F.when(F.expr(is_received), F.col("sequence_number"))), F.min("sequence_number")
            ).alias("sequence_number"),
            F.max("session_id").alias("session_id"),
            F.max("backlog").alias("backlog"),
            F.min(_at(is_sent)).alias("sent_at"),
            F.min(F.when(is_at_backlog, F.col("secondary"))).alias("secondary"),
            F.max(F.when(is_at_backlog, F.col("secondary"))).alias("other_secondary"),
            F.min(_at(is_parked)).alias("parked_at"),
            F.max(_at(is_parked)).alias("last_parked_at"),
            F.max(_at(F.expr(is_set_aside))).alias("set_aside_at"),
            F.max(_at(F.expr(is_told_home))).alias("home_at"),
            F.max(_at(F.expr("event = 'messages_forwarded'"))).alias("forwarded_at"),
            F.min(_at(F.expr(is_received))).alias("received_at"),
            F.min(F.when(is_sent, F.struct("writer", "ordinal", "position"))).alias("sent_in"),
        )
    )
    counted = counted.select(
        "*",
        *(F.greatest(*told).alias(name) for name, told in TWICE_TOLD.items()),
        F.expr(COPIES).alias("copies"),
    )
    whole = counted.withColumn("ambiguities", F.expr(" + ".join(AMBIGUITIES)))
    one_secondary = F.expr("IF(secondary = other_secondary, secondary, NULL)")
    return whole.withColumn("secondary", one_secondary).drop(
        "arrivals", "other_secondary", *AMBIGUITIES, *(name for told in TWICE_TOLD.values() for name in told)
    )


def _arrival() -> Column:
    """Where and under which number a copy arrived; one without a number is like no other."""
    own = F.xxhash64("writer", "ordinal", "position")
    place = F.concat("place", F.coalesce("in_store", F.lit("")))  # the two may have numbered it differently
    return F.struct(place.alias("place"), F.coalesce("sequence_number", own).alias("number"))


def _count(condition: Column) -> Column:
    return F.coalesce(F.sum(condition.cast("long")), F.lit(0))


def _at(condition: Column) -> Column:
    return F.when(condition, F.col("at"))
