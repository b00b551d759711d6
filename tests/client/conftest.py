"""The broker and the pair of namespaces of the syphon's tests."""

from __future__ import annotations

from tests.client.played import played
from tests.syphon.conftest import broker, pair

__all__ = ["broker", "pair", "played"]
