"""Every entry can fail, and for its own reason: a broker that behaves otherwise is found out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.contract.book import SUBJECTS, entries
from sbpair.contract.entry import Finding, Verdict
from sbpair.contract.plan import Rights, make_plan, select
from sbpair.contract.run import Run
from sbpair.pair.ground.side import Side
from tests.contract.conftest import targets_of
from tests.contract.sabotages import SABOTAGES
from tests.contract.sabotages.sabotage import Sabotage


def found_out(broker: Broker, sabotage: Sabotage) -> list[Finding]:
    """What the entries say that a sabotage shows to be able to fail."""
    targets = {side: sabotage.target(target) for side, target in targets_of(broker).items()}
    selected = [sabotage.entry(each) for each in select(entries(), sabotage.shows)]
    plan = make_plan(selected, {side: Rights() for side in Side}, run="0badcafe", slow=True)
    return asyncio.run(Run(targets, plan).findings())


@pytest.mark.slow
@pytest.mark.client("sbpair")
@pytest.mark.spec("K-2", "K-4")
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_broker_with_a_different_behaviour_fails_the_matching_entries(
    certificates: Path, tmp_path: Path, name: str
) -> None:
    sabotage = SABOTAGES[name]
    with sabotage.broker(tmp_path if sabotage.over_tls else certificates) as broker:
        found = found_out(broker, sabotage)

    missed = {
        each.entry.id: f"{each.verdict}: {each.seen}"
        for each in found
        if each.verdict is not Verdict.DIFFERS or sabotage.shows[each.entry.id] not in each.seen
    }
    assert missed == {}


@pytest.mark.spec("K-2")
def test_every_entry_can_fail() -> None:
    shown = {name for sabotage in SABOTAGES.values() for name in sabotage.shows}

    assert {each.id for each in entries()} == shown
    assert {name.rpartition("-")[0] for name in shown} == set(SUBJECTS)


@pytest.mark.spec("K-2")
def test_a_fault_that_hits_everything_shows_only_the_entries_about_it() -> None:
    blunt = {
        name for sabotage in SABOTAGES.values() if sabotage.effect is not None for name in sabotage.shows
    }

    assert blunt == {"sending-1", "sending-6", "errors-10", "wire-3"}
