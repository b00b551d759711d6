"""Traces of both clients, recorded in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.tracing import use_opentelemetry
from tests.pair.outage.conftest import _forgotten_by_urllib3, aio_pairing, either  # noqa: F401  (fixtures)

from .recorded import Recorded


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Tracing, enabled for one test."""
    recorded = Recorded()
    undo = use_opentelemetry()
    try:
        yield recorded
    finally:
        undo()
