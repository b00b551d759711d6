"""The verdicts in other words, for another engine: DuckDB over the same files."""

from __future__ import annotations

from pathlib import Path

import duckdb

# Written from docs/spark.md, not from the rules in verdict.py.
VERDICTS = """
with records as (
    select * from read_json(?, format = 'newline_delimited', union_by_name = true,
        columns = {event: 'VARCHAR', path: 'VARCHAR', rests: 'VARCHAR', reason: 'VARCHAR', backlog: 'BIGINT',
                   message_id: 'VARCHAR', message_ids: 'VARCHAR[]', "at": 'TIMESTAMP'})
), told as (
    select event, rests, reason, unnest(coalesce(message_ids, [message_id])) as id from records
    where coalesce(message_ids, [message_id])[1] is not null
), per as (
    select id,
        bool_or(event = 'messages_received') as arrived,
        bool_or(event in ('send_accepted', 'message_parked')) as taken,
        bool_or(event = 'send_raised') as raised,
        bool_or(event = 'message_parked') as parked,
        bool_or(event = 'messages_forwarded' or rests = 'primary') as home,
        bool_or(event = 'message_set_aside' and reason = 'TTLExpiredException') as late,
        bool_or(event = 'message_set_aside') as aside
    from told group by id
)
select case
    when arrived and taken then 'delivered'
    when arrived and raised then 'recovered'
    when arrived then 'unexpected'
    when late then 'expired'
    when aside then 'dead-lettered'
    when home and taken then 'lost'
    when parked then 'lost'
    else 'not accepted' end as verdict, count(*) from per group by 1
"""


def verdicts(directory: Path) -> dict[str, int]:
    """How many messages have each verdict, in journals that are whole and whose places were found empty."""
    return dict(duckdb.sql(VERDICTS, params=[str(directory / "*.jsonl")]).fetchall())
