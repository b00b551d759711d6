"""Ordered sessions on real processes, in short."""

from __future__ import annotations

import pytest

from tests.trials.order import trial


@pytest.mark.spec("O-1", "O-4", "O-5", "O-6")
def test_killed_senders_and_syphons_leave_every_session_in_order() -> None:
    found = trial(8.0)
    assert found["inversions"] == []
    assert found["lost"] == 0
    assert found["sent"]
