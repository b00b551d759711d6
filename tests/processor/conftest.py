"""The fixtures of the processor's tests: the broker of the syphon's, and a pair of namespaces in it."""

from __future__ import annotations

import pytest

from sbpair.broker import Broker
from tests.processor.pair import Pair, pair_of
from tests.syphon.conftest import broker

__all__ = ["broker", "pair"]


@pytest.fixture
def pair(broker: Broker) -> Pair:
    return pair_of(broker)
