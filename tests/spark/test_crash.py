"""Spark and its JVM killed in the middle, and started again; tests/spark/crash.py is the whole matrix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.crash import try_point


@pytest.mark.spark_crash
@pytest.mark.spec("G-1")
def test_a_job_that_is_killed_while_it_settles_loses_nothing_and_leaves_nothing(
    spark, tmp_path: Path
) -> None:
    told = try_point("mid-settle", tmp_path, spark)

    assert told.was_killed
    assert (told.lost, told.left, told.twice) == (0, 0, 0)
