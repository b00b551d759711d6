"""Mentions: one row for each message that an event names.

What a mention counts as is one number, ``facts``, of which each bit stands for one of :data:`FACTS`: it is
found once for an event, and travels instead of the texts that it was found from.

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
NO_NUMBER = 0  # what a receiver's record has where a message has no sequence number

# What a mention is counted as.
COUNTS: Mapping[str, str] = {
    "accepted_by_primary": "(event = 'send_accepted' AND stored_in = 'primary')"
    " OR (event = 'spool_replayed' AND backlog IS NULL)",
    "told_backlog": "event = 'send_accepted' AND stored_in = 'backlog'",
    "told_parked": "event = 'message_parked'",
    "told_spool": "event = 'send_accepted' AND stored_in = 'spool'",
    "told_spooled": "event = 'message_spooled'",
    "left_spool": "event = 'spool_replayed'",
    "refused_in_spool": "event = 'spooled_message_refused'",
    "raised": "event = 'send_raised'",
    "raised_ambiguously": "event = 'send_raised' AND ambiguous",
    "rested_ambiguously": "event IN ('message_parked', 'message_spooled') AND ambiguous",
    "accepted_ambiguously": "event = 'send_accepted' AND stored_in <> 'primary' AND ambiguous",
    "accepted_by_primary_ambiguously": "event = 'send_accepted' AND stored_in = 'primary' AND ambiguous",
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
    # one more or one less in a broker's store
    "put": f"{HERE} AND {IS_ALIVE} AND event = 'messages_stored'",
    "taken": f"{HERE} AND {IS_ALIVE} AND event = 'messages_removed'",
    "put_in_backlog": f"{PARKED_HERE} AND event = 'messages_stored'",
    "taken_from_backlog": f"{PARKED_HERE} AND event = 'messages_removed'",
}
# What else is asked of a mention.
KINDS: Mapping[str, str] = {
    "is_sent": "event IN ('send_accepted', 'message_parked', 'message_spooled')",
    "is_parked": "event = 'message_parked' OR (event = 'send_accepted' AND stored_in = 'backlog')",
    "is_in_store_of_backlog": PARKED_HERE,
    # whose numbers say something: those of receivers, and of what a broker stored in an entity
    "is_arrival": f"event = 'messages_received' OR {HERE} AND event = 'messages_stored'",
}
# What a mention has of its event.
OF_EVENT = ("primary", "secondary", "path", "path_key", "place", "in_store", "writer", "ordinal", "at",
            "backlog", "facts")  # fmt: skip
FACTS = {name: 1 << bit for bit, name in enumerate((*COUNTS, *KINDS))}


def tells(*names: str) -> str:
    """Whether a mention is any of these, as SQL."""
    return f"facts & {sum(FACTS[name] for name in names)}L <> 0"


def counted(name: str) -> str:
    """1 where a mention is that, else 0, as SQL."""
    return f"shiftright(facts, {FACTS[name].bit_length() - 1}) & 1L"


def mentions(events: DataFrame) -> DataFrame:
    """One row for each message that an event tells of, in the order in which the event names them."""
    told = _exploded(events)
    pathless = told.where("path IS NULL")
    # A message set aside without a usable path is the one of that id that was parked, else of no entity.
    ids = F.broadcast(pathless.select("primary", "message_id"))
    parked = (
        told.where("path IS NOT NULL")
        .where(tells("told_parked"))
        .join(ids, ["primary", "message_id"], "left_semi")
        .select(*KEY, "path")
        .distinct()
    )
    found = pathless.drop("path", "path_key").join(F.broadcast(parked), ["primary", "message_id"], "left")
    return told.where("path IS NOT NULL").unionByName(found.fillna({"path": "", "path_key": ""}))


def _exploded(events: DataFrame) -> DataFrame:
    """In one pass, whether an event names one message or many."""
    ids = F.when(F.col("event").isin(*MANY), F.col("message_ids")).when(
        F.col("event").isin(*SINGLE), F.array("message_id")
    )
    told = events.select(*common(), ids.alias("ids"), "session_ids", "sequence_numbers")
    rows = told.withColumn("facts", _facts()).select(
        *OF_EVENT, F.posexplode("ids").alias("position", "message_id"), "session_ids", "sequence_numbers"
    ).where("message_id <> ''")  # fmt: skip
    number = F.get("sequence_numbers", F.col("position"))
    return rows.select(
        *OF_EVENT,
        "position",
        "message_id",
        F.get("session_ids", F.col("position")).alias("session_id"),
        F.when((number != NO_NUMBER) & F.expr(tells("is_arrival")), number).alias("sequence_number"),
    )


def _facts() -> Column:
    """One text: each function that Python calls of Spark costs ten trips to the JVM."""
    conditions = (*COUNTS.items(), *KINDS.items())
    return F.expr(" | ".join(f"IF({condition}, {FACTS[name]}L, 0L)" for name, condition in conditions))


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
        "event", "writer", "ordinal", "at", "stored_in", "backlog", "ambiguous", "reason", "how",
        F.expr(IN_STORE).alias("in_store"),
    )  # fmt: skip
