"""Grouping of rows by several columns: each column is encoded as small numbers, which are combined into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MAX_COMBINED = 2**62  # a combined number beyond this would overflow
NULL = np.iinfo(np.int64).min
"""The null of a column of integers in numpy: no time, number or ordinal is as low."""


def codes(column: pa.Array) -> tuple[Ints, int]:
    """Return a number from 0 for each value of ``column``, null included, and an upper bound of these numbers."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), 1
    encoded = column.dictionary_encode()
    size = len(encoded.dictionary)
    indices = encoded.indices.fill_null(size) if column.null_count else encoded.indices
    return np.asarray(indices, np.int64), size + 1


def combine(parts: Sequence[tuple[Ints, int]]) -> Ints:
    """Return one number for each row, equal where all ``parts`` are; a part is a column and its number of values."""
    whole, size = parts[0]
    for part, values in parts[1:]:
        if values == 1:
            continue
        if size * values > MAX_COMBINED:
            kinds, whole = np.unique(whole, return_inverse=True)
            size = len(kinds)
        whole, size = whole * values + part, size * values
    return whole


def integers(column: pa.Array) -> Ints:
    """``column`` of integers or times, with NULL for null."""
    column = column.cast(pa.int64())
    return np.asarray(column.fill_null(NULL) if column.null_count else column, np.int64)


def nullable(values: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """The reverse of :func:`integers`."""
    found = pa.array(values, pa.int64(), mask=values == NULL)
    return found if kind is None else found.cast(kind)


def group_min(groups: Ints, values: Ints, size: int) -> Ints:
    """The minimum of ``values`` that are not NULL in each of ``size`` groups; NULL for none."""
    known = values != NULL
    found = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(found, groups[known], values[known])
    found[found == np.iinfo(np.int64).max] = NULL
    return found


def group_max(groups: Ints, values: Ints, size: int) -> Ints:
    """The maximum of ``values`` in each of ``size`` groups; NULL for none."""
    found = np.full(size, NULL)
    np.maximum.at(found, groups, values)
    return found


def count(groups: Ints, size: int) -> Ints:
    """The number of rows in each of ``size`` groups."""
    return np.bincount(groups, minlength=size).astype(np.int64)


def total(groups: Ints, values: Ints, size: int) -> Ints:
    """The sum of ``values`` that are not NULL in each of ``size`` groups."""
    found = np.zeros(size, np.int64)
    known = values != NULL
    np.add.at(found, groups[known], values[known])
    return found


def ranks(texts: Sequence[str | None]) -> tuple[Ints, list[str]]:
    """The rank of each text among ``texts``, NULL for None; and the distinct texts in order."""
    ordered = sorted({text for text in texts if text is not None})
    rank = {text: index for index, text in enumerate(ordered)}
    return np.array([NULL if text is None else rank[text] for text in texts], np.int64), ordered


def hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a hash of each text, the same in every process. ``texts`` is of type string without nulls."""
    starts = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts = starts.astype(np.int64)
    data = texts.buffers()[2]
    padded = bytes(data or b"") + bytes(8)
    words: npt.NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    lengths = starts[1:] - starts[:-1]
    found = lengths.astype(np.uint64)
    rows = np.arange(len(texts))
    for begin in range(0, int(lengths.max(initial=0)), 8):
        rows = rows[lengths[rows] > begin]
        left = np.minimum(lengths[rows] - begin, 8).astype(np.uint64)
        word = words[starts[:-1][rows] + begin] & (
            np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(8) - left) * np.uint64(8))
        )
        mixed = (found[rows] ^ word) * np.uint64(0x9E3779B97F4A7C15)
        found[rows] = mixed ^ (mixed >> np.uint64(29))
    return found


def take(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """The values of ``column`` at ``rows``."""
    return pc.take(column, pa.array(rows))
