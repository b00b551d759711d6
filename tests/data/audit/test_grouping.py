"""Rows are grouped by several columns, and ordinals joined to runs, as plain Python does it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.audit.judge.grouping import codes, combine
from sbpair.data.audit.read.writers import merge_runs, runs

TEXTS = st.none() | st.sampled_from(["", "a", "b"])


@given(st.lists(st.tuples(TEXTS, st.none(), st.none() | st.booleans(), st.just("same"))))
def test_rows_have_equal_numbers_exactly_if_all_their_values_are_equal(
    rows: list[tuple[str | None, None, bool | None, str]],
) -> None:
    types = (pa.string(), pa.string(), pa.bool_(), pa.string())
    columns = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    numbers = combine([codes(column) for column in columns]).tolist()
    assert len(set(zip(rows, numbers, strict=True))) == len(set(rows)) == len(set(numbers))


@given(st.lists(st.integers(0, 20)))
def test_runs_contain_each_ordinal_once_with_gaps_between_them(ordinals: list[int]) -> None:
    found = runs(np.array(ordinals, np.int64))
    assert [each for first, last in found for each in range(first, last + 1)] == sorted(set(ordinals))
    assert merge_runs(found) == found
