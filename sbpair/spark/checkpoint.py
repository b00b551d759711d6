"""Up to where has a stream been committed? Read from its checkpoint, without Spark.

offsets/7   v1 / {metadata} / {"orders": 41, "orders@until": ...}       batch 7 was planned
commits/7                                                                  and is in the sink
"""

from __future__ import annotations

import json
from pathlib import Path

from .ranges import UNTIL, before_lane, numbers

METADATA_LINES = 2  # the version, and what Spark notes of the batch; then an offset for each source


class CheckpointError(ValueError):
    """A directory is no checkpoint that can be settled from; the text says why, on one line."""


def committed(checkpoint: Path) -> dict[str, int]:
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


def _settleable(checkpoint: Path, offset: object) -> dict[str, int]:
    if not isinstance(offset, dict) or not all(isinstance(number, int) for number in offset.values()):
        raise CheckpointError(f'{checkpoint} is not of a query that reads format("sbpair")')
    read = {str(lane): int(number) for lane, number in offset.items()}
    for lane, number in numbers(read).items():
        if number > before_lane(lane) and lane + UNTIL not in read:
            raise CheckpointError(f"{checkpoint} is of a query that consumes nothing: settlement was none")
    return read
