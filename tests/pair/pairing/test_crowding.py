"""How many asyncio sends share one link while links are lost again and again (H-54)."""

from __future__ import annotations

import pytest

from sbpair.pair.pairing.decide.crowding import CALM_SECONDS, CROWD, REPEATED_SECONDS, Crowding

pytestmark = pytest.mark.spec("H-54")


def test_one_lost_link_and_simultaneous_losses_change_nothing() -> None:
    crowding = Crowding()
    for at in (100.0, 100.1, 101.0):
        crowding.lost(opened_at=50.0, now=at)
    assert (crowding.limit, crowding.is_reduced) == (CROWD, False)


def test_each_loss_soon_after_the_last_divides_the_limit_by_ten_down_to_one() -> None:
    crowding = Crowding()
    limits = []
    for at in range(100, 105):
        crowding.lost(opened_at=at - 0.5, now=float(at))
        limits.append(crowding.limit)
    assert limits == [100, 10, 1, 1, 1]


def test_losses_far_apart_change_nothing() -> None:
    crowding = Crowding()
    for number in range(5):
        at = 100.0 + number * (REPEATED_SECONDS + 0.1)
        crowding.lost(opened_at=at - 1.0, now=at)
    assert crowding.limit == CROWD


def test_each_half_minute_without_a_loss_multiplies_the_limit_by_ten() -> None:
    crowding = Crowding()
    for at in (100.0, 101.0, 102.0):
        crowding.lost(opened_at=at - 0.5, now=at)
    crowding.succeeded(102.0 + CALM_SECONDS)
    assert crowding.limit == 1
    crowding.succeeded(102.1 + CALM_SECONDS)
    assert crowding.limit == 10
    crowding.succeeded(102.2 + CALM_SECONDS)
    assert crowding.limit == 10
    crowding.succeeded(102.2 + 2 * CALM_SECONDS)
    assert (crowding.limit, crowding.is_reduced) == (CROWD, False)
