"""How do the bytes of a journal become columns?

Arrow reads the lines, with the types it is told. A piece with a line that is no record is read line by line
instead: the good ones come, and each bad one is a row that says only where it stands and, by the name of the
file, whose it is, so that an audit can call its writer unproven instead of stopping.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .journal_files import FileRange
from .schema import PLACE, UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEWLINE = 10
_FILE = re.compile(r"[a-z]+-(.+)-\d+\.jsonl$")
BLOCK = 4 * 1024 * 1024  # bytes that become one batch: bounds memory, and a record is far shorter


def batches(piece: FileRange, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. Raises FileNotFoundError when the file is gone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    whole = to_arrow_schema(schema, timezone="UTC")
    with piece.open() as file:
        file.seek(piece.start)
        at = piece.start
        while at < piece.end:
            block = file.read(min(BLOCK, piece.end - at))
            if at + len(block) < piece.end:
                block += file.readline()
            if not block:
                return
            yield from _rows(block, piece.name, at, whole)
            at += len(block)


def writer_of(name: str) -> str:
    """Whose journal a file is, by its name; "" for a name that no journal gives."""
    match = _FILE.match(name)
    return match[1] if match else ""


def _rows(block: bytes, name: str, at: int, whole: pa.Schema) -> Iterator[pa.RecordBatch]:
    own = pa.schema([field for field in whole if field.name not in dict(PLACE)])
    offsets = _line_starts(block, at)
    try:
        table = _parsed(block, own)
    except pa.ArrowInvalid:
        table = None
    if table is None or table.num_rows != len(offsets):
        table = _one_by_one(block, own)
    names = pa.repeat(name, table.num_rows)
    table = table.append_column("journal_file", names).append_column("journal_offset", offsets)
    if "writer" in own.names and table["writer"].null_count:
        table = table.set_column(
            own.get_field_index("writer"), "writer", pc.fill_null(table["writer"], writer_of(name))
        )
    yield from table.select(whole.names).cast(whole).combine_chunks().to_batches()


def _parsed(block: bytes, own: pa.Schema) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=own, unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=max(len(block), 1))
    return pj.read_json(pa.BufferReader(block), read_options=read, parse_options=options)


def _line_starts(block: bytes, at: int) -> pa.Array:
    """Where each line begins; the last one may have no end."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE) + 1
    starts = np.concatenate(([0], ends[:-1] if block.endswith(b"\n") else ends))
    return pa.array(starts + at, pa.int64())


def _one_by_one(block: bytes, own: pa.Schema) -> pa.Table:
    bad = json.dumps({"event": UNREADABLE}).encode()
    good: list[bytes] = []
    for line in block.removesuffix(b"\n").split(b"\n"):  # a carriage return ends none
        try:
            is_record = _parsed(line, own).num_rows == 1 and isinstance(json.loads(line), dict)
        except (pa.ArrowInvalid, ValueError):
            is_record = False
        good.append(line if is_record else bad)
    return _parsed(b"\n".join(good) + b"\n", own)
