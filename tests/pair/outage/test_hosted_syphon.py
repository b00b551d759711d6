"""A syphon hosted in the sender's process, with both clients against the real broker (P-1, P-40)."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairFaultedError, StoredIn
from sbpair.events import BacklogsCreated, PairFaulted, SideFaulted
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.syphon.events import SideAccepted, SideRefused
from tests.children import exit_code_of
from tests.pair.outage.conftest import AsyncPairing, Pairing, options_of
from tests.pair.outage.test_close_and_fault import soon, strings  # noqa: F401  (soon is a fixture)
from tests.pair.runtimes import runtime_of
from tests.waiting import wait_until


@pytest.mark.spec("P-40", "P-1", "P-42")
def test_parked_messages_come_home_without_another_process(pairing: Pairing) -> None:
    client = pairing.client(enable_syphon=True, ping=60)
    pairing.wait_for(BacklogsCreated)
    assert "sbpair-syphon" not in [thread.name for thread in threading.enumerate()]  # it starts on first need
    client.hold("orders")
    with client, client.get_queue_sender("orders") as sender:
        assert (
            sender.send_messages([ServiceBusMessage(str(n)) for n in range(20)]).stored_in is StoredIn.BACKLOG
        )
        wait_until(lambda: pairing.primary.counts("orders").active == 20)
        wait_until(lambda: sum(pairing.parked()) == 0)
    assert "sbpair-syphon" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.spec("C-1")
def test_a_hosted_syphon_lands_as_the_options_of_the_client_say(pairing: Pairing) -> None:
    pairing.secondary.create_queue("orders")
    client = pairing.client(enable_syphon=True, ping=60, land="either", land_after=timedelta(0))
    pairing.wait_for(BacklogsCreated)
    client.hold("orders")
    pairing.primary.take_down("refuse")
    with client, client.get_queue_sender("orders") as sender:
        assert sender.send_messages(ServiceBusMessage("late")).stored_in is StoredIn.BACKLOG
        wait_until(lambda: pairing.secondary.counts("orders").active == 1)
        wait_until(lambda: sum(pairing.parked()) == 0)


@pytest.mark.spec("P-40", "F-19")
def test_a_forked_child_runs_its_own_syphon(pairing: Pairing) -> None:
    client = pairing.client(enable_syphon=True, ping=60)
    pairing.wait_for(BacklogsCreated)
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("of the parent"))
    wait_until(lambda: pairing.primary.counts("orders").active == 1)
    wait_until(lambda: sum(pairing.parked()) == 0)  # no background thread is busy during the fork
    child = os.fork()
    if child == 0:
        try:
            sender.send_messages(ServiceBusMessage("of the child"), timeout=30)
            names = [thread.name for thread in threading.enumerate()]
            client.close()
            os._exit(0 if "sbpair-syphon" in names else 3)
        except BaseException:
            os._exit(1)
    assert exit_code_of(child) == 0
    wait_until(lambda: pairing.primary.counts("orders").active == 2)
    sender.send_messages(ServiceBusMessage("of the parent again"))
    wait_until(lambda: pairing.primary.counts("orders").active == 3)  # the parent's syphon still works


@pytest.mark.spec("P-50", "P-40")
def test_a_fault_of_the_pair_stops_the_syphon_and_settles_nothing(
    pairing: Pairing,
    soon: None,  # noqa: F811
) -> None:
    client = pairing.client(enable_syphon=True, ping=60)
    pairing.wait_for(BacklogsCreated)
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    pairing.primary.take_down("refuse")
    sender.send_messages(ServiceBusMessage("parked"))
    client.primary.close()
    pairing.wait_for(PairFaulted)
    wait_until(lambda: "sbpair-syphon" not in [thread.name for thread in threading.enumerate()])
    pairing.primary.bring_up()
    with pytest.raises(PairFaultedError):
        sender.send_messages(ServiceBusMessage("x"))
    wait_until(lambda: pairing.secondary.connection_count == 0)
    assert sum(pairing.parked()) == 1
    assert pairing.primary.counts("orders").active == 0


@pytest.mark.spec("P-50", "P-40")
def test_in_strict_mode_a_side_that_refuses_the_syphon_ends_the_pair(
    pairing: Pairing,
    soon: None,  # noqa: F811
) -> None:
    pairing.secondary.create_queue("contoso/x-servicebus-transfer/0")
    client = pairing.client_of(
        *strings(pairing, wrong="secondary"),
        options=options_of(enable_syphon=True, assume_backlogs_exist=True, fault_pair_on_refusal=True),
    )
    sender = client.get_queue_sender("orders")
    assert pairing.wait_for(PairFaulted).side == "secondary"
    with pytest.raises(PairFaultedError):
        sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.spec("R-1", "P-40")
def test_a_secondary_that_refuses_the_hosted_syphon_does_not_affect_senders(
    pairing: Pairing,
    soon: None,  # noqa: F811
) -> None:
    pairing.secondary.create_queue("contoso/x-servicebus-transfer/0")
    client = pairing.client_of(
        *strings(pairing, wrong="secondary"),
        options=options_of(enable_syphon=True, assume_backlogs_exist=True),
    )
    sender = client.get_queue_sender("orders")
    assert pairing.wait_for(SideFaulted).side == "secondary"
    assert client.secondary.state is SideState.REFUSED
    wait_until(lambda: runtime_of(client).sides.state._sides[Side.SECONDARY].looks >= 3)
    assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.PRIMARY
    assert not [event for event in pairing.told if isinstance(event, PairFaulted)]


@pytest.mark.spec("P-50", "P-40")
def test_a_side_that_accepts_the_syphon_again_is_cured_for_the_client_too(pairing: Pairing) -> None:
    client = pairing.client(enable_syphon=True)
    syphon = runtime_of(client)._syphon
    syphon._told(SideRefused(0.0, "primary", "status 401"))
    assert client.primary.state is SideState.REFUSED
    syphon._told(SideAccepted(0.0, "primary", "it accepts again"))
    assert client.primary.state is SideState.OPEN


def test_the_switch_of_the_hosted_syphon_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="enable_syphon"):
        options_of(enable_syphon="yes")


@pytest.mark.spec("P-40", "P-42")
async def test_with_asyncio_the_hosted_syphon_runs_in_the_loop_and_ends_with_the_client(
    aio_pairing: AsyncPairing,
) -> None:
    client = aio_pairing.client(enable_syphon=True, ping=60)
    client.hold("orders")
    async with client, client.get_queue_sender("orders") as sender:
        assert "sbpair-syphon" in [task.get_name() for task in asyncio.all_tasks()]
        assert (await sender.send_messages(ServiceBusMessage("x"))).stored_in is StoredIn.BACKLOG
        await asyncio.to_thread(wait_until, lambda: aio_pairing.primary.counts("orders").active == 1)
    assert "sbpair-syphon" not in [task.get_name() for task in asyncio.all_tasks()]


@pytest.mark.spec("P-50", "P-40")
async def test_with_asyncio_a_fault_of_the_pair_stops_the_syphon(
    aio_pairing: AsyncPairing,
    soon: None,  # noqa: F811
) -> None:
    client = aio_pairing.client(enable_syphon=True, ping=60)
    async with client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("x"))
        await client.secondary.close()
        await aio_pairing.heard(PairFaulted)
        with pytest.raises((PairFaultedError, ServiceBusError)):
            await sender.send_messages(ServiceBusMessage("y"))
        await asyncio.to_thread(wait_until, lambda: aio_pairing.secondary.connection_count == 0)


@pytest.mark.spec("R-25")
async def test_with_asyncio_a_syphon_that_fails_by_a_defect_reports_it(
    aio_pairing: AsyncPairing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(syphon: object, stop: asyncio.Event) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("sbpair.pair.syphon.daemon.Syphon.run", fail)
    async with aio_pairing.client(enable_syphon=True):
        await asyncio.to_thread(wait_until, lambda: "the syphon of this process has failed" in caplog.text)
