"""What the options decide about a failing send, in both skins: busy, full, classified, probed."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusServerBusyError

from sbpair import (
    ClassifierFailed,
    EntityFailedOver,
    EntityRecovered,
    EntityState,
    Failure,
    LinkProbed,
    PingSent,
    Rest,
)
from sbpair.broker.faults import RejectWith


@pytest.mark.spec("F-40", "P-3")
async def test_a_primary_that_stays_busy_is_left_where_the_options_say_so(either) -> None:
    client = either.client(interval=0, ping=60, failover_on_busy_after=timedelta(seconds=0.3))
    sender = client.get_queue_sender("orders")
    with either.primary.fault("orders", RejectWith("com.microsoft:server-busy")):
        started, receipt = time.monotonic(), None
        while receipt is None:
            try:
                receipt = await either.send(sender, ServiceBusMessage("x"), timeout=5)
            except ServiceBusServerBusyError:
                assert time.monotonic() - started < 20
    assert receipt.rests is Rest.BACKLOG
    assert time.monotonic() - started >= 0.3
    assert (await either.heard(EntityFailedOver)).cause == "the service is busy"


@pytest.mark.spec("F-44")
async def test_a_full_primary_spills_where_the_options_say_so_and_stays_healthy(either) -> None:
    client = either.client(interval=0, spill_on_quota=True)
    sender = client.get_queue_sender("orders")
    with either.primary.fault("orders", RejectWith("amqp:resource-limit-exceeded")):
        assert (await either.send(sender, ServiceBusMessage("spilled"))).rests is Rest.BACKLOG
    assert client.state_of("orders") is EntityState.HEALTHY
    assert (await either.send(sender, ServiceBusMessage("straight"))).rests is Rest.PRIMARY
    assert client.pings_sent == 0
    assert sum(either.parked()) == 1


@pytest.mark.spec("P-3")
async def test_a_classifier_of_the_options_has_the_last_word(either) -> None:
    asked: list[Exception] = []

    def classifier(error: Exception) -> Failure | None:
        asked.append(error)
        return Failure.UNAVAILABLE if isinstance(error, ServiceBusAuthenticationError) else None

    client = either.client(interval=0, ping=60, classifier=classifier)
    receipt = await either.send(client.get_queue_sender("not-there"), ServiceBusMessage("x"))
    assert receipt.rests is Rest.BACKLOG
    assert client.state_of("not-there") is EntityState.FAILED_OVER
    assert isinstance(asked[0], ServiceBusAuthenticationError)


@pytest.mark.spec("P-3")
async def test_a_classifier_that_raises_is_told_and_disturbs_no_send(either) -> None:
    def classifier(error: Exception) -> Failure | None:
        raise LookupError("a bug of the application")

    client = either.client(interval=0, ping=60, classifier=classifier)
    either.primary.take_down("refuse")
    receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert receipt.rests is Rest.BACKLOG
    assert "a bug of the application" in (await either.heard(ClassifierFailed)).cause


@pytest.mark.spec("P-30", "P-33", "P-34")
async def test_a_link_that_opens_brings_the_entity_home_without_a_message(either) -> None:
    client = either.client(interval=0, ping=1, probe="link")
    sender = client.get_queue_sender("orders")
    either.primary.take_down("refuse")
    assert (await either.send(sender, ServiceBusMessage("parked"))).rests is Rest.BACKLOG
    await either.heard(LinkProbed)
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    assert (await either.send(sender, ServiceBusMessage("home"))).rests is Rest.PRIMARY
    assert client.pings_sent == 0
    assert not [event for event in either.told if isinstance(event, PingSent)]
    assert await either.bodies() == [b"home"]


@pytest.mark.spec("P-3", "G-12")
async def test_what_the_application_was_handling_says_nothing_of_the_send_in_either_skin(either) -> None:
    sender = either.client(interval=0, ping=60).get_queue_sender("orders")
    assert (await either.send(sender, ServiceBusMessage("straight"))).rests is Rest.PRIMARY
    with either.primary.fault("orders", RejectWith("amqp:internal-error", "no")):
        try:
            {}["not there"]
        except KeyError:
            receipt = await either.send(sender, ServiceBusMessage("from a handler"))
    assert receipt.rests is Rest.BACKLOG
