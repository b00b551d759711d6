"""Offsets and checkpoints of the message source: their namespace, and the position a stream has committed.

    {"@namespace": "contoso.servicebus.windows.net", "orders": 41, "orders@until": 1795262400000}

Sequence numbers start at 1 in every namespace, so each offset records the namespace it belongs to: resuming a
checkpoint on another namespace would complete messages that were never read. Checkpoints are read without Spark:

    offsets/7   v1 / {metadata} / {"@namespace": ..., "orders": 41, ...}       batch 7 was planned
    commits/7                                                                  batch 7 is in the sink
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .ranges import UNTIL, before_lane, numbers

NAMESPACE = "@namespace"  # entity paths cannot contain "@"
TLS_PORT = ":5671"
Offset = dict[str, int | str]
REMEDY = "Nothing was completed. Start a new checkpoint: messages that are not completed yet are read again"
METADATA_LINES = 2  # the version and Spark's batch metadata; the offset of each source follows


class ForeignCheckpointError(ValueError):
    """The query cannot resume from this checkpoint; the message gives the reason and the remedy on one line."""


def origin_name(netloc: str) -> str:
    """The name of a namespace in an offset: its host in lower case, with the port unless that is 5671."""
    return netloc.split("://", 1)[-1].strip("/").lower().removesuffix(TLS_PORT)


def with_origin(positions: Mapping[str, int], origin: str) -> Offset:
    """The offset for ``positions`` in the namespace ``origin``.

    The namespace comes first in every offset, because Spark compares offsets as text.
    """
    return {NAMESPACE: origin, **positions}


def positions_in(offset: Mapping[str, int | str]) -> dict[str, int]:
    """The position of each lane, without the name of the namespace."""
    return {name: number for name, number in offset.items() if isinstance(number, int)}


def origin_in(offset: Mapping[str, int | str]) -> str | None:
    """The namespace of an offset; None for offsets of versions that did not store one."""
    named = offset.get(NAMESPACE)
    return None if named is None else str(named)


def check_origin(offset: Mapping[str, int | str], origin: str, *, settles: bool) -> None:
    """Check that a query on the namespace ``origin`` may resume from ``offset``.

    Raises ForeignCheckpointError for an offset of another namespace. With ``settles``, also for an offset without a
    namespace and for one of a query that ran without settlement, which may have started after unread messages.
    """
    named = origin_in(offset)
    if named is not None and named != origin:
        raise ForeignCheckpointError(
            f"sbpair: the checkpoint belongs to the namespace {named}, the connection to {origin}. {REMEDY}"
        )
    if not settles:
        return
    positions = positions_in(offset)
    advanced = [lane for lane, number in sorted(numbers(positions).items()) if number > before_lane(lane)]
    if named is None and advanced:
        raise ForeignCheckpointError(
            f"sbpair: the checkpoint does not record its namespace: an older sbpair wrote it. {REMEDY}"
        )
    for lane in advanced:
        if lane + UNTIL not in positions:
            raise ForeignCheckpointError(
                f"sbpair: the query of this checkpoint ran with settlement=none and completed nothing of "
                f"{lane}. {REMEDY}"
            )


class CheckpointError(ValueError):
    """A directory is not a checkpoint that can be settled; the message gives the reason on one line."""


def committed_offset(checkpoint: Path) -> Offset:
    """The end offset of the last committed batch.

    Raises CheckpointError when no batch is committed, the offset cannot be read, or the query does not have
    exactly one source of ``format("sbpair")``.
    """
    done = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdigit()]
    if not done:
        raise CheckpointError(f"{checkpoint} is not the checkpoint of a query that has committed a batch")
    file = checkpoint / "offsets" / str(max(done))
    try:
        sources = file.read_text("utf-8").splitlines()[METADATA_LINES:]
        offsets = [json.loads(each) for each in sources]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as the offsets of a batch: {error}") from error
    if len(offsets) != 1:
        raise CheckpointError(f"{checkpoint} belongs to a query with {len(offsets)} sources, not one")
    return _validate(checkpoint, offsets[0])


def _validate(checkpoint: Path, offset: object) -> Offset:
    if not isinstance(offset, dict) or not all(
        isinstance(value, str if name == NAMESPACE else int) for name, value in offset.items()
    ):
        raise CheckpointError(f'{checkpoint} does not belong to a query that reads format("sbpair")')
    return {str(name): value for name, value in offset.items()}
