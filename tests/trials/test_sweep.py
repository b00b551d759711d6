"""A shortened sweep; `python -m tests.trials.sweep` covers every byte."""

from __future__ import annotations

import pytest

from tests.pair.outage.conftest import collect_forgotten
from tests.trials.sweep import HOPS, Outcome, run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.mark.spec("G-7", "F-24")
@pytest.mark.parametrize("hop", HOPS)
def test_wherever_the_connection_is_cut_the_message_is_stored_as_often_as_reported(hop: str) -> None:
    outcomes = run([hop], 700)[hop]
    collect_forgotten("unclosed")

    assert len(outcomes) >= 5
    assert {outcome.direction for outcome in outcomes} == {"in", "out"}
    assert [outcome for outcome in outcomes if not outcome.is_right] == []


@pytest.mark.parametrize(
    ("acknowledged", "copies", "is_right"),
    [
        (True, 0, False),
        (True, 1, True),
        (True, 2, True),
        (True, 3, False),
        (False, 1, True),
        (False, 2, False),
    ],
)
def test_the_sweep_finds_a_broken_promise(acknowledged: bool, copies: int, is_right: bool) -> None:
    assert Outcome("in", 0, acknowledged, copies).is_right is is_right
