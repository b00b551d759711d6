"""One Spark for all tests of this folder, and journals written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

PATIENCE = 300  # seconds
FAST = {
    "spark.driver.memory": "1g",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # what a few rows need is sooner interpreted than compiled
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM that shares two cores with five other workers takes its time."""
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from sbpair.spark import build_session
    from sbpair.spark.session import HASTY

    session = build_session("tests", master="local[2,2]", settings=HASTY | FAST)
    yield session
    session.stop()
