"""Encoding of rows to AMQP without the SDK's objects, with the same values that the SDK would send.

Rows whose columns are unusual are left to the SDK, which also decides what is invalid. Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sbpair.pair.amqp import types
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.message import PLACES
from sbpair.pair.amqp.sections import NULL, Section, data_section, join_fields, map_section

MAX_KEY_LENGTH = 128  # characters of a message id or session id; more are for the SDK to refuse
COLUMNS = {name: PLACES[name] for name in ("to", "subject", "reply_to", "correlation_id", "content_type")}
COLUMNS["session_id"] = SESSION = PLACES["group_id"]
"""The columns that are fields of the properties section, and the place of each."""

CONTENT_TYPE = PLACES["content_type"]
ELSEWHERE = frozenset(("message_id", "entity_path", "application_properties", "typed_properties"))
AMQP_TYPES: Mapping[str, Callable[[Any], object]] = {
    "UBYTE": types.UByte,
    "USHORT": types.UShort,
    "UINT": types.UInt,
    "ULONG": types.ULong,
    "BYTE": types.Byte,
    "SHORT": types.Short,
    "INT": types.Int,
    "FLOAT": types.Float,
    "TIMESTAMP": types.Timestamp,
    "SYMBOL": types.Symbol,
}
"""The class of each type that :func:`~.typed_values.sendable` names, where it is not that of the value."""

_TEXT_HEADS = [bytes((0xA1, size)) for size in range(256)]


def encoded_row(
    body: bytes, values: Mapping[str, object], message_id: str, properties: Mapping[str, object] | None
) -> bytes | None:
    """The message of a row, with the application ``properties`` as the SDK takes them; None to leave it to the SDK.

    Raises ValueError for text that is not Unicode and for a property that is not of its type.
    """
    if not 0 < len(message_id) <= MAX_KEY_LENGTH:
        return None
    fields = [NULL] * (SESSION + 1)
    fields[0], last = _text(message_id), 0
    for name, value in values.items():
        place = COLUMNS.get(name)
        if place is None:
            if name in ELSEWHERE:
                continue
            return None
        if type(value) is not str or not value or (place == SESSION and len(value) > MAX_KEY_LENGTH):
            return None
        if place == CONTENT_TYPE:
            if not value.isascii():
                return None
            fields[place] = encode(types.Symbol(value))
        else:
            fields[place] = _text(value)
        last = max(last, place)
    head = join_fields(Section.PROPERTIES, fields[: last + 1])
    if properties:
        entries = b"".join([_text(name) + _value(value) for name, value in properties.items()])
        head += map_section(Section.APPLICATION_PROPERTIES, entries, 2 * len(properties))
    return head + data_section(body)


def _text(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    return _TEXT_HEADS[size] + data if size < 256 else b"\xb1" + size.to_bytes(4, "big") + data


def _value(value: object) -> bytes:
    if type(value) is str:
        return _text(value)
    if isinstance(value, Mapping):
        made, inner = AMQP_TYPES.get(value["TYPE"]), value["VALUE"]
        return encode(inner if made is None else made(inner))
    return NULL
