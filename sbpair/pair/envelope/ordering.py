"""Placement of ordered sessions in the ordered backlog queues, and the stamp of their parked messages.

A session keeps its queue forever: both the queue and the parked session id are hashes of the entity's path and the
session id, the same in every process and release. Imports the standard library only.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from .names import path_key

_STAMP = re.compile(r"([0-9a-f]{1,32})/([0-9]{1,18})/([0-9]{1,18})")


class SessionPlace(NamedTuple):
    """The place of a parked session: the number of its ordered backlog queue, and its session id there."""

    queue: int
    parked_id: str


class OrderStamp(NamedTuple):
    """The position of a parked message among those of its client.

    ``client`` is a random hexadecimal name, ``epoch`` the time at which its count began, in milliseconds since 1970,
    and ``ordinal`` grows with every message that this client parks.
    """

    client: str
    epoch: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.client}/{self.epoch}/{self.ordinal}"


class Numbering:
    """Stamps for the messages that one client parks."""

    __slots__ = ("_client", "_epoch", "_ordinals")

    def __init__(self, client: str, epoch: int) -> None:
        self._client, self._epoch = client, epoch
        self._ordinals = count(1)

    def next(self) -> OrderStamp:
        """Return the next stamp, whose ordinal is larger than that of all before."""
        return OrderStamp(self._client, self._epoch, next(self._ordinals))


@lru_cache(maxsize=16_384)
def place_of(path: str, session: str, queues: int) -> SessionPlace:
    """Return the place of a session among ``queues`` ordered backlog queues.

    Its parked id always has 32 hexadecimal characters.
    """
    digest = blake2b(f"{path_key(path)}\0{session}".encode(), digest_size=16)
    return SessionPlace(int.from_bytes(digest.digest(), "big") % queues, digest.hexdigest())


def parse_stamp(text: object) -> OrderStamp | None:
    """Return the stamp in a message's ``x-sbpair-order``; None for anything that is not one."""
    found = _STAMP.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else OrderStamp(found[1], int(found[2]), int(found[3]))
