"""The trial of :mod:`tests.trials.consumers`, cut short."""

from __future__ import annotations

import pytest

from tests.trials.consumers import trial


@pytest.mark.spec("C-1", "C-4", "C-10", "C-17", "G-1", "G-3", "G-4")
def test_consumers_lose_nothing_though_syphon_and_processor_are_killed_in_an_outage() -> None:
    report = trial(outage=10, rate=30, kills=1, seed=3)
    assert report.ledger.is_conserved, report.as_json()
    assert report.ledger.is_bounded, report.as_json()
    assert report.parked > 0  # else it proves nothing
    assert report.handled_from.get("secondary", 0) > 0, report.as_json()
