"""What is the number of a message's row, and how is a row sealed?

A row ends in a checksum of what stands before it: a flipped bit is found out, wherever it is.
"""

from __future__ import annotations

from zlib import crc32

NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1

Row = tuple[object, ...]


class ChecksumDiffers(Exception):
    """A row is not what was written."""


def sealed(*values: object) -> Row:
    """A row of these values, with its checksum. Integers and not flags: it is to read back the same."""
    return (*values, crc32(repr(values).encode("utf-8", "surrogatepass")))


def unsealed(row: Row) -> Row:
    """The values of a row. Raises ChecksumDiffers."""
    values = row[:-1]
    if crc32(repr(values).encode("utf-8", "surrogatepass")) != row[-1]:
        raise ChecksumDiffers
    return values


def row_id(part: int, number: int) -> int:
    """The row id of a message of that sequence number."""
    return part << NUMBER_BITS | number & NUMBER_MASK
