"""Spark and its JVM killed in the middle, and started again; spark_crash.py beside it is the whole matrix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials.spark_crash import try_point


@pytest.mark.long
@pytest.mark.spec("G-1")
def test_a_job_killed_while_it_settles_loses_and_leaves_nothing(tmp_path: Path) -> None:
    told = try_point("mid-settle", tmp_path)

    assert told.was_killed
    assert (told.lost, told.left, told.twice) == (0, 0, 0)


@pytest.mark.long
@pytest.mark.spec("R-70")
def test_a_half_sent_batch_rerun_in_other_partitions_loses_nothing(tmp_path: Path) -> None:
    """The entity drops duplicates: an id that another row had in the first run would lose this one."""
    told = try_point("mid-sink", tmp_path)

    assert told.was_killed
    assert (told.lost, told.left) == (0, 0)
    assert told.twice == 20, "the rows that had been sent: fresh ids, so both copies are there"
