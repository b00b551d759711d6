"""Are these properties of the plain kind, which needs no decoding?

Of the properties (3.2.4) the broker asks a few things: which message-id and which group-id are there, is it a
ping, and do two instants carry a long time to live. Nearly every message has a short text as its id, no
instants, and texts of plain ASCII; one walk over the field heads sees that, at a tenth of the price of
decoding. Whatever is not plain, or not well formed, is left to the decoder.
"""

from __future__ import annotations

from typing import NamedTuple

_HEAD = b"\x00\x53\x73\xc0"  # the section, as a list with sizes of one byte
_NULL, _STRING, _SYMBOL = 0x40, 0xA1, 0xA3
_TEXTS = frozenset(
    (0, 2, 3, 4, 5, 10, 12)
)  # message-id, to, subject, reply-to, correlation-id, group-id, reply-to-
_SYMBOLS = frozenset((6, 7))  # content-type, content-encoding
_FIELDS = 13
_LONGEST_ID = 128


class PlainProperties(NamedTuple):
    """What the broker asks of properties; ``content_type`` b"" for none."""

    message_id: str
    group_id: str | None
    content_type: bytes


def plain_properties(section: bytes) -> PlainProperties | None:
    """What properties say that are plain and have a short message-id; else None."""
    if len(section) < 8 or not section.startswith(_HEAD) or len(section) != section[4] + 5:
        return None
    if section[5] > _FIELDS or section[6] != _STRING or section[7] > _LONGEST_ID:
        return None
    content_type, group_id = b"", None
    position, end = 8 + section[7], len(section)
    message_id = section[8:position]
    if not message_id.isascii() or position > end:
        return None
    for field in range(1, section[5]):
        if position >= end:
            return None
        code = section[position]
        if code == _NULL:
            position += 1
            continue
        if (code != _STRING or field not in _TEXTS) and (code != _SYMBOL or field not in _SYMBOLS):
            return None
        text = section[position + 2 : position + 2 + section[position + 1]] if position + 1 < end else b"\xff"
        if not text.isascii():
            return None
        if field == 6:
            content_type = text
        elif field == 10:
            group_id = text.decode("ascii")
        position += 2 + section[position + 1]
    if position != end:
        return None
    return PlainProperties(message_id.decode("ascii"), group_id, content_type)
