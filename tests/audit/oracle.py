"""An independent implementation of the verdicts: SQL on DuckDB over the same files."""

from __future__ import annotations

from pathlib import Path

import duckdb

CANARY = "regexp_full_match(id, 'sbpair-canary-[0-9a-f]{12}-(probe|[0-9]{1,3})')"
# Written from docs/reference/spark.md, not from the rules in verdict.py.
VERDICTS = """
with records as (
    select * from read_json(?, format = 'newline_delimited', union_by_name = true,
        columns = {event: 'VARCHAR', path: 'VARCHAR', stored_in: 'VARCHAR', reason: 'VARCHAR', backlog: 'BIGINT',
                   message_id: 'VARCHAR', message_ids: 'VARCHAR[]', "at": 'TIMESTAMP'})
), told as (
    select event, stored_in, reason, unnest(coalesce(message_ids, [message_id])) as id from records
    where coalesce(message_ids, [message_id])[1] is not null
), per as (
    select id,
        bool_or(event = 'messages_received') as arrived,
        bool_or(event in ('send_accepted', 'message_parked')) as taken,
        bool_or(event = 'send_raised') as raised,
        bool_or(event = 'message_parked') as parked,
        bool_or(event = 'messages_forwarded' or stored_in = 'primary') as home,
        bool_or(event = 'message_set_aside' and reason = 'TTLExpiredException') as late,
        bool_or(event = 'message_set_aside') as aside
    from told group by id
)
select case
    when arrived and taken then 'delivered'
    when arrived and raised then 'recovered'
    when arrived and {canary} then 'canary'
    when arrived then 'unexpected'
    when late then 'expired'
    when aside then 'dead-lettered'
    when home and taken then 'unproven'
    when parked then 'lost'
    else 'not accepted' end as verdict, count(*) from per group by 1
"""


def verdicts(directory: Path) -> dict[str, int]:
    """How many messages have each verdict, in journals that are whole and whose places were found empty."""
    return dict(
        duckdb.sql(VERDICTS.replace("{canary}", CANARY), params=[str(directory / "*.jsonl")]).fetchall()
    )


# Written from "Copies" in docs/reference/audit.md, not from killed.py: the extra copies that have no explanation.
COPIES = """
with records as (
    select * from read_json(?, format = 'newline_delimited', union_by_name = true, ignore_errors = true, columns = {
        writer: 'VARCHAR', role: 'VARCHAR', event: 'VARCHAR', stored_in: 'VARCHAR', ambiguous: 'BOOLEAN',
        is_last: 'BOOLEAN', message_ids: 'VARCHAR[]', sequence_numbers: 'BIGINT[]', "at": 'TIMESTAMP'})
), syphons as (
    select writer, min("at") as began, max("at") as last, coalesce(bool_or(is_last), false) as has_end
    from records where role = 'syphon' group by 1
), killed as (
    select writer, last, (select min(next.began) from syphons next where next.began > one.last) as dead_by
    from syphons one where not has_end
), told as (
    select writer, event, stored_in, ambiguous, "at", unnest(message_ids) as id,
        unnest(sequence_numbers) as number
    from records where message_ids is not null
), per as (
    select id,
        count(distinct number) filter (event = 'messages_received') as copies,
        count(*) filter (ambiguous) as ambiguities,
        count(*) filter (event = 'message_parked') as parked,
        count(*) filter (event = 'send_accepted' and stored_in = 'primary') as direct,
        count(*) filter (event = 'messages_forwarded') as forwarded,
        min("at") filter (event = 'message_parked') as parked_at,
        max("at") filter (event = 'messages_forwarded') as forwarded_at
    from told group by id
), held as (
    select id, count(*) as held from per, killed
    where killed.last <= coalesce(forwarded_at, killed.last) + interval 1 second
        and parked_at <= coalesce(dead_by, parked_at) + interval 1 second
        and not exists (from told where told.id = per.id and told.writer = killed.writer
                        and event = 'messages_forwarded')
    group by id
)
select id, copies - 1 > ambiguities + greatest(direct + parked - 1, 0)
    + greatest(forwarded + case when parked > 0 then coalesce(held, 0) else 0 end - parked, 0)
from per left join held using (id) where copies > 1
"""


def duplicates(directory: Path) -> dict[str, bool]:
    """The messages of one pair that arrived more than once, and whether they have a copy that nothing explains."""
    return dict(duckdb.sql(COPIES, params=[str(directory / "*.jsonl")]).fetchall())


# The same with the journals of brokers, of the namespaces NAME and NAME-dr; all others' are whole.
OF_BROKERS = """
with records as (
    select *, regexp_extract(backlog_queue, '^(.+)/x-servicebus-transfer/', 1) as parks_for
    from read_json(?, format = 'newline_delimited', union_by_name = true, ignore_errors = true, columns = {
        writer: 'VARCHAR', role: 'VARCHAR', ordinal: 'BIGINT', is_last: 'BOOLEAN',
        pair: 'STRUCT("primary" VARCHAR, secondary VARCHAR)',
        event: 'VARCHAR', path: 'VARCHAR', stored_in: 'VARCHAR', reason: 'VARCHAR', how: 'VARCHAR',
        backlog: 'BIGINT', backlog_queue: 'VARCHAR', message_id: 'VARCHAR', message_ids: 'VARCHAR[]', side: 'VARCHAR'})
), kept as (
    select namespace, count(*) = 1 and bool_and(is_whole) as kept from (
        select pair.primary as namespace, writer,
            count(*) = max(ordinal) + 1 and coalesce(bool_or(is_last), false) as is_whole
        from records where role = 'broker' group by 1, 2) group by 1
), told as (
    select case when parks_for <> '' and role = 'broker' then parks_for else pair.primary end as home,
        case when role <> 'broker' then role when backlog_queue = '' then 'entity'
             when backlog is null then 'dead backlog' else 'backlog' end as place,
        event, stored_in, reason, how, side, contains(path, '$') as dead,
        unnest(coalesce(message_ids, [message_id])) as id
    from records where coalesce(message_ids, [message_id])[1] is not null
), per as (
    select home, id,
        bool_or(event = 'messages_received' or place = 'entity' and how in ('completed', 'received'))
            as arrived,
        count(*) filter (event in ('send_accepted', 'message_parked')) as times,
        count(*) filter (place = 'entity' and not dead and event = 'messages_stored') as kept_copies,
        count(*) filter (place = 'entity' and how in ('completed', 'received')) as done,
        bool_or(event in ('send_accepted', 'message_parked')
            or how = 'forwarded' and event = 'messages_stored') as taken,
        bool_or(event = 'send_raised') as raised,
        bool_or(event = 'message_parked') as parked,
        bool_or(event = 'messages_forwarded' and side <> 'secondary' or stored_in = 'primary') as said_home,
        bool_or(event = 'messages_forwarded' and side = 'secondary') as landed,
        bool_or(place = 'entity' and event in ('messages_stored', 'duplicates_dropped')) as stored,
        sum(case when place <> 'entity' or dead then 0 when event = 'messages_stored' then 1
                 when event = 'messages_removed' then -1 else 0 end) as here,
        bool_or(place = 'backlog' and event = 'messages_stored') as stored_there,
        sum(case when place <> 'backlog' then 0 when event = 'messages_stored' then 1
                 when event = 'messages_removed' then -1 else 0 end) as there,
        bool_or(how = 'expired' or how = 'dead-lettered' and reason = 'TTLExpiredException') as late,
        bool_or(how = 'dead-lettered') as aside,
        bool_or(how = 'deleted') as deleted
    from told group by 1, 2
), judged as (
    select per.*, coalesce(a.kept, false) as k, coalesce(b.kept, false) as k2 from per
    left join kept a on a.namespace = home left join kept b on b.namespace = home || '-dr'
)
select home, case
    when k and here > 0 and least(kept_copies, greatest(times, 1)) > done and (taken or raised) then 'waiting'
    when arrived and taken then 'delivered'
    when arrived and raised then 'recovered'
    when arrived and {canary} then 'canary'
    when arrived then 'unexpected'
    when stored and not (taken or raised or stored_there) and {canary} then 'canary'
    when stored and not (taken or raised or stored_there) then 'unexpected'
    when here > 0 then case when k then 'waiting' else 'accepted' end
    when late and there <= 0 then 'expired'
    when deleted and there <= 0 then 'deleted'
    when aside and (there <= 0 or not k2) then 'dead-lettered'
    when stored then 'accepted'
    when said_home then case when k then 'lost' else 'accepted' end
    when there > 0 and k2 then 'waiting'
    when landed then 'accepted'
    when stored_there and k and k2 then 'lost'
    when parked and not stored_there and k2 then 'lost'
    when parked and not k2 then 'waiting'
    when stored_there then 'unproven'
    when raised then 'not accepted'
    else 'unproven' end as verdict, count(*)
from judged group by 1, 2
"""


def verdicts_of_brokers(directory: Path) -> dict[tuple[str, str], int]:
    """How many messages of each primary have each verdict; nobody but a broker may have been killed."""
    rows = duckdb.sql(OF_BROKERS.replace("{canary}", CANARY), params=[str(directory / "*.jsonl")]).fetchall()
    return {(home, verdict): count for home, verdict, count in rows}
