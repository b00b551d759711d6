"""Mentions: one row for each message named in an event.

The classification of a mention is one integer, ``facts``, with one bit for each of :data:`FACTS`. It is computed
once per event, so that only a number is shuffled instead of the fields it depends on.

A message is identified by primary, entity (both compared without case) and message id, since two entities may use
the same ids. A topic's subscriptions and an entity's dead-letter queue are *places* of the entity where a copy may
arrive; one copy at each of two subscriptions counts as one copy.

The journal of a broker is per namespace. Its events on a backlog queue belong to the primary in the queue's name:
their ``in_store`` is ``'backlog'``; it is ``'entity'`` for events on entities, and null for journals of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KEY = ("primary", "path_key", "message_id")
EXPIRED = "TTLExpiredException"  # the dead-letter reason of an expired message (T-10)
MANY = ("send_accepted", "message_parked", "message_spooled", "spool_replayed", "send_raised",
        "messages_forwarded", "messages_received", "messages_stored", "messages_removed",
        "duplicates_dropped")  # fmt: skip
SINGLE = ("message_set_aside", "spooled_message_refused")
# The part of a path after the entity: a subscription, a dead-letter queue, or both.
PLACE = r"(?i)(/subscriptions/[^/]+)?(/\$transfer)?(/\$deadletterqueue)?$"
OF_BACKLOG = r"^(.+)/x-servicebus-transfer/"  # P-10
IS_BACKLOG = "role = 'broker' AND backlog_queue <> ''"
IN_STORE = """CASE WHEN role <> 'broker' THEN NULL WHEN backlog_queue = '' THEN 'entity'
    WHEN backlog IS NOT NULL THEN 'backlog' ELSE 'dead letters of a backlog' END"""
HERE, PARKED_HERE = "in_store = 'entity'", "in_store = 'backlog'"
IS_ALIVE = "place NOT LIKE '%$deadletterqueue'"
NO_NUMBER = 0  # in a receiver's record, for a message without a sequence number

# The counts of a message, and the mentions that each counts.
COUNTS: Mapping[str, str] = {
    "accepted_by_primary": "(event = 'send_accepted' AND stored_in = 'primary')"
    " OR (event = 'spool_replayed' AND backlog IS NULL)",
    "accepted_by_backlog": "event = 'send_accepted' AND stored_in = 'backlog'",
    "parked_events": "event = 'message_parked'",
    "accepted_by_spool": "event = 'send_accepted' AND stored_in = 'spool'",
    "spooled_events": "event = 'message_spooled'",
    "left_spool": "event = 'spool_replayed'",
    "refused_in_spool": "event = 'spooled_message_refused'",
    "raised": "event = 'send_raised'",
    "raised_ambiguously": "event = 'send_raised' AND ambiguous",
    "stored_ambiguously": "event IN ('message_parked', 'message_spooled') AND ambiguous",
    "accepted_ambiguously": "event = 'send_accepted' AND stored_in <> 'primary' AND ambiguous",
    "accepted_by_primary_ambiguously": "event = 'send_accepted' AND stored_in = 'primary' AND ambiguous",
    "forwarded": "event = 'messages_forwarded'",
    "set_aside": f"event = 'message_set_aside' AND reason <> '{EXPIRED}'"
    f" OR {PARKED_HERE} AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired": f"event = 'message_set_aside' AND reason = '{EXPIRED}'"
    f" OR {PARKED_HERE} AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "received": "event = 'messages_received'",
    # from the journal of a broker
    "stored": f"{HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
    "handed_on": f"{HERE} AND event = 'messages_stored' AND how = 'forwarded'",
    "completed": f"{HERE} AND event = 'messages_removed' AND how IN ('completed', 'received')",
    "buried": f"{HERE} AND event = 'messages_removed' AND how = 'dead-lettered' AND reason <> '{EXPIRED}'",
    "expired_there": f"{HERE} AND event = 'messages_removed'"
    f" AND (how = 'expired' OR how = 'dead-lettered' AND reason = '{EXPIRED}')",
    "deleted": "event = 'messages_removed' AND how IN ('deleted', 'cancelled')",
    "backlogged": f"{PARKED_HERE} AND event IN ('messages_stored', 'duplicates_dropped')",
    # changes of the number of copies in a broker's store
    "put": f"{HERE} AND {IS_ALIVE} AND event = 'messages_stored'",
    "taken": f"{HERE} AND {IS_ALIVE} AND event = 'messages_removed'",
    "put_in_backlog": f"{PARKED_HERE} AND event = 'messages_stored'",
    "taken_from_backlog": f"{PARKED_HERE} AND event = 'messages_removed'",
}
# Further classes of mentions, which are not counted.
KINDS: Mapping[str, str] = {
    "is_sent": "event IN ('send_accepted', 'message_parked', 'message_spooled')",
    "is_parked": "event = 'message_parked' OR (event = 'send_accepted' AND stored_in = 'backlog')",
    "is_in_store_of_backlog": PARKED_HERE,
    # mentions with a valid sequence number of the entity
    "is_arrival": f"event = 'messages_received' OR {HERE} AND event = 'messages_stored'",
}
# The columns that a mention takes from its event.
OF_EVENT = ("primary", "secondary", "path", "path_key", "place", "in_store", "writer", "ordinal", "at",
            "backlog", "facts")  # fmt: skip
FACTS = {name: 1 << bit for bit, name in enumerate((*COUNTS, *KINDS))}


def is_any(*names: str) -> str:
    """A SQL condition: the mention has any of these facts."""
    return f"facts & {sum(FACTS[name] for name in names)}L <> 0"


def counted(name: str) -> str:
    """A SQL expression: 1 if the mention has this fact, else 0."""
    return f"shiftright(facts, {FACTS[name].bit_length() - 1}) & 1L"


def mentions(events: DataFrame) -> DataFrame:
    """One row for each message named in an event; ``position`` is its index there."""
    rows = _exploded(events)
    pathless = rows.where("path IS NULL")
    # A message dead-lettered without a valid path is the parked one of the same id; if there is none, its path is "".
    ids = F.broadcast(pathless.select("primary", "message_id"))
    parked = (
        rows.where("path IS NOT NULL")
        .where(is_any("parked_events"))
        .join(ids, ["primary", "message_id"], "left_semi")
        .select(*KEY, "path")
        .distinct()
    )
    found = pathless.drop("path", "path_key").join(F.broadcast(parked), ["primary", "message_id"], "left")
    return rows.where("path IS NOT NULL").unionByName(found.fillna({"path": "", "path_key": ""}))


def _exploded(events: DataFrame) -> DataFrame:
    """The mentions of all events, in one pass over events that name one message and those that name many."""
    ids = F.when(F.col("event").isin(*MANY), F.col("message_ids")).when(
        F.col("event").isin(*SINGLE), F.array("message_id")
    )
    selected = events.select(*common(), ids.alias("ids"), "session_ids", "sequence_numbers")
    rows = selected.withColumn("facts", _facts()).select(
        *OF_EVENT, F.posexplode("ids").alias("position", "message_id"), "session_ids", "sequence_numbers"
    ).where("message_id <> ''")  # fmt: skip
    number = F.get("sequence_numbers", F.col("position"))
    return rows.select(
        *OF_EVENT,
        "position",
        "message_id",
        F.get("session_ids", F.col("position")).alias("session_id"),
        F.when((number != NO_NUMBER) & F.expr(is_any("is_arrival")), number).alias("sequence_number"),
    )


def _facts() -> Column:
    """The bits of an event, as one SQL text: each Column function called in Python takes ten round trips to the JVM."""
    conditions = (*COUNTS.items(), *KINDS.items())
    return F.expr(" | ".join(f"IF({condition}, {FACTS[name]}L, 0L)" for name, condition in conditions))


def common() -> tuple[Column | str, ...]:
    """The columns of an event that all queries need, with primary, entity and place normalised."""
    deep = F.col("path").contains("/")  # skips the regular expression for most paths
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
