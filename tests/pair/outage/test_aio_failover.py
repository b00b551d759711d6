"""The asyncio client on two namespaces: healthy, failed over and recovered."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusError,
)

from sbpair import aio
from sbpair.aio import BacklogUnavailableError, EntityState, StoredIn
from sbpair.events import (
    SpoolReplayed,
)
from sbpair.pair.pairing.aio.sender_pool import MAX_SENDERS
from tests.children import exit_code_of
from tests.stopwatch import Stopwatch


@pytest.mark.spec("P-2")
async def test_many_sends_at_once_share_a_few_links(aio_pairing) -> None:
    sender = aio_pairing.client().get_queue_sender("orders")
    receipts = await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(200)))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.PRIMARY}
    assert aio_pairing.primary.counts("orders").active == 200
    assert aio_pairing.pool("orders").links <= MAX_SENDERS


@pytest.mark.spec("P-3", "P-7")
async def test_many_sends_at_once_are_redirected_together(aio_pairing) -> None:
    client = aio_pairing.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    aio_pairing.primary.take_down("refuse")
    receipts = await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(50)))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert len({receipt.backlog for receipt in receipts}) == 1
    assert sum(aio_pairing.parked()) == 50


@pytest.mark.spec("P-11", "P-12")
async def test_the_first_send_that_needs_missing_backlogs_creates_them(aio_pairing) -> None:
    client = aio_pairing.client(ping=60, backlogs=1, assume_backlogs_exist=False)
    sender = client.get_queue_sender("orders")
    client.fail_over("orders")
    assert (await sender.send_messages(ServiceBusMessage("one"))).backlog == 0
    assert aio_pairing.parked(1) == [1]


@pytest.mark.spec("G-19")
async def test_a_message_that_no_side_accepts_is_raised_with_every_cause(aio_pairing) -> None:
    sender = aio_pairing.failed_over(ping=60).get_queue_sender("orders")
    aio_pairing.secondary.take_down("refuse")
    with pytest.raises(BacklogUnavailableError) as raised:
        await sender.send_messages(ServiceBusMessage("nowhere"), timeout=60)
    assert len(raised.value.causes) == 2
    assert raised.value.__cause__ is raised.value.causes[0]


async def test_a_client_is_used_in_only_one_loop(aio_pairing) -> None:
    client = aio_pairing.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("here"))

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(sender.send_messages(ServiceBusMessage("there")))
        with pytest.raises(RuntimeError):
            client.fail_over("orders")

    await asyncio.to_thread(elsewhere)
    assert client.state_of("orders") is EntityState.HEALTHY


async def test_a_closed_client_says_so_and_calls_under_way_end(aio_pairing) -> None:
    client = aio_pairing.client(interval=60, timeout=30)
    sender = client.get_queue_sender("orders")
    aio_pairing.primary.take_down("silent")
    hanging = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
    async with asyncio.timeout(60):
        while not aio_pairing.pool("orders")._waiters:
            await asyncio.sleep(0)
    with Stopwatch() as watch:
        await client.close()
        with pytest.raises(ServiceBusError):
            await hanging
    assert watch.seconds < 10
    with pytest.raises(ValueError, match="closed"):
        await sender.send_messages(ServiceBusMessage("y"))
    with pytest.raises(ValueError, match="closed"):
        client.get_queue_sender("orders")
    aio_pairing.primary.bring_up()


async def test_calls_that_wait_for_a_link_end_too_when_the_client_is_closed(aio_pairing) -> None:
    client = aio_pairing.client(interval=60, timeout=30)
    sender = client.get_queue_sender("orders")
    aio_pairing.primary.take_down("silent")
    waiting = [
        asyncio.create_task(sender.send_messages(ServiceBusMessage("x"))) for _ in range(3 * MAX_SENDERS)
    ]
    async with asyncio.timeout(60):
        while len(aio_pairing.pool("orders")._waiters) < 3 * MAX_SENDERS:
            await asyncio.sleep(0)
    await client.close()
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {isinstance(each, ServiceBusError) for each in ended} == {True}
    aio_pairing.primary.bring_up()


async def test_the_primarys_own_receiver_is_handed_out(aio_pairing) -> None:
    client = aio_pairing.client()
    await client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
    async with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=30)
    assert b"".join(message.body) == b"one"


async def test_a_message_refused_by_both_sides_is_spooled_and_replayed(aio_pairing, tmp_path) -> None:
    client = aio_pairing.failed_over(ping=1, spool=tmp_path / "spool")
    aio_pairing.secondary.take_down("refuse")
    sender = client.get_queue_sender("orders")
    for n in range(3):
        receipt = await sender.send_messages(ServiceBusMessage(str(n)), timeout=60)
        assert receipt.stored_in is StoredIn.SPOOL
    assert client.count_spooled("orders") == 3
    aio_pairing.primary.bring_up()
    await aio_pairing.heard(SpoolReplayed)
    assert await aio_pairing.bodies(aio_pairing.primary, "orders") == [b"0", b"1", b"2"]
    assert client.count_spooled() == 0
    aio_pairing.secondary.bring_up()


@pytest.mark.spec("F-35")
async def test_more_sends_at_once_than_there_are_threads_find_their_way_into_the_spool(
    aio_pairing, tmp_path
) -> None:
    client = aio_pairing.failed_over(ping=60, timeout=20, spool=tmp_path / "spool")
    aio_pairing.secondary.take_down("refuse")
    sender = client.get_queue_sender("orders")
    receipts = await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(150)))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.SPOOL}
    assert client.count_spooled("orders") == 150
    aio_pairing.secondary.bring_up()


@pytest.mark.spec("F-19")
async def test_a_forked_child_leaves_the_spool_to_its_parent(aio_pairing, tmp_path) -> None:
    client = aio_pairing.failed_over(ping=60, timeout=3, spool=tmp_path / "spool")
    aio_pairing.secondary.take_down("refuse")
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("parent"))
    child = os.fork()
    if child == 0:
        os._exit(client.count_spooled())
    assert exit_code_of(child) == 0
    assert (await sender.send_messages(ServiceBusMessage("parent again"))).stored_in is StoredIn.SPOOL
    assert client.count_spooled() == 2
    aio_pairing.secondary.bring_up()


def test_outside_a_loop_a_client_can_be_made_but_not_used() -> None:
    client = aio.PairedServiceBusClient.from_connection_strings(
        "Endpoint=sb://one.example;SharedAccessKeyName=n;SharedAccessKey=a2V5",
        "Endpoint=sb://two.example;SharedAccessKeyName=n;SharedAccessKey=a2V5",
    )
    assert client.primary.label == "one"
    client.fail_over("orders")
    assert client.state_of("orders") is EntityState.FAILED_OVER


def over_tls(pairing, verify: str | None) -> aio.PairedServiceBusClient:
    texts = [
        ns.connection_string.replace(";UseDevelopmentEmulator=true", "").replace(
            f"localhost:{ns.port}", f"{ns.name}.servicebus.windows.net"
        )
        for ns in (pairing.primary, pairing.secondary)
    ]
    return aio.PairedServiceBusClient.from_connection_strings(
        *texts,
        connection_verify=verify,
        custom_endpoint_address=f"sb://localhost:{pairing.primary.port}",
        secondary_custom_endpoint_address=f"sb://localhost:{pairing.secondary.port}",
        options=aio.PairedNamespaceOptions(assume_backlogs_exist=True, failover_interval=timedelta(0)),
    )


@pytest.mark.spec("P-2", "F-31")
async def test_a_message_is_sent_over_tls_and_an_unknown_certificate_is_a_configuration_error(
    aio_pairing,
) -> None:
    async with over_tls(aio_pairing, str(aio_pairing.broker.ca_file)) as client:
        sender = client.get_queue_sender("orders")
        assert (await sender.send_messages(ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY
    async with over_tls(aio_pairing, None) as client:
        with pytest.raises(ServiceBusError, match="certificate"):
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("G-18", "F-25")
async def test_a_peer_that_is_silent_in_the_tls_handshake_does_not_hold_a_send(aio_pairing) -> None:
    aio_pairing.primary.take_down("silent")
    aio_pairing.secondary.take_down("silent")
    async with over_tls(aio_pairing, str(aio_pairing.broker.ca_file)) as client:
        with Stopwatch() as watch, pytest.raises(BacklogUnavailableError):
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=2)
        assert watch.seconds < 2.5
    aio_pairing.primary.bring_up()
    aio_pairing.secondary.bring_up()
