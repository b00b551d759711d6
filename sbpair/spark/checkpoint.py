"""Offsets and checkpoints of the source: which namespace they belong to, and how far a stream is committed.

    {"@namespace": "contoso.servicebus.windows.net", "orders": 41, "orders@until": 1795262400000}

Every namespace counts from 1, so an offset names its own: a checkpoint continued on another namespace would
complete messages that were never read. A checkpoint is read without Spark:

    offsets/7   v1 / {metadata} / {"@namespace": ..., "orders": 41, ...}       batch 7 was planned
    commits/7                                                                  and is in the sink
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .ranges import UNTIL, before_lane, numbers

NAMESPACE = "@namespace"  # no path has the sign in it
TLS_PORT = ":5671"
Offset = dict[str, int | str]
REMEDY = "Nothing was completed. Begin a new checkpoint: what is not completed yet is read again"
METADATA_LINES = 2  # the version, and what Spark notes of the batch; then an offset for each source


class ForeignCheckpoint(ValueError):
    """A checkpoint cannot be continued here; the text says why, and what to do, on one line."""


def known_as(netloc: str) -> str:
    """What a namespace is known by: its host, and its port where it is not the usual one."""
    return netloc.split("://", 1)[-1].strip("/").lower().removesuffix(TLS_PORT)


def of_namespace(read: Mapping[str, int], origin: str) -> Offset:
    """The offset to keep for what was read there. Always in the same order: Spark compares the text."""
    return {NAMESPACE: origin, **read}


def read_in(offset: Mapping[str, int | str]) -> dict[str, int]:
    """An offset without the name of its namespace: how far each lane was read."""
    return {name: number for name, number in offset.items() if isinstance(number, int)}


def origin_in(offset: Mapping[str, int | str]) -> str | None:
    """The namespace that an offset is of; None for one written before offsets said so."""
    named = offset.get(NAMESPACE)
    return None if named is None else str(named)


def check_origin(offset: Mapping[str, int | str], origin: str, *, settles: bool) -> None:
    """Whether a query on the namespace ``origin`` may go on from ``offset``.

    Raises ForeignCheckpoint for an offset of another namespace. Where it ``settles``, also for one that names
    none, or that comes of a query which consumed nothing: such a one may have begun behind unread messages.
    """
    named = origin_in(offset)
    if named is not None and named != origin:
        raise ForeignCheckpoint(
            f"sbpair: the checkpoint is of the namespace {named}, and the connection of {origin}. {REMEDY}"
        )
    if not settles:
        return
    read = read_in(offset)
    passed = [lane for lane, number in sorted(numbers(read).items()) if number > before_lane(lane)]
    if named is None and passed:
        raise ForeignCheckpoint(
            "sbpair: the checkpoint does not say which namespace it is of: it was written before 0.2. "
            f"{REMEDY}"
        )
    for lane in passed:
        if lane + UNTIL not in read:
            raise ForeignCheckpoint(
                f"sbpair: the checkpoint is of a query that consumed nothing of {lane}: settlement was none. "
                f"{REMEDY}"
            )


class CheckpointError(ValueError):
    """A directory is no checkpoint that can be settled from; the text says why, on one line."""


def committed(checkpoint: Path) -> Offset:
    """The offset behind the last batch that is in the sink. Raises CheckpointError."""
    done = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdigit()]
    if not done:
        raise CheckpointError(f"{checkpoint} is not the checkpoint of a query that has finished a batch")
    file = checkpoint / "offsets" / str(max(done))
    try:
        sources = file.read_text("utf-8").splitlines()[METADATA_LINES:]
        offsets = [json.loads(each) for each in sources]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as the offsets of a batch: {error}") from error
    if len(offsets) != 1:
        raise CheckpointError(f"{checkpoint} is of a query with {len(offsets)} sources; one is needed")
    return _settleable(checkpoint, offsets[0])


def _settleable(checkpoint: Path, offset: object) -> Offset:
    if not isinstance(offset, dict) or not all(
        isinstance(value, str if name == NAMESPACE else int) for name, value in offset.items()
    ):
        raise CheckpointError(f'{checkpoint} is not of a query that reads format("sbpair")')
    return {str(name): value for name, value in offset.items()}
