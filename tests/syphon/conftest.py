"""The fixtures of the syphon's tests: one broker, two namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.broker import Broker
from tests.syphon.pair import BACKLOGS, Pair


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


@pytest.fixture
def pair(broker: Broker) -> Pair:
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    for path in ("orders", "invoices"):
        pair.primary.create_queue(path)
    for index in range(BACKLOGS):
        pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1)
    return pair
