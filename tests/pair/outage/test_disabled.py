"""A pairing that is disabled by configuration uses the primary as the plain SDK would, and nothing else."""

from __future__ import annotations

import logging

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import EntityState, StoredIn
from sbpair.broker.faults import RejectWith
from sbpair.events import PairingDisabled
from sbpair.pair.pairing.decide.retry import RetryPolicy

SOON = RetryPolicy(total=2, backoff_factor=0.01, backoff_max=1.0, mode="fixed")


@pytest.fixture
def disabled(either, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SBPAIR_DISABLE", "1")
    return either


@pytest.mark.spec("P-2")
async def test_everything_passes_straight_through(disabled) -> None:
    client = disabled.client(interval=0)
    sender = client.get_queue_sender("orders")
    assert (await disabled.send(sender, ServiceBusMessage("one"))).stored_in is StoredIn.PRIMARY
    assert (
        await disabled.send(sender, [ServiceBusMessage("two"), ServiceBusMessage("three")])
    ).backlog is None
    batch = await disabled.done(sender.create_message_batch())
    batch.add_message(ServiceBusMessage("four"))
    await disabled.send(sender, batch)
    assert sorted(await disabled.bodies()) == [b"four", b"one", b"three", b"two"]


@pytest.mark.spec("P-2")
async def test_a_disabled_client_raises_outages_after_the_sdks_retries_and_does_nothing_more(
    disabled, tmp_path
) -> None:
    client = disabled.client(interval=0, ping=1, spool=tmp_path / "spool", retry=SOON)
    sender = client.get_queue_sender("orders")
    with (
        disabled.primary.fault("orders", RejectWith("amqp:internal-error")) as fault,
        pytest.raises(ServiceBusError),
    ):
        await disabled.send(sender, ServiceBusMessage("its caller's"), timeout=60)
    assert fault.hits == 1 + SOON.total
    assert client.state_of("orders") is EntityState.HEALTHY
    assert (await disabled.send(sender, ServiceBusMessage("again"))).stored_in is StoredIn.PRIMARY
    assert client.pings_sent == 0
    assert disabled.secondary.queue_names() == []
    assert not (tmp_path / "spool").exists()


async def test_the_disabled_state_is_logged_once_and_an_event(disabled, caplog) -> None:
    caplog.set_level(logging.WARNING, logger="sbpair")
    client = disabled.client(timeout=60)
    client.get_queue_sender("orders")
    client.get_queue_sender("orders")
    assert [type(event) for event in disabled.told] == [PairingDisabled]
    assert len([record for record in caplog.records if "SBPAIR_DISABLE" in record.message]) == 1


async def test_manual_failover_is_ignored_and_logged_while_disabled(disabled, caplog) -> None:
    client = disabled.client()
    sender = client.get_queue_sender("orders")
    for act in (client.fail_over, client.hold, client.release, client.mark_path_healthy):
        act("orders")
    assert client.state_of("orders") is EntityState.HEALTHY
    assert (await disabled.send(sender, ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY
    assert caplog.text.count("was ignored: SBPAIR_DISABLE is set") == 4


@pytest.mark.spec("G-4")
async def test_a_rejected_message_is_not_sent_again_by_us(disabled) -> None:
    sender = disabled.client().get_queue_sender("orders")
    await disabled.send(sender, ServiceBusMessage("one"))
    with (
        disabled.primary.fault("orders", RejectWith("amqp:not-allowed")) as fault,
        pytest.raises(ServiceBusError),
    ):
        await disabled.send(sender, ServiceBusMessage("refused"))
    assert fault.hits == 1


@pytest.mark.spec("P-2")
async def test_a_disabled_client_does_not_host_a_syphon(disabled) -> None:
    client = disabled.client(enable_syphon=True)
    await disabled.send(client.get_queue_sender("orders"), ServiceBusMessage("one"))
    assert disabled.secondary.connection_count == 0
