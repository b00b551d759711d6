"""Random kills of Spark over both pipelines; spark_kills.py beside it runs as many seeds as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials.spark_kills import PIPELINES, try_seed


@pytest.mark.long
@pytest.mark.spec("G-1", "R-70")
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_random_kills_with_changing_cores_and_partitions_lose_nothing(pipeline: str, tmp_path: Path) -> None:
    """DuckDB and the SDK count."""
    told = try_seed(pipeline, 3, tmp_path)

    assert told.lost == 0
    assert told.unrecognised == 0, "copies tell by their ids that they are"
