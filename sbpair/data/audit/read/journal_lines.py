"""The lines of a journal as Arrow columns.

Arrow parses blocks of lines with the given types. A block that contains an invalid line is parsed line by line: each
invalid line becomes a row of event ``unreadable_line`` with its position and, from the file name, its writer, so that
an audit reports the writer's journal as incomplete instead of failing. Corrupt compressed data and lines longer than a
block are treated the same way.

Arrow spends as much time on an absent column as on a present one, and an event has few of the columns. So a block is
parsed with the columns that its first and last records have, and again with all columns if it contains others.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ..columns import LINE_CHECKSUM, POSITION, TYPES, UNREAD, UNREADABLE, arrow_schema
from .journal_files import FileRange
from .journal_listing import Unread, is_gzipped

NEWLINE = 10
_FILE = re.compile(r"(?:.*/)?[a-z]+-(.+)-\d+\.jsonl(?:\.gz)?$")
INVALID_RECORD = json.dumps({"event": UNREADABLE}).encode()
INVALID_LINE = b"\n"  # parsed as one unreadable line
BLOCK = 4 * 1024 * 1024  # bytes per batch: bounds memory, and is far longer than a record
SAMPLE = 4096  # bytes at each end of a block whose records show its columns
_WITHOUT_END = itemgetter(slice(-1))
MAX_MISSES = 3  # blocks with a column that did not show; from then on all columns are looked for


def batches(piece: FileRange, whole: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range, with the columns of ``whole``. Raises FileNotFoundError when the file is gone."""
    columns = _Columns(whole)
    with piece.open() as file:
        at, end = piece.start, None if is_gzipped(piece.name) else piece.end
        try:
            file.seek(piece.start)
            while end is None or at < end:
                block, size = _block(file, BLOCK if end is None else min(BLOCK, end - at))
                if block:
                    yield from _rows(block, piece.name, at, columns)
                at += size
                if not block:
                    break
            if end is None and not at:
                yield from _rows(INVALID_LINE, piece.name, at, columns)  # a compressed file without content
        except (EOFError, gzip.BadGzipFile, zlib.error):
            yield from _rows(INVALID_LINE, piece.name, at, columns)


def unread_rows(files: Sequence[Unread], whole: pa.Schema) -> pa.RecordBatch:
    """One row of event ``unread_file`` for each file, with its name and the reason."""
    names = [each.name for each in files]
    known = {
        "event": [UNREAD] * len(files),
        "writer": names,
        "reason": [each.reason for each in files],
        "journal_file": names,
        "journal_offset": [0] * len(files),
    }
    arrays = [pa.array(known.get(field.name, [None] * len(files)), field.type) for field in whole]
    return pa.RecordBatch.from_arrays(arrays, schema=whole)


def _block(file: BinaryIO, most: int) -> tuple[bytes, int]:
    """The next complete lines, and the number of bytes consumed; ``b""`` at the end of the file.

    An incomplete last line is dropped. A line longer than a block is replaced by an empty one.
    """
    block = file.read(most)
    size = len(block)
    if not block or block.endswith(b"\n"):
        return block, size
    tail = file.readline(BLOCK)
    size += len(tail)
    if tail.endswith(b"\n"):
        return block + tail, size
    while tail and not tail.endswith(b"\n"):
        tail = file.readline(BLOCK)
        size += len(tail)
    head = block[: block.rfind(b"\n") + 1]
    return (head + b"\n" if tail else head), size


def writer_of(name: str) -> str:
    """The writer's id in the name of a journal file; "" for any other name."""
    match = _FILE.match(name)
    return match[1] if match else ""


class _Columns:
    """The columns of the records in one range; ``whole`` includes the position of a record, ``own`` only its fields."""

    def __init__(self, whole: pa.Schema) -> None:
        self.whole = whole
        beside = {*dict(POSITION), LINE_CHECKSUM}
        self.own = pa.schema([field for field in whole if field.name not in beside])
        self._seen: set[str] = set()
        self._misses = 0

    def parse(self, block: bytes) -> pa.Table:
        """The records of ``block`` with the columns ``own``. Raises ArrowInvalid when one is malformed."""
        if self._misses < MAX_MISSES:
            self._seen |= _fields(block)
            if self._seen <= TYPES.keys():
                try:
                    return self._with_all_columns(
                        _parse(block, arrow_schema(sorted(self._seen)), others="error")
                    )
                except pa.ArrowInvalid:
                    self._misses += 1
        table = _parse(block, self.own)
        self._seen.update(name for name in table.column_names if table[name].null_count < table.num_rows)
        return table

    def _with_all_columns(self, table: pa.Table) -> pa.Table:
        there, count = set(table.column_names), table.num_rows
        columns = [
            table[field.name].cast(field.type) if field.name in there else pa.nulls(count, field.type)
            for field in self.own
        ]
        return pa.table(columns, schema=self.own)


def _fields(block: bytes) -> set[str]:
    """Return the fields of the first and last records; a malformed record has none."""
    found: set[str] = set()
    for line in (block[:SAMPLE] + b"\n" + block[-SAMPLE:]).split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            found.update(record)
    return found


def _rows(block: bytes, name: str, at: int, columns: _Columns) -> Iterator[pa.RecordBatch]:
    own, whole = columns.own, columns.whole
    if not at and block.startswith(codecs.BOM_UTF8):
        block, at = block[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
    sums = _checksums(block) if LINE_CHECKSUM in whole.names else None
    try:
        block.isascii() or block.decode()
        table = columns.parse(block)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        table = None
    if table is None or table.num_rows != (_count(block) if sums is None else len(sums)):
        table = _one_by_one(block, own)
    if sums is not None:
        table = table.append_column(LINE_CHECKSUM, sums)
    if "journal_file" in whole.names:
        names = pa.repeat(name, table.num_rows)
        table = table.append_column("journal_file", names)
        table = table.append_column("journal_offset", _line_starts(block, at))
    if "writer" in own.names and table["writer"].null_count:
        table = table.set_column(
            own.get_field_index("writer"), "writer", pc.fill_null(table["writer"], writer_of(name))
        )
    yield from table.select(whole.names).cast(whole).combine_chunks().to_batches()


def _parse(block: bytes, own: pa.Schema, *, others: str = "ignore") -> pa.Table:
    options = pj.ParseOptions(explicit_schema=own, unexpected_field_behavior=others)
    read = pj.ReadOptions(use_threads=False, block_size=max(len(block), 1))
    return pj.read_json(pa.BufferReader(block), read_options=read, parse_options=options)


def _count(block: bytes) -> int:
    """The number of lines in ``block``."""
    ends = int(np.count_nonzero(np.frombuffer(block, np.uint8) == NEWLINE))
    return ends if block.endswith(b"\n") else ends + 1


def _checksums(block: bytes) -> pa.Array:
    """Return the CRC-32 of each line of ``block``, without the characters that a transfer as text adds to its end."""
    whole = block if block.endswith(b"\n") else block + b"\n"
    lines: Iterator[bytes] = map(_WITHOUT_END, io.BytesIO(whole))  # far faster than split()
    if b"\r" in block:  # which JSON escapes
        lines = (line.removesuffix(b"\r") for line in lines)
    return pa.array(np.fromiter(map(zlib.crc32, lines), np.int64))


def _line_starts(block: bytes, at: int) -> pa.Array:
    """The file offset of each line of ``block``, which begins at ``at``."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE) + 1
    starts = np.concatenate(([0], ends[:-1] if block.endswith(b"\n") else ends))
    return pa.array(starts + at, pa.int64())


def _one_by_one(block: bytes, own: pa.Schema) -> pa.Table:
    good: list[bytes] = []
    for line in block.removesuffix(b"\n").split(b"\n"):  # splitlines() would also split at carriage returns
        try:
            is_record = _parse(line, own).num_rows == 1 and isinstance(json.loads(line.decode()), dict)
        except (pa.ArrowInvalid, ValueError, RecursionError):
            is_record = False
        good.append(line if is_record else INVALID_RECORD)
    return _parse(b"\n".join(good) + b"\n", own)
