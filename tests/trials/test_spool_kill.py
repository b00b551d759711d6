"""A client that spools and replays is killed (-9) again and again: nothing is lost or out of order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from sbpair import PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.broker.testing.ledger import Ledger
from tests.trials import spool_kills, spool_process
from tests.trials.spool_process import (
    ENTITIES,
    REPEATED,
    SendingProcess,
    out_of_order,
    received,
    settled,
    stored,
    two_namespaces,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with two_namespaces() as broker:
        yield broker


@pytest.mark.spec("G-1", "G-3", "G-4", "G-5", "F-35")
def test_kills_during_an_outage_of_both_sides_and_the_replay_lose_nothing_and_keep_order(
    broker: Broker, tmp_path: Path
) -> None:
    spool, ledger = tmp_path / "spool", Ledger()
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    primary.take_down("refuse")
    secondary.take_down("refuse")
    for run in range(3):  # while messages are being spooled: nothing can be stored twice
        client = SendingProcess(broker, spool, ledger, start=run * 10_000, count=10_000)
        client.wait_for(150)
        client.kill()
    replays = 2
    for run in range(3, 3 + replays):  # while they are being replayed, and more are sent behind them
        client = SendingProcess(broker, spool, ledger, start=run * 10_000, count=60)
        client.wait_for(1)
        before = stored(primary)
        primary.bring_up()
        settled(lambda before=before: stored(primary) > before)
        client.kill()
        primary.take_down("refuse")
    primary.bring_up()

    last = PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, options=spool_process.options(spool)
    )
    with last:
        settled(lambda: last.count_spooled() == 0)

    arrived = list(chain.from_iterable(received(primary).values()))
    ledger.received_all(arrived)
    report = ledger.check()
    assert report.is_conserved, report
    assert report.acknowledged >= 450
    # a kill can hit one unit of each entity between its acceptance and its removal
    assert report.duplicates <= replays * len(ENTITIES) * REPEATED
    assert max(arrived.count(key) for key in report.duplicated | {arrived[0]}) <= 1 + replays
    assert out_of_order(arrived) == []


@pytest.mark.spec("A-8", "G-1", "G-4")
def test_random_kills_of_an_accept_first_client_lose_nothing_and_keep_order(
    broker: Broker, tmp_path: Path
) -> None:
    found = spool_kills.trial(broker, tmp_path / "spool", kills=4, seed=2, say=lambda what: None)
    assert spool_kills.is_right(found), found


def test_the_order_check_finds_a_late_message_and_ignores_a_second_copy() -> None:
    assert out_of_order(["1:1", "2:1", "1:2", "1:1", "2:2"]) == []
    assert out_of_order(["1:1", "1:3", "1:2"]) == ["1:2"]
