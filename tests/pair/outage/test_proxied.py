"""Faults of the line between client and broker: lost answers, slow lines, lost settlement confirmations."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import EntityState, PairedServiceBusClient, StoredIn
from sbpair.broker import DetachLink, LateVisibility
from sbpair.broker.testing.pair import QUICK
from sbpair.syphon import Syphon, SyphonOptions
from sbpair.testing import ChaosProxy
from tests.pair.outage.conftest import Pairing

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
OPTIONS = replace(QUICK, primary_namespace_name="contoso", ping_primary_interval=timedelta(minutes=5))


def through(proxy: ChaosProxy, pairing: Pairing) -> PairedServiceBusClient:
    """Create a paired client whose primary is behind the proxy."""
    return pairing.client_of(
        proxy.connection_string(pairing.primary.connection_string),
        pairing.secondary.connection_string,
        options=OPTIONS,
    )


@pytest.mark.slow
@pytest.mark.spec("F-28", "G-4")
def test_a_message_with_lost_answers_is_stored_once_and_acknowledged_through_a_backlog(
    pairing: Pairing, parks_early: None
) -> None:
    with ChaosProxy("127.0.0.1", pairing.primary.port) as proxy:
        client = through(proxy, pairing)
        with client.get_queue_sender("orders") as sender:
            lost = proxy.on("disposition", direction="out", address="orders", nth=None, action="drop")
            receipt = sender.send_messages(ServiceBusMessage("x", message_id="m"), timeout=60)
        assert lost.hits == 1
        assert receipt.ambiguous
        assert pairing.primary.counts("orders").active == 1
        assert sum(pairing.parked()) == 1


@pytest.mark.spec("F-29")
@pytest.mark.parametrize("trouble", [{"rtt": 0.3}, {"bandwidth": 20_000.0}, {"slice": 1}], ids=str)
def test_a_slow_narrow_or_sliced_line_is_no_outage(pairing: Pairing, trouble: dict[str, float]) -> None:
    with ChaosProxy("127.0.0.1", pairing.primary.port, **trouble) as proxy:  # type: ignore[arg-type]
        client = through(proxy, pairing)
        with client.get_queue_sender("orders") as sender:
            for _ in range(3):
                sender.send_messages(ServiceBusMessage("x" * 2_000))
        assert client.state_of("orders") is EntityState.HEALTHY
    assert pairing.primary.counts("orders").active == 3


@pytest.mark.spec("F-64")
async def test_a_completion_whose_answer_is_lost_costs_at_most_one_duplicate(aio_pairing) -> None:
    client = aio_pairing.failed_over(backlogs=1)
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="m"))
    aio_pairing.primary.bring_up()
    secondary = aio_pairing.secondary
    options = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
    async with ChaosProxy("127.0.0.1", secondary.port) as proxy:
        syphon = Syphon.from_connection_strings(
            aio_pairing.primary.connection_string,
            proxy.connection_string(secondary.connection_string),
            options=options,
        )
        path = "contoso/x-servicebus-transfer/0"
        lost = proxy.on("disposition", direction="out", address=path, action="cut")
        began = time.monotonic()
        async with asyncio.timeout(60):
            await syphon.drain()
        assert lost.hits == 1
        assert time.monotonic() - began < 50
    assert secondary.counts(path).active == 0
    assert 1 <= aio_pairing.primary.counts("orders").active <= 2


@pytest.mark.spec("F-55", "G-4")
def test_a_link_detached_during_a_send_makes_it_ambiguous(pairing: Pairing) -> None:
    client = pairing.client(ping=300.0)
    with client.get_queue_sender("orders") as sender:
        with pairing.primary.fault("orders", DetachLink(carried_out=True), times=1):
            receipt = sender.send_messages(ServiceBusMessage("x", message_id="m"))
        assert receipt.ambiguous
        assert (receipt.stored_in, sum(pairing.parked())) == (StoredIn.PRIMARY, 0)  # attached again
        assert client.state_of("orders") is EntityState.HEALTHY
    assert pairing.primary.message_ids("orders") == ["m", "m"]


@pytest.mark.spec("F-57")
async def test_a_message_that_becomes_visible_late_is_not_brought_home_twice(aio_pairing) -> None:
    client = aio_pairing.failed_over(backlogs=1)
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="m"))
    aio_pairing.primary.bring_up()
    options = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
    strings = aio_pairing.primary.connection_string, aio_pairing.secondary.connection_string
    with aio_pairing.primary.fault("orders", LateVisibility(900)) as late:
        for _ in range(2):
            await Syphon.from_connection_strings(*strings, options=options).drain()
    assert late.hits == 1
    assert aio_pairing.primary.message_ids("orders") == ["m"]
