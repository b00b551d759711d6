"""Fixtures of the syphon's tests: one broker with two namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.broker import Broker
from tests.pair.client.played import played
from tests.pair.syphon.pair import Pair, pair_of

__all__ = ["broker", "pair", "played"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


@pytest.fixture
def pair(broker: Broker) -> Pair:
    return pair_of(broker)
