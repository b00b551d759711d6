"""A failure that is shorter than the retries raises nothing (R-7), with both clients.

A message that can be parked is not tried again: with ``suspect_policy="raise"`` it is, and where no backlog queue
takes it.
"""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair import BacklogUnavailableError, EntityState, StoredIn
from sbpair.broker.faults import DetachLink, RejectWith
from sbpair.events import EntitySuspected, SendRaised
from sbpair.pair.pairing.decide.retry import RetryPolicy
from tests.pair.outage.conftest import Either
from tests.pair.runtimes import runtime_of

SOON = RetryPolicy(total=3, backoff_factor=0.01, backoff_max=1.0, mode="fixed")


@pytest.mark.spec("R-7", "G-5")
async def test_a_failed_send_is_retried_with_the_same_id_and_raises_nothing(either: Either) -> None:
    client = either.client(interval=60, retry=SOON, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    lost = DetachLink("amqp:link:detach-forced", carried_out=True)
    with either.primary.fault("orders", lost, times=2):
        receipt = await either.send(sender, ServiceBusMessage("x", message_id="same"))
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.PRIMARY, True)
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not [event for event in either.told if isinstance(event, EntitySuspected | SendRaised)]
    stored = await either.message_ids()
    assert set(stored) == {"same"}
    assert 1 <= len(stored) <= 3  # at most one extra copy for each lost answer (G-4)


@pytest.mark.spec("R-7", "P-3")
async def test_a_failure_that_stands_after_the_retries_is_raised_and_counts_once(either: Either) -> None:
    client = either.client(interval=60, retry=SOON, suspect_policy="raise")
    with (
        either.primary.fault("orders", RejectWith("amqp:internal-error")) as fault,
        pytest.raises(ServiceBusError),
    ):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert fault.hits == 1 + SOON.total
    assert client.state_of("orders") is EntityState.SUSPECT
    assert sum(isinstance(event, EntitySuspected) for event in either.told) == 1


@pytest.mark.spec("R-7")
async def test_a_primary_that_refuses_connections_briefly_is_waited_for(either: Either) -> None:
    patient = RetryPolicy(total=50, backoff_factor=0.1, mode="fixed")
    client = either.client(interval=60, retry=patient, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    either.primary.take_down("refuse")
    retried = runtime_of(client).failures.of_attempt
    failures = []

    def counted(*arguments: object) -> object:
        failures.append(arguments)
        if len(failures) == 3:
            either.primary.bring_up()
        return retried(*arguments)

    runtime_of(client).failures.of_attempt = counted
    receipt = await either.send(sender, ServiceBusMessage("x"), timeout=20)
    assert receipt.stored_in is StoredIn.PRIMARY
    assert not [event for event in either.told if isinstance(event, SendRaised)]


@pytest.mark.spec("R-7")
async def test_without_retries_the_first_failure_is_raised(either: Either) -> None:
    client = either.client(interval=60, retry=RetryPolicy(total=0), suspect_policy="raise")
    either.primary.take_down("refuse")
    with pytest.raises(ServiceBusConnectionError):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert client.state_of("orders") is EntityState.SUSPECT


@pytest.mark.spec("A-1", "R-7")
async def test_a_message_that_no_backlog_queue_takes_is_tried_again_at_the_primary(either: Either) -> None:
    client = either.client(interval=60, retry=SOON)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    either.secondary.take_down("refuse")
    with either.primary.fault("orders", RejectWith("amqp:internal-error"), times=2) as fault:
        assert (await either.send(sender, ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY
    assert fault.hits == 2
    assert not [event for event in either.told if isinstance(event, SendRaised)]
    either.secondary.bring_up()


@pytest.mark.spec("A-1", "R-7")
async def test_a_message_that_neither_side_accepts_is_raised_after_the_retries(either: Either) -> None:
    client = either.client(interval=60, retry=SOON)
    either.secondary.take_down("refuse")
    with (
        either.primary.fault("orders", RejectWith("amqp:internal-error")) as fault,
        pytest.raises(BacklogUnavailableError, match="internal-error"),
    ):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert fault.hits == 1 + SOON.total
    either.secondary.bring_up()


@pytest.mark.spec("R-7", "R-15")
async def test_the_settings_of_the_sdk_reach_senders_and_receivers(either: Either) -> None:
    policy = RetryPolicy(total=7, backoff_factor=0.5, backoff_max=9.0, mode="fixed")
    client = either.client(interval=60, retry=policy)
    receiver = client.get_queue_receiver("orders")
    configured = receiver._config
    assert (configured.retry_total, configured.retry_backoff_factor) == (7, 0.5)
    assert (configured.retry_backoff_max, configured.retry_mode.value) == (9.0, "fixed")
