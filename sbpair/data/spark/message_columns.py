"""Conversion of peeked messages to Arrow columns, section by section, without an object for each message.

Only the sections that the selected columns need are decoded. A message with an unusual or malformed section is read by
:class:`~.message_rows.Row` instead, which defines the values. Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Header, decode_header
from sbpair.pair.amqp.sections import Sections
from sbpair.pair.envelope.values import AliasError

from .glimpse import Glimpse
from .message_rows import ALIASES, OF_BODY, REASONS, VALUES, Row, body_of, partition_key_of, seconds, state_of
from .section_values import FIELDS, NO_ENTRIES, UNUSUAL, Entries, entries_of, fields_of
from .typed_values import is_beyond, storable

if TYPE_CHECKING:
    import pyarrow as pa

ENTRIES, EXPIRY, TROUBLE = "@entries", "absolute_expiry_time", "trouble"
MAPS = frozenset(("application_properties", "typed_properties"))
OF_PROPERTIES = frozenset(FIELDS)
OF_APPLICATION = frozenset((ENTRIES, TROUBLE, *REASONS, *ALIASES))
OF_HEADER = frozenset(("time_to_live", "delivery_count", "expires_at"))
HEADERS_KEPT = 1024

Columns = dict[str, list[Any]]
_header = lru_cache(HEADERS_KEPT)(decode_header)
_NO_HEADER = Header()


def batch_of(
    namespace: str, path: str, messages: Sequence[Glimpse], schema: pa.Schema, *, with_body: bool = True
) -> pa.RecordBatch:
    """Return the columns of ``schema`` of messages; bodies are null unless ``with_body``.

    For a message that cannot be decoded, only its position is given, and the reason as ``trouble``.
    """
    import pyarrow as pa

    count = len(messages)
    constant = {"namespace": namespace, "queue": path} | ({} if with_body else dict.fromkeys(OF_BODY))
    columns = _columns(messages, [name for name in schema.names if name not in constant])
    arrays = []
    maps: dict[str, pa.Array] | None = None
    for field in schema:
        if field.name in constant:
            arrays.append(pa.repeat(pa.scalar(constant[field.name], field.type), count))
        elif field.name in MAPS:
            maps = maps or _maps(columns[ENTRIES])
            arrays.append(maps[field.name].cast(field.type))
        elif pa.types.is_timestamp(field.type):
            arrays.append(pa.array(columns[field.name], pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            arrays.append(pa.array(columns[field.name], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(messages: Sequence[Glimpse], names: Iterable[str]) -> Columns:
    """The values of the columns ``names``: times in milliseconds, and both maps as ENTRIES."""
    count = len(messages)
    wanted = {ENTRIES if name in MAPS else name for name in names}
    if TROUBLE in wanted:
        wanted |= {"enqueued_time", "expires_at"}
    if "expires_at" in wanted:
        wanted.add(EXPIRY)
    columns: Columns = {name: [None] * count for name in wanted}
    if ENTRIES in columns:
        columns[ENTRIES] = [NO_ENTRIES] * count
    odd = {place for place, message in enumerate(messages) if message.trouble is not None}
    for needed, fill in _PASSES:
        if not needed.isdisjoint(wanted):
            fill(messages, columns, odd)
    for place in odd:
        _fill_from_row(messages[place], columns, place)
    return columns


def _fill_positions(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    if "sequence_number" in columns:
        columns["sequence_number"] = [message.number or 0 for message in messages]
    if "enqueued_time" in columns:
        columns["enqueued_time"] = [storable(message.enqueued_at or None) for message in messages]
        odd.update(place for place, message in enumerate(messages) if is_beyond(message.enqueued_at))
    if "state" in columns:
        columns["state"] = [state_of(message) for message in messages]


def _fill_properties(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    wanted = [(place, columns[name]) for place, name in enumerate(FIELDS) if name in columns]
    for index, message in enumerate(messages):
        section = message.sections.properties
        if not section:
            continue
        try:
            values = fields_of(section)
        except UNUSUAL:
            odd.add(index)
            continue
        count = len(values)
        for place, column in wanted:
            if place < count:
                column[index] = values[place]


def _fill_headers(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    spans, counts, ends = map(columns.get, ("time_to_live", "delivery_count", "expires_at"))
    expiries = columns.get(EXPIRY, ())
    for index, message in enumerate(messages):
        section = message.sections.header
        try:
            header = _header(section) if section else _NO_HEADER
        except (DecodeError, IndexError):
            odd.add(index)
            continue
        span = header.ttl
        if counts is not None:
            counts[index] = header.delivery_count or 0
        if spans is not None:
            spans[index] = seconds(span)
        if ends is not None:
            absolute, enqueued = expiries[index], message.enqueued_at
            if absolute is None and span is not None and enqueued:
                absolute = enqueued + span
            ends[index] = storable(absolute)
            if is_beyond(absolute):
                odd.add(index)  # reported as trouble


def _fill_application(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    entries = columns.get(ENTRIES)
    reasons = [(key, columns[name]) for name, key in REASONS.items() if name in columns]
    aliases = [
        (key, columns.get(name), read)
        for name, (key, read) in ALIASES.items()
        if name in columns or TROUBLE in columns
    ]
    for index, message in enumerate(messages):
        section = message.sections.application_properties
        if not section:
            continue
        try:
            found = entries_of(section)
            if entries is not None:
                entries[index] = found
            names, kinds, texts = found
            for key, column in reasons:
                if key in names:
                    column[index] = texts[names.index(key)]
            for key, alias, read in aliases:
                if key not in names:
                    continue
                place = names.index(key)
                value = read(key, texts[place] if kinds[place] == "string" else None)
                if alias is not None:
                    alias[index] = value
        except (*UNUSUAL, AliasError, ValueError):
            odd.add(index)


def _fill_partition_keys(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    keys = columns["partition_key"]
    for index, message in enumerate(messages):
        try:
            keys[index] = partition_key_of(message)
        except UNUSUAL:
            odd.add(index)


def _fill_bodies(messages: Sequence[Glimpse], columns: Columns, odd: set[int]) -> None:
    bodies, kinds = map(columns.get, OF_BODY)
    for index, message in enumerate(messages):
        try:
            body, kind = body_of(message.sections.body)
        except UNUSUAL:
            odd.add(index)
            continue
        if bodies is not None:
            bodies[index] = body
        if kinds is not None:
            kinds[index] = kind


_PASSES: tuple[tuple[frozenset[str], Callable[[Sequence[Glimpse], Columns, set[int]], None]], ...] = (
    (frozenset(("sequence_number", "enqueued_time", "state")), _fill_positions),
    (OF_PROPERTIES, _fill_properties),
    (OF_HEADER, _fill_headers),  # after the properties, for the absolute time of expiry
    (OF_APPLICATION, _fill_application),
    (frozenset(("partition_key",)), _fill_partition_keys),
    (frozenset(OF_BODY), _fill_bodies),
)
"""The columns that each pass over the messages fills; it records the messages that it cannot read."""


def _fill_from_row(message: Glimpse, columns: Columns, place: int) -> None:
    row = Row(message)
    wanted = [name for name in columns if name in VALUES]
    try:
        values = {name: VALUES[name](row) for name in wanted}
        entries = row.entries if ENTRIES in columns else NO_ENTRIES
    except (DecodeError, IndexError) as error:
        trouble = f"not well-formed AMQP: {error}"
        row = Row(Glimpse(message.number, message.enqueued_at, message.state, Sections(), trouble))
        values, entries = {name: VALUES[name](row) for name in wanted}, NO_ENTRIES
    for name, value in values.items():
        columns[name][place] = value
    if ENTRIES in columns:
        columns[ENTRIES][place] = entries


def _maps(entries: Sequence[Entries]) -> dict[str, pa.Array]:
    import pyarrow as pa

    offsets = [0]
    names: list[str] = []
    kinds: list[str] = []
    texts: list[str | None] = []
    for each in entries:
        names += each[0]
        kinds += each[1]
        texts += each[2]
        offsets.append(len(names))
    starts, keys, values = (
        pa.array(offsets, pa.int32()),
        pa.array(names, pa.string()),
        pa.array(texts, pa.string()),
    )
    typed = pa.StructArray.from_arrays([pa.array(kinds, pa.string()), values], ["type", "value"])
    return {
        "application_properties": pa.MapArray.from_arrays(starts, keys, values),
        "typed_properties": pa.MapArray.from_arrays(starts, keys, typed),
    }
