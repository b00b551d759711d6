"""A fast parser for the common form of a message.

The broker needs few facts about a message: where the bare message begins, its message-id and group-id,
whether it is a ping, and whether two instants encode a long time to live. Nearly every message consists of an
optional header, optional annotations, properties with a short text as the id and ASCII texts, optional
application properties, and one data section. One pass over the section heads extracts these facts at a
fraction of the cost of decoding. The properties after the id are mostly equal from message to message, so
their parse is cached. Any other message, and any malformed one, is left to the decoder.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeAlias

Fields: TypeAlias = tuple[str | None, bytes, bool]
"""Group-id, content-type (or b""), and whether the properties contain a creation or expiry time."""
PlainMessage: TypeAlias = tuple[int, int, str, Fields]
"""End of the header, start of the bare message, message-id, and the fields after it."""

_HEAD = struct.Struct(">IB").unpack_from  # descriptor and form of a section, then its size: a byte, or four
_SIZE = struct.Struct(">I").unpack_from
_ID_HEAD = struct.Struct(
    ">IBBBB"
).unpack_from  # of the properties: size, count, form of the message-id, and its size
_HEADER, _ANNOTATIONS, _LONG_ANNOTATIONS = 0x005370C0, 0x005372C1, 0x005372D1
_PROPERTIES = 0x005373C0  # as a list with sizes of one byte
_APPLICATION_PROPERTIES, _LONG_APPLICATION_PROPERTIES = 0x005374C1, 0x005374D1
_LONG_DATA = 0x005375B0
_DATA = frozenset((0x005375A0, _LONG_DATA))

_NULL, _STRING, _SYMBOL, _TIMESTAMP = 0x40, 0xA1, 0xA3, 0x83
_TEXTS = frozenset((2, 3, 4, 5, 10, 12))  # to, subject, reply-to, correlation-id, both group-ids
_SYMBOLS = frozenset((6, 7))  # content-type, content-encoding
_INSTANTS = frozenset((8, 9))  # absolute-expiry-time, creation-time
_CONTENT_TYPE, _GROUP_ID = 6, 10
_FIELDS = 13
_MAX_ID_LENGTH = 128


def plain_message(payload: bytes) -> PlainMessage | None:
    """Return the parsed facts of a message in the common form; None for any other, which the decoder must read."""
    try:
        header_end = bare_at = 0
        word, size, count, code, length = _ID_HEAD(payload)
        if word != _PROPERTIES:
            header_end, bare_at = _before_properties(payload)
            word, size, count, code, length = _ID_HEAD(payload, bare_at)
        body_at, id_at = bare_at + 5 + size, bare_at + 8
        id_end = id_at + length
        if word != _PROPERTIES or code != _STRING or length > _MAX_ID_LENGTH or id_end > body_at:
            return None
        fields = _fields_behind_id(count, payload[id_end:body_at])
        word, size = _HEAD(payload, body_at)
        if word == _APPLICATION_PROPERTIES:
            body_at += 5 + size
            word, size = _HEAD(payload, body_at)
        elif word == _LONG_APPLICATION_PROPERTIES:
            body_at += 8 + _SIZE(payload, body_at + 4)[0]
            word, size = _HEAD(payload, body_at)
        end = body_at + (8 + _SIZE(payload, body_at + 4)[0] if word == _LONG_DATA else 5 + size)
        if fields is None or end != len(payload) or word not in _DATA:
            return None
        return header_end, bare_at, payload[id_at:id_end].decode("ascii"), fields
    except (struct.error, UnicodeDecodeError):
        return None  # truncated, for which the decoder reports the error, or an id that is not ASCII


def _before_properties(payload: bytes) -> tuple[int, int]:
    """Return the end of the header and that of the annotations; 0 without a header. Raises struct.error."""
    header_end = at = 0
    word, size = _HEAD(payload)
    if word == _HEADER:
        header_end = at = 5 + size
        word, size = _HEAD(payload, at)
    if word == _ANNOTATIONS:
        at += 5 + size
    elif word == _LONG_ANNOTATIONS:
        at += 8 + _SIZE(payload, at + 4)[0]
    return header_end, at


@lru_cache(maxsize=512)
def _fields_behind_id(count: int, fields: bytes) -> Fields | None:
    """Group-id, content-type, and whether the properties after the first contain an instant.

    None for properties outside the common form.
    """
    group_id, content_type, has_instant = None, b"", False
    at, end = 0, len(fields)
    if not 1 <= count <= _FIELDS:
        return None
    for field in range(1, count):
        if at >= end:
            return None
        code = fields[at]
        if code == _NULL:
            at += 1
        elif code == _TIMESTAMP and field in _INSTANTS:
            has_instant = True
            at += 9
        elif (code == _STRING and field in _TEXTS) or (code == _SYMBOL and field in _SYMBOLS):
            stop = at + 2 + fields[at + 1] if at + 1 < end else end + 1
            text = fields[at + 2 : stop]
            if not text.isascii():
                return None
            if field == _CONTENT_TYPE:
                content_type = text
            elif field == _GROUP_ID:
                group_id = text.decode()
            at = stop
        else:
            return None
    return (group_id, content_type, has_instant) if at == end else None
