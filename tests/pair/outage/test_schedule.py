"""Scheduling and cancelling with both clients, on the primary and while messages are parked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairingError, ParkedScheduleError
from tests.pair.outage.conftest import Either
from tests.pair.outage.emptying import emptied
from tests.stopwatch import Stopwatch

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
BACKLOG = "contoso/x-servicebus-transfer/0"


async def test_a_message_scheduled_on_the_primary_has_a_number_and_can_be_cancelled(either: Either) -> None:
    sender = either.client().get_queue_sender("orders")
    message = ServiceBusMessage("one")
    numbers = await either.done(sender.schedule_messages([message, {"body": "two"}], LATER))
    assert len(set(numbers)) == 2
    assert message.scheduled_enqueue_time_utc is None
    assert either.primary.counts("orders").scheduled == 2
    await either.done(sender.cancel_scheduled_messages(numbers[0]))
    await either.done(sender.cancel_scheduled_messages([numbers[1]]))
    assert either.primary.counts("orders").scheduled == 0
    assert await either.done(sender.schedule_messages([], LATER)) == []
    await either.done(sender.cancel_scheduled_messages([]))


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


async def test_scheduling_fails_over_as_sending_does(either: Either) -> None:
    sender = either.client(interval=0, ping=60, backlogs=1).get_queue_sender("orders")
    either.primary.take_down("refuse")
    assert await either.done(sender.schedule_messages(ServiceBusMessage("a"), LATER)) == [-1]
    assert either.parked(1) == [1]


async def test_cancelling_a_parked_message_is_refused_and_cancels_nothing(either: Either) -> None:
    sender = either.client().get_queue_sender("orders")
    number = (await either.done(sender.schedule_messages(ServiceBusMessage("one"), LATER)))[0]
    with pytest.raises(ParkedScheduleError, match="-1") as raised:
        await either.done(sender.cancel_scheduled_messages([number, -1]))
    assert isinstance(raised.value, PairingError)
    assert either.primary.counts("orders").scheduled == 1


def test_an_unschedulable_message_is_named(pairing) -> None:
    sender = pairing.client().get_queue_sender("orders")
    with pytest.raises(TypeError, match="schedule_time_utc"):
        sender.schedule_messages(ServiceBusMessage("x"), "tomorrow")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch"):
        sender.schedule_messages(ServiceBusMessageBatch(), LATER)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sequence number"):
        sender.cancel_scheduled_messages(["one"])  # type: ignore[list-item]


@pytest.mark.spec("G-18")
async def test_scheduling_and_cancelling_end_at_their_deadline_too(either: Either) -> None:
    sender = either.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    (number,) = await either.done(sender.schedule_messages(ServiceBusMessage("before"), LATER))
    either.primary.take_down("silent")
    for call in (
        lambda: sender.schedule_messages(ServiceBusMessage("x"), LATER, timeout=1.0),
        lambda: sender.cancel_scheduled_messages(number, timeout=1.0),
    ):
        with Stopwatch() as watch, pytest.raises(ServiceBusError):
            await either.done(call())
        assert watch.seconds < 1.0 + (0.5 if either.is_asyncio else 1.5)
    either.primary.bring_up()


@pytest.mark.spec("A-1", "G-18")
async def test_scheduling_on_a_silent_primary_is_parked_and_cancelling_times_out(either) -> None:
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
