"""The trial of :mod:`tests.trials.fleet`, cut short."""

from __future__ import annotations

import pytest

from tests.trials.fleet import trial


@pytest.mark.spec("B-19", "G-1")
def test_a_fleet_of_senders_loses_nothing_in_an_outage() -> None:
    report = trial(processes=5, outage=10.0, rate=2.0, after=10.0)
    assert (report["lost"], report["unexplained"]) == (0, 0), report
    assert int(str(report["sent"])) > 100
