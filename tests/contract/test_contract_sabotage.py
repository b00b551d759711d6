"""Every entry can fail: a broker that behaves otherwise is found out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbpair.broker import Broker, ManualClock
from sbpair.contract.book import SUBJECTS, entries
from sbpair.contract.entry import Finding, Verdict
from sbpair.contract.plan import Powers, chosen, planned
from sbpair.contract.run import Run
from sbpair.side import Side
from tests.contract.conftest import NAMES, targets_of
from tests.contract.sabotage import SABOTAGES, Sabotage

UNSHOWN = {"deadletters-1", "topics-10"}
"""Entries that no sabotage here makes fail: a broker that takes such sends would need a place to put them."""


def _verified(broker: Broker, sabotage: Sabotage) -> list[Finding]:
    targets = {side: sabotage.target(target) for side, target in targets_of(broker).items()}
    selected = [sabotage.entry(each) for each in chosen(entries(), sabotage.shows)]
    plan = planned(selected, {side: Powers() for side in Side}, run="0badcafe")

    async def run() -> list[Finding]:
        with sabotage.at_work(broker):
            return await Run(targets, plan).findings()

    return asyncio.run(run())


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-2", "K-4")
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_broker_that_behaves_otherwise_is_found_out(certificates: Path, name: str) -> None:
    sabotage = SABOTAGES[name]
    namespaces = dict.fromkeys(NAMES.values(), 0)
    clock = ManualClock() if sabotage.stands else None
    with Broker(namespaces, tls_directory=certificates, clock=clock, open_access=sabotage.is_open) as broker:
        found = _verified(broker, sabotage)

    assert {each.entry.id: each.seen for each in found if each.verdict is not Verdict.DIFFERS} == {}


@pytest.mark.spec("K-2")
def test_every_entry_is_shown_to_be_able_to_fail() -> None:
    shown = {name for sabotage in SABOTAGES.values() for name in sabotage.shows}
    quick = {each.id for each in entries() if not each.slow}

    assert quick - shown == UNSHOWN
    assert {name.rpartition("-")[0] for name in shown} == set(SUBJECTS)
