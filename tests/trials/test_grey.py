"""What callers get while the primary is only half down, with default options in virtual time."""

from __future__ import annotations

import pytest

from tests.trials.grey.__main__ import measure


@pytest.mark.trial
@pytest.mark.spec("H-1", "H-6", "H-7")
@pytest.mark.parametrize("name", ["50% rejected", "80% rejected", "95% rejected", "up 10 s, down 60 s"])
def test_with_redirect_a_primary_that_mostly_fails_costs_no_caller_an_error(name: str) -> None:
    figures = measure(name, clients=50, redirects=True, minutes=10)
    assert figures.ended["raised"] == 0
    assert figures.goodput >= 0.95
    assert len(figures.failed_over_at) == 50


@pytest.mark.trial
@pytest.mark.spec("H-1")
@pytest.mark.parametrize("name", ["80% rejected", "95% rejected"])
def test_a_primary_that_mostly_fails_is_left_within_two_intervals(name: str) -> None:
    figures = measure(name, clients=50, redirects=False, minutes=5)
    assert max(figures.failed_over_at.values()) <= 120


@pytest.mark.trial
@pytest.mark.spec("H-1")
@pytest.mark.parametrize("redirects", [True, False])
@pytest.mark.parametrize("name", ["5% rejected", "20% rejected"])
def test_a_primary_that_mostly_succeeds_is_not_left(name: str, redirects: bool) -> None:
    assert not measure(name, clients=50, redirects=redirects, minutes=30).failed_over_at
