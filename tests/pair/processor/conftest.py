"""Fixtures of the processor's tests: a broker with a pair of namespaces."""

from __future__ import annotations

import pytest

from sbpair.broker import Broker
from tests.pair.processor.pair import Pair, pair_of
from tests.pair.syphon.conftest import broker

__all__ = ["broker", "pair"]


@pytest.fixture
def pair(broker: Broker) -> Pair:
    return pair_of(broker)
