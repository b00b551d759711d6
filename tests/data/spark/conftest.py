"""One Spark for all tests of this folder, and journals written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

LIMIT = 300  # seconds for one test, the start of a JVM that shares two cores with five other workers included
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}  # faster for a few rows than generating code
OWN = {
    "spark.driver.memory": "1g",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",  # a server for test_connect.py
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/data/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(LIMIT))
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from sbpair.data.spark.session import SHORT_JOB
    from sbpair.spark import build_session

    session = build_session("tests", master="local[2,2]", settings=SHORT_JOB | INTERPRETED | OWN)
    yield session
    session.stop()
