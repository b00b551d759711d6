"""Scheduling and cancelling with both clients, on the primary and while messages are parked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairingError, ParkedScheduleError
from tests.pair.outage.emptying import emptied
from tests.stopwatch import Stopwatch

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
BACKLOG = "contoso/x-servicebus-transfer/0"


def test_what_is_scheduled_on_the_primary_has_numbers_and_can_be_cancelled(pairing) -> None:
    sender = pairing.client().get_queue_sender("orders")
    message = ServiceBusMessage("one")
    numbers = sender.schedule_messages([message, {"body": "two"}], LATER)
    assert len(set(numbers)) == 2
    assert message.scheduled_enqueue_time_utc is None
    assert pairing.primary.counts("orders").scheduled == 2
    sender.cancel_scheduled_messages(numbers[0])
    sender.cancel_scheduled_messages([numbers[1]])
    assert pairing.primary.counts("orders").scheduled == 0
    assert sender.schedule_messages([], LATER) == []
    sender.cancel_scheduled_messages([])


def test_a_number_that_the_primary_does_not_know_is_refused_by_the_primary(pairing) -> None:
    sender = pairing.client(interval=0).get_queue_sender("orders")
    with pytest.raises(ServiceBusError):
        sender.cancel_scheduled_messages(4711)
    assert sender.send_messages(ServiceBusMessage("still healthy")).backlog is None


def test_a_scheduled_message_that_is_parked_keeps_its_time_and_gets_no_number(pairing, failed_over) -> None:
    sender = failed_over(ping=60, backlogs=1).get_queue_sender("orders")
    assert sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], LATER) == [-1, -1]
    assert sender.schedule_messages(ServiceBusMessage("c"), LATER) == [-1]
    got = emptied(pairing.secondary, BACKLOG)
    assert [b"".join(message.body) for message in got] == [b"a", b"b", b"c"]
    for message in got:
        assert message.scheduled_enqueue_time_utc is None
        told = datetime.fromisoformat(
            message.application_properties[b"x-ms-scheduledenqueuetimeutc"].decode()
        )
        assert told == LATER


def test_scheduling_fails_over_as_sending_does(pairing) -> None:
    sender = pairing.client(interval=0, ping=60, backlogs=1).get_queue_sender("orders")
    pairing.primary.take_down("refuse")
    assert sender.schedule_messages(ServiceBusMessage("a"), LATER) == [-1]
    assert pairing.parked(1) == [1]


def test_cancelling_a_parked_message_says_so_and_cancels_nothing(pairing) -> None:
    sender = pairing.client().get_queue_sender("orders")
    number = sender.schedule_messages(ServiceBusMessage("one"), LATER)[0]
    with pytest.raises(ParkedScheduleError, match="-1") as raised:
        sender.cancel_scheduled_messages([number, -1])
    assert isinstance(raised.value, PairingError)
    assert pairing.primary.counts("orders").scheduled == 1


def test_what_cannot_be_scheduled_is_named(pairing) -> None:
    sender = pairing.client().get_queue_sender("orders")
    with pytest.raises(TypeError, match="schedule_time_utc"):
        sender.schedule_messages(ServiceBusMessage("x"), "tomorrow")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch"):
        sender.schedule_messages(ServiceBusMessageBatch(), LATER)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sequence number"):
        sender.cancel_scheduled_messages(["one"])  # type: ignore[list-item]


async def test_asyncio_schedules_parks_and_cancels_alike(aio_pairing) -> None:
    client = aio_pairing.client(interval=0, ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    numbers = await sender.schedule_messages([ServiceBusMessage("one"), ServiceBusMessage("two")], LATER)
    assert len(set(numbers)) == 2
    assert aio_pairing.primary.counts("orders").scheduled == 2
    await sender.cancel_scheduled_messages(numbers)
    assert aio_pairing.primary.counts("orders").scheduled == 0
    aio_pairing.primary.take_down("refuse")
    parked = await sender.schedule_messages([ServiceBusMessage("three")], LATER)
    assert parked == [-1]
    assert aio_pairing.parked(1) == [1]
    with pytest.raises(ParkedScheduleError):
        await sender.cancel_scheduled_messages(parked)


@pytest.mark.spec("G-18")
def test_scheduling_and_cancelling_end_at_their_deadline_too(pairing) -> None:
    sender = pairing.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    number = sender.schedule_messages(ServiceBusMessage("before"), LATER)[0]
    pairing.primary.take_down("silent")
    for call in (
        lambda: sender.schedule_messages(ServiceBusMessage("x"), LATER, timeout=1.0),
        lambda: sender.cancel_scheduled_messages(number, timeout=1.0),
    ):
        with Stopwatch() as watch, pytest.raises(ServiceBusError):
            call()
        assert watch.seconds < 1.0 + 1.5
    pairing.primary.bring_up()


@pytest.mark.spec("G-18")
async def test_with_asyncio_within_half_a_second(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    (number,) = await sender.schedule_messages(ServiceBusMessage("before"), LATER)
    aio_pairing.primary.take_down("silent")
    for call in (
        lambda: sender.schedule_messages(ServiceBusMessage("x"), LATER, timeout=1.0),
        lambda: sender.cancel_scheduled_messages(number, timeout=1.0),
    ):
        with Stopwatch() as watch, pytest.raises(ServiceBusError):
            await call()
        assert watch.seconds < 1.0 + 0.5
    aio_pairing.primary.bring_up()


@pytest.mark.spec("A-1", "G-18")
async def test_at_a_silent_primary_scheduling_is_parked_and_cancelling_ends_at_its_deadline(either) -> None:
    client = either.client(interval=60, attempt_timeout=timedelta(seconds=0.5))
    sender = client.get_queue_sender("orders")
    (number,) = await either.done(sender.schedule_messages(ServiceBusMessage("before"), LATER))
    either.primary.take_down("silent")
    with Stopwatch() as watch:
        assert await either.done(sender.schedule_messages(ServiceBusMessage("x"), LATER, timeout=10.0)) == [
            -1
        ]
        with pytest.raises(ServiceBusError):
            await either.done(sender.cancel_scheduled_messages(number, timeout=1.0))
    assert watch.seconds < 11.0 + 2 * 1.5
    assert sum(either.parked()) == 1
    either.primary.bring_up()
