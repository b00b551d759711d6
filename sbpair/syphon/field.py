"""Edit one field of a described list (a message's properties section) and leave the others bit for bit.

A described list is a descriptor, a list constructor, a size, a count and the fields (1.4, 1.6.23); a field
that is not there counts as null. Nothing is decoded but the lengths.
"""

from __future__ import annotations

from sbpair.amqp.types import DecodeError, skip

NULL = b"\x40"
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
_WIDTH = {_LIST8: 1, _LIST32: 4}


def split_fields(section: bytes) -> list[bytes]:
    """The raw fields of a described list. Raises DecodeError when it is not one."""
    offset = skip(section, 1, len(section))  # the descriptor, after its 0x00
    constructor = section[offset]
    if constructor == _LIST0:
        return []
    width = _WIDTH.get(constructor)
    if width is None:
        raise DecodeError(f"a section that should be a list has constructor 0x{constructor:02x}")
    count_at = offset + 1 + width
    offset = count_at + width
    fields = []
    for _ in range(int.from_bytes(section[count_at:offset], "big")):
        end = skip(section, offset, len(section))
        fields.append(section[offset:end])
        offset = end
    return fields


def join_fields(descriptor: int, fields: list[bytes]) -> bytes:
    """The section again, trailing nulls left out; ``descriptor`` is the section's code, 0x70 to 0x78."""
    while fields and fields[-1] == NULL:
        fields.pop()
    if not fields:
        return bytes((0x00, 0x53, descriptor, _LIST0))
    body = b"".join(fields)
    if len(body) < 255 and len(fields) < 256:
        return bytes((0x00, 0x53, descriptor, _LIST8, len(body) + 1, len(fields))) + body
    head = bytes((0x00, 0x53, descriptor, _LIST32))
    return head + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def with_fields(section: bytes, descriptor: int, changes: dict[int, bytes]) -> bytes:
    """``section`` with the fields at the given positions replaced by raw values; b"" when all are null."""
    fields = split_fields(section) if section else []
    fields.extend([NULL] * (max(changes) + 1 - len(fields)))
    for position, raw in changes.items():
        fields[position] = raw
    return join_fields(descriptor, fields) if any(field != NULL for field in fields) else b""
