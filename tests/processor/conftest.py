"""The broker and the pair of namespaces of the processor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.broker import Broker
from tests.processor.pair import Pair, pair_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


@pytest.fixture
def pair(broker: Broker) -> Pair:
    return pair_of(broker)
