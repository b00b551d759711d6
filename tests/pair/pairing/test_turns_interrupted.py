"""A signal raises an exception while a send has its session's turn, or takes or leaves it: the turn is free after."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair.pair.pairing.blocking.sender import PairedServiceBusSender
from sbpair.pair.pairing.decide.patience import Patience
from sbpair.pair.pairing.shared.base_runtime import ACCEPTED
from sbpair.pair.pairing.shared.turns import ThreadTurns
from tests.interrupts import Interrupt, at_signals, interrupted_after

INSIDE = {
    PairedServiceBusSender._wait_for_turn.__code__,
    ThreadTurns.take.__code__,
    ThreadTurns.leave.__code__,
}


def accepted(*_: object) -> bool:
    return True


def reported(receipt: object, messages: object) -> object:
    return receipt


def sender_that_accepts() -> Any:
    """A sender whose messages all go to session ``s``, and are accepted at once."""
    sender: Any = object.__new__(PairedServiceBusSender)
    runtime = SimpleNamespace(options=None, send_fast=lambda *_: ACCEPTED)
    stubs = {
        "entity_name": "orders",
        "_key": "orders",
        "_runtime": runtime,
        "_turns": ThreadTurns(),
        "_health": SimpleNamespace(is_calm=True),
        "_session_of": lambda _: "s",
        "_may_go_fast": accepted,
        "_fast_seconds": lambda *_: 1.0,
        "_patience": Patience(4.0),
        "_report": reported,
    }
    for name, value in stubs.items():
        setattr(sender, name, value)
    return sender


@pytest.mark.spec("R-100", "O-3")
@pytest.mark.parametrize("seed", range(10))
def test_the_turn_of_a_session_is_free_after_an_interrupt_at_any_place(seed: int) -> None:
    random, sender, interrupts = Random(seed), sender_that_accepts(), 0
    inside = INSIDE | {accepted.__code__, reported.__code__}
    for _ in range(200):
        try:
            with interrupted_after(random.randrange(1, 30), inside, at_signals()):
                sender._send_in_order(ServiceBusMessage("1", session_id="s"), 1.0)
        except Interrupt:
            interrupts += 1
        assert not len(sender._turns)
    assert interrupts > 20
