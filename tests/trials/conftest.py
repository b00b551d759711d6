"""Trials: whole programs, killed processes, Spark runs, hours of virtual time.

`pytest -m trial` runs each in short; `python -m tests.trials.NAME` runs one at full length.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbpair.broker import Broker

HERE = Path(__file__).parent
PATIENCE = 300  # seconds: a JVM that shares two cores with other trials takes its time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    is_trial = {path: HERE in path.parents for path in {item.path for item in items}}
    for item in items:
        if is_trial[item.path]:
            item.add_marker(pytest.mark.trial)
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Two namespaces, the primary with a queue "orders"."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running
