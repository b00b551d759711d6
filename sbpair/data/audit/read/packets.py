"""Mentions as Arrow IPC bytes, grouped by message id for folding."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple

import numpy as np
import pyarrow as pa

from ..judge.grouping import NULL, hashes, integers, nullable
from .mentions import MentionContext, Mentions

NUMBERS = ("context", "at", "sent_in", "number", "enqueued", "checksum")
OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def join(several: Sequence[Mentions]) -> Mentions:
    """The concatenation of ``several``, which must not be empty, with each context once."""
    index: dict[MentionContext, int] = {}
    codes = []
    for each in several:
        new = np.array([index.setdefault(context, len(index)) for context in each.contexts] or [0], np.int64)
        codes.append(new[each.context])
    sessions = None
    if any(each.session is not None for each in several):
        sessions = pa.concat_arrays(
            [
                pa.nulls(len(each.context), pa.string()) if each.session is None else each.session
                for each in several
            ]
        )
    return Mentions(
        list(index),
        np.concatenate(codes),
        np.concatenate([each.at for each in several]),
        np.concatenate([each.sent_in for each in several]),
        np.concatenate([each.number for each in several]),
        np.concatenate([each.enqueued for each in several]),
        np.concatenate([each.checksum for each in several]),
        pa.concat_arrays([each.message for each in several]),
        sessions,
    )


def scatter(mentions: Mentions, parts: int) -> Iterator[tuple[int, bytes]]:
    """The mentions by part, 0 to ``parts`` - 1: those of one message id have the same part."""
    rows = _rows(mentions)
    part = (hashes(mentions.message) % np.uint64(parts)).astype(np.uint16)  # sorted by radix
    order = np.argsort(part, kind="stable")
    rows = rows.take(pa.array(order))
    ends = np.cumsum(np.bincount(part, minlength=parts))
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            yield number, _bytes(rows.slice(start, end - start))


def gather(packets: Iterator[bytes]) -> Mentions | None:
    """The mentions of a part; None if there are none."""
    several = [_read(packet) for packet in packets]
    return join(several) if several else None


def _rows(mentions: Mentions) -> pa.RecordBatch:
    numbers = [getattr(mentions, name) for name in NUMBERS]
    known = [nullable(each) if (each != NULL).any() else pa.nulls(len(each)) for each in numbers]
    session = mentions.session if mentions.session is not None else pa.nulls(len(mentions.context))
    rows = pa.record_batch([*known, mentions.message, session], names=[*NUMBERS, "message", "session"])
    contexts = json.dumps([astuple(context) for context in mentions.contexts])
    return rows.replace_schema_metadata({"contexts": contexts})


def _bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=OPTIONS) as writer:
        writer.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _read(packet: bytes) -> Mentions:
    with pa.ipc.open_stream(packet) as reader:
        rows = reader.read_all().combine_chunks().to_batches()[0]
    contexts = [MentionContext(*values) for values in json.loads(rows.schema.metadata[b"contexts"])]
    session = None if pa.types.is_null(rows.column("session").type) else rows.column("session")
    numbers = {name: integers(rows.column(name)) for name in NUMBERS}
    return Mentions(contexts, message=rows.column("message"), session=session, **numbers)
