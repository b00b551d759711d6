"""Fixtures shared with the syphon's tests: a broker with two namespaces."""

from __future__ import annotations

from tests.pair.client.played import played
from tests.pair.syphon.conftest import broker, pair

__all__ = ["broker", "pair", "played"]
