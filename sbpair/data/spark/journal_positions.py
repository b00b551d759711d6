"""The positions of a stream over journals: up to which byte each file was read. Performs no I/O.

    {"sender-a-000001.jsonl": 4096, "@earlier": "kq3dBWJx1vSAIA…"}

An offset names the files in which its batch advances. All others are packed: a digest of each file's name and its
position take at most 16 characters instead of about 65. Spark writes the whole offset for every batch, and a journal
directory may hold tens of thousands of files that will never change.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

EARLIER = "@earlier"  # journal names end in .jsonl or .jsonl.gz
DIGEST_BYTES = 8  # of 20,000 names, two have the same digest with a probability of 1e-11
MAX_NAMES = 2**17

Offset = dict[str, int | str]


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions in an offset: by name, and of files of earlier batches by digest."""

    named: Mapping[str, int]
    earlier: Mapping[bytes, int]

    @classmethod
    def of(cls, offset: Mapping[str, int | str]) -> Positions:
        """Parse an offset. Raises ValueError for one of another source."""
        packed = offset.get(EARLIER, "")
        named = {name: at for name, at in offset.items() if isinstance(at, int)}
        if not isinstance(packed, str) or len(named) + (EARLIER in offset) != len(offset):
            raise ValueError(f"sbpair-journal: not an offset of this source: {str(dict(offset))[:80]}")
        return cls(named, _unpack(packed))

    def position_in(self, name: str) -> int | None:
        """The position in a file; None if nothing of it was read."""
        found = self.named.get(name)
        return self.earlier.get(_digest(name)) if found is None else found

    def advance(self, ends: Mapping[str, int]) -> Positions:
        """The positions after a batch that reads up to ``ends``."""
        earlier = dict(self.earlier)
        earlier.update((_digest(name), at) for name, at in self.named.items())
        for name in ends:
            earlier.pop(_digest(name), None)
        return Positions(dict(ends), earlier)

    def offset(self) -> Offset:
        """Return the offset; the same positions always give the same offset."""
        packed = {EARLIER: _pack(self.earlier)} if self.earlier else {}
        return {**dict(sorted(self.named.items())), **packed}


@lru_cache(MAX_NAMES)
def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).digest()


def _pack(positions: Mapping[bytes, int]) -> str:
    """Return the digests, each followed by its position in groups of seven bits, the lowest first."""
    out = bytearray()
    for digest, at in sorted(positions.items()):
        out += digest
        while at > 0x7F:
            out.append(at & 0x7F | 0x80)
            at >>= 7
        out.append(at)
    return base64.b64encode(out).decode()


def _unpack(text: str) -> dict[bytes, int]:
    """Unpack an offset. Raises ValueError if ``text`` is damaged."""
    found: dict[bytes, int] = {}
    try:
        data = base64.b64decode(text, validate=True)
        place, end = 0, len(data)
        while place < end:
            digest, place = data[place : place + DIGEST_BYTES], place + DIGEST_BYTES
            at = shift = 0
            while (byte := data[place]) > 0x7F:
                at, shift, place = at | (byte & 0x7F) << shift, shift + 7, place + 1
            found[digest], place = at | byte << shift, place + 1
    except (binascii.Error, IndexError):
        raise ValueError("sbpair-journal: the packed positions of the checkpoint are damaged") from None
    return found
