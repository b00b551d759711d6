"""The broker keeps every entry of the contract, and counts what the plan says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sbpair.broker import Broker
from sbpair.contract.entry import Verdict
from tests.contract.conftest import NAMES, counted, verified


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-3", "K-4")
@pytest.mark.parametrize("tier", ["Basic", "Standard", "Premium", "Partitioned"])
def test_the_broker_keeps_every_entry_within_a_minute_and_counts_what_was_planned(
    broker_of: Callable[..., Broker], tier: str
) -> None:
    is_partitioned = tier == "Partitioned"
    with broker_of("Premium" if is_partitioned else tier, is_partitioned=is_partitioned) as broker:
        began = time.monotonic()
        plan, found = verified(broker)
        took = time.monotonic() - began
        cost = counted(broker)
        left = [name for each in NAMES.values() for name in broker.namespace(each).queue_names()]

    assert {name: each.seen for name, each in found.items() if each.verdict is Verdict.DIFFERS} == {}
    run = {step.entry.id for step in plan.runnable}
    unknown = {name: each.seen for name, each in found.items() if each.verdict is Verdict.UNKNOWN}
    assert {name: seen for name, seen in unknown.items() if name in run and not is_partitioned} == {}
    assert abs(cost.total - plan.price.total) <= 0.02 * plan.price.total, f"{cost} is not {plan.price}"
    assert left == []
    assert took < 60
