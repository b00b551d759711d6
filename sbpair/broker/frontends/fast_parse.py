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

PlainMessage: TypeAlias = tuple[int, int, str, str | None, bytes, bool]
"""End of the header, start of the bare message, message-id, group-id, content-type (or b""), and whether the
properties contain a creation or expiry time."""

_HEAD = struct.Struct(">IB").unpack_from  # descriptor and form of a section, then its size: a byte, or four
_SIZE = struct.Struct(">I").unpack_from
_HEADER, _ANNOTATIONS, _LONG_ANNOTATIONS = 0x005370C0, 0x005372C1, 0x005372D1
_PROPERTIES = 0x005373C0  # as a list with sizes of one byte
_APPLICATION_PROPERTIES, _LONG_APPLICATION_PROPERTIES = 0x005374C1, 0x005374D1
_DATA, _LONG_DATA = 0x005375A0, 0x005375B0

_NULL, _STRING, _SYMBOL, _TIMESTAMP = 0x40, 0xA1, 0xA3, 0x83
_TEXTS = frozenset((2, 3, 4, 5, 10, 12))  # to, subject, reply-to, correlation-id, both group-ids
_SYMBOLS = frozenset((6, 7))  # content-type, content-encoding
_INSTANTS = frozenset((8, 9))  # absolute-expiry-time, creation-time
_CONTENT_TYPE, _GROUP_ID = 6, 10
_FIELDS = 13
_MAX_ID_LENGTH = 128
_Fields: TypeAlias = tuple[str | None, bytes, bool]


def plain_message(payload: bytes) -> PlainMessage | None:
    """Return the parsed facts of a message in the common form; None for any other, which the decoder must read."""
    try:
        word, size = _HEAD(payload)
        header_end = bare_at = 0
        if word == _HEADER:
            header_end = bare_at = 5 + size
            word, size = _HEAD(payload, bare_at)
        if word in (_ANNOTATIONS, _LONG_ANNOTATIONS):
            bare_at += 5 + size if word == _ANNOTATIONS else 8 + _SIZE(payload, bare_at + 4)[0]
            word, size = _HEAD(payload, bare_at)
        if word != _PROPERTIES:
            return None
        fields_end = body_at = bare_at + 5 + size
        length = payload[bare_at + 7]
        id_end = bare_at + 8 + length
        if payload[bare_at + 6] != _STRING or length > _MAX_ID_LENGTH or id_end > fields_end:
            return None
        word, size = _HEAD(payload, body_at)
        if word in (_APPLICATION_PROPERTIES, _LONG_APPLICATION_PROPERTIES):
            body_at += 5 + size if word == _APPLICATION_PROPERTIES else 8 + _SIZE(payload, body_at + 4)[0]
            word, size = _HEAD(payload, body_at)
        if word == _LONG_DATA:
            end = body_at + 8 + _SIZE(payload, body_at + 4)[0]
        elif word == _DATA:
            end = body_at + 5 + size
        else:
            return None
    except (struct.error, IndexError):
        return None  # truncated: the decoder reports the error
    message_id = payload[bare_at + 8 : id_end]
    if end != len(payload) or not message_id.isascii():
        return None
    fields = _fields_behind_id(payload[bare_at + 5], payload[id_end:fields_end])
    return None if fields is None else (header_end, bare_at, message_id.decode(), *fields)


@lru_cache(maxsize=512)
def _fields_behind_id(count: int, fields: bytes) -> _Fields | None:
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
