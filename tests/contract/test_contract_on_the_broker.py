"""The broker keeps every entry of the contract, and counts what the plan says."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import pytest

from sbpair.broker import Broker, Throttle
from sbpair.contract.book import entries
from sbpair.contract.entry import Verdict
from tests.contract.conftest import NAMES, counted, verified

WIRE, LIMITS = "sbpair.contract.subjects.wire", "sbpair.broker.frontends.amqp.connection_limits"
SHORT = {
    f"{LIMITS}.NEW_SPAN": 1.0,
    f"{LIMITS}.BARE_SPAN": 2.0,
    f"{LIMITS}.LINK_SPAN": 2.0,
    f"{WIRE}.NEW": 1.0,
    f"{WIRE}.BARE": 2.0,
    f"{WIRE}.UNUSED": 2.0,
    "sbpair.broker.entities.descriptions.QueueDescription.quota_in_bytes": 3 * 1024 * 1024,
}
"""The spans of the broker and of the entries, in seconds, and the size of a full queue."""

ELSEWHERE = {"errors-10", "wire-14"}
"""Entries that cannot tell on a broker at rest that is reached without TLS; see below."""


@pytest.mark.slow
@pytest.mark.client("sbpair")
@pytest.mark.spec("K-3", "K-4")
@pytest.mark.parametrize(
    "tier",
    [
        "Standard",
        *(
            pytest.param(each, marks=pytest.mark.trial)
            for each in ("Basic", "Premium", "Partitioned", "Emulator")
        ),
    ],
)
def test_the_broker_satisfies_every_entry_within_a_minute_at_the_planned_cost(
    broker_of: Callable[..., Broker], tier: str
) -> None:
    is_partitioned, is_emulator = tier == "Partitioned", tier == "Emulator"
    kind = {"Partitioned": "Premium", "Emulator": "Standard"}.get(tier, tier)
    with broker_of(kind, is_partitioned=is_partitioned, takes_any_token=is_emulator) as broker:
        began = time.monotonic()
        plan, found = verified(broker)
        took = time.monotonic() - began
        cost = counted(broker)
        left = [name for each in NAMES.values() for name in broker.namespace(each).queue_names()]

    assert {name: each.seen for name, each in found.items() if each.verdict is Verdict.DIFFERS} == {}
    run = {step.entry.id for step in plan.runnable}
    unknown = {name: each.seen for name, each in found.items() if each.verdict is Verdict.UNKNOWN}
    assert is_partitioned or set(unknown) & run == ELSEWHERE
    messages = replace(plan.price, blocks=0)  # the broker counts a large message once
    assert abs(cost.total - messages.total) <= 0.02 * messages.total, f"{cost} is not {messages}"
    assert left == []
    assert took < 60


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-3", "K-4")
def test_a_busy_broker_satisfies_the_busy_entry(broker_of: Callable[..., Broker]) -> None:
    with broker_of() as broker, broker.namespace("contoso").fault(None, Throttle(), operation="send"):
        _, found = verified(broker, ["errors-10"])

    assert (found["errors-10"].verdict, found["errors-10"].seen) == (Verdict.HOLDS, "it asks to wait 2 s")


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-3", "K-4")
def test_a_broker_over_tls_satisfies_the_certificate_entry(
    broker_of: Callable[..., Broker],
) -> None:
    with broker_of() as broker:
        _, found = verified(broker, ["wire-14"], over_tls=True)

    assert found["wire-14"].verdict is Verdict.HOLDS, found["wire-14"].seen


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-3", "K-4")
def test_the_slow_entries_hold_with_shortened_times_and_small_queues(
    broker_of: Callable[..., Broker],
) -> None:
    slow = [each for each in entries() if each.slow]
    with ExitStack() as stack:
        for name, value in SHORT.items():
            stack.enter_context(patch(name, value))
        broker = stack.enter_context(broker_of())
        _, found = verified(broker, selected=slow)

    assert {name: each.seen for name, each in found.items() if each.verdict is not Verdict.HOLDS} == {}
    assert set(found) == {each.id for each in slow}
