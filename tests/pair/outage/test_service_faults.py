"""What a service does to its clients: it detaches links, withholds credit, is full or refuses connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

from sbpair import BacklogUnavailableError, EntityState, StoredIn
from sbpair.broker.faults import RejectWith
from sbpair.events import BacklogsCreated, BacklogWithdrawn, EntityFailedOver, EntityRecovered
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.performatives import Close, Condition, Detach, Flow, Open
from tests.pair.outage.conftest import Either
from tests.pair.outage.tap import Passing, Tap
from tests.stopwatch import Stopwatch

BACKLOGS = "contoso/x-servicebus-transfer/"
OVERRUN = 1.5  # seconds after its deadline that a blocking send may take


@pytest.mark.spec("F-37", "P-2", "P-3")
@pytest.mark.parametrize("policy", ["redirect", "raise"])
async def test_with_the_primary_down_at_the_start_sends_are_parked_at_once_or_after_the_interval(
    either: Either, policy: str
) -> None:
    either.primary.take_down("refuse")
    client = either.client(interval=0.2, ping=1, suspect_policy=policy)
    sender = client.get_queue_sender("orders")
    if policy == "raise":
        with pytest.raises(ServiceBusError):
            await either.send(sender, ServiceBusMessage("raised"))
    else:
        assert (await either.send(sender, ServiceBusMessage("at once"))).stored_in is StoredIn.BACKLOG
    await either.heard(EntityFailedOver)
    assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    assert (await either.send(sender, ServiceBusMessage("home"))).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("F-45", "P-5", "G-19")
async def test_a_full_backlog_leaves_the_rotation_and_when_all_are_full_that_is_an_error(
    either: Either,
) -> None:
    client = either.client(interval=0, ping=60)
    client.hold("orders")
    await either.send(client.get_queue_sender("orders"), ServiceBusMessage("first"))
    await either.heard(BacklogsCreated)
    full = RejectWith("amqp:resource-limit-exceeded")
    with either.secondary.fault(f"{BACKLOGS}0", full):
        rested = {
            (await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))).backlog
            for _ in range(6)
        }
        assert rested == {1}
        with either.secondary.fault(f"{BACKLOGS}1", full), pytest.raises(BacklogUnavailableError):
            await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert {event.backlog for event in either.told if isinstance(event, BacklogWithdrawn)} == {0, 1}
    assert sum(either.parked()) == 7


@pytest.mark.spec("F-53")
@pytest.mark.parametrize("is_parked", [False, True], ids=["straight", "parked"])
async def test_differing_session_id_and_partition_key_are_refused_before_anything_is_sent(
    either: Either, is_parked: bool
) -> None:
    client = either.client(interval=0, ping=60)
    if is_parked:
        client.hold("orders")
    clashing = AmqpAnnotatedMessage(
        data_body=b"x",
        properties=AmqpMessageProperties(group_id="one"),
        annotations={"x-opt-partition-key": "another"},
    )
    with pytest.raises(ValueError, match="session id and partition key"):
        await either.send(client.get_queue_sender("orders"), clashing)
    assert client.state_of("orders") is not EntityState.SUSPECT
    assert (either.primary.operations.sends, either.secondary.operations.sends) == (0, 0)


def detached(answered: Passing, handle: int) -> bytes:
    error = Condition("amqp:link:detach-forced", "The link was detached.")
    return frame(answered.channel, encode_composite(Detach(handle, closed=True, error=error)))


def closed(answered: Passing, handle: int) -> bytes:
    return frame(0, encode_composite(Close(Condition("com.microsoft:container-close", "It moves."))))


@pytest.mark.spec("F-55", "G-4", "G-7")
@pytest.mark.parametrize("ended", [detached, closed])
async def test_a_send_whose_link_ends_is_resent_on_a_new_link_and_marked_ambiguous(
    either: Either, tap: Tap, ended
) -> None:
    handles: list[int] = []
    answers: list[Passing] = []

    def rule(passing: Passing) -> bool | bytes:
        if passing.is_attach("orders") and not passing.is_clients:
            handles.append(passing.performative.handle)  # type: ignore[attr-defined]
        if passing.is_answer("orders"):
            answers.append(passing)
            if len(answers) == 2:
                return ended(passing, handles[-1])
        return True

    tap.rule = rule
    client = either.client(interval=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    receipt = await either.send(sender, ServiceBusMessage("again"))
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.PRIMARY, True)
    assert client.state_of("orders") is EntityState.HEALTHY
    assert either.primary.counts("orders").active == 3


@pytest.mark.slow
@pytest.mark.spec("F-58", "G-18")
@pytest.mark.parametrize(("interval", "budget"), [(0, 60), (60, 1)])
async def test_a_send_without_credit_ends_by_its_deadline(
    either: Either, parks_early: None, tap: Tap, interval: int, budget: float
) -> None:
    """The SDK eventually sends without credit; the tap drops that transfer."""

    def rule(passing: Passing) -> bool | bytes:
        what = passing.performative
        if passing.is_clients or not isinstance(what, Flow) or passing.path != "orders":
            return not (passing.is_clients and passing.is_transfer("orders"))
        return frame(passing.channel, encode_composite(replace(what, link_credit=0)))

    tap.rule = rule
    client = either.client(interval=interval, ping=60, suspect_policy="raise" if interval else "redirect")
    with Stopwatch() as watch:
        sending = either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"), timeout=budget)
        if interval:
            with pytest.raises(ServiceBusError):
                await sending
        else:
            assert (await sending).stored_in is StoredIn.BACKLOG
    assert watch.seconds < budget + OVERRUN
    assert either.primary.counts("orders").total == 0


@pytest.mark.spec("F-34", "P-3")
async def test_a_connection_beyond_the_limit_counts_as_an_outage(either: Either, tap: Tap) -> None:
    error = Condition("amqp:resource-limit-exceeded", "The number of connections is at its limit.")

    def rule(passing: Passing) -> bool | bytes:
        if isinstance(passing.performative, Open) and not passing.is_clients:
            refusal = frame(0, encode_composite(passing.performative))
            return refusal + frame(0, encode_composite(Close(error)))
        return True

    tap.rule = rule
    client = either.client(interval=0, ping=60)
    receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"), timeout=60)
    assert receipt.stored_in is StoredIn.BACKLOG
    assert client.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-69", "G-1", "G-2")
async def test_a_message_on_its_way_to_a_backlog_at_the_failback_is_acknowledged_and_drained(
    either: Either,
) -> None:
    loop = asyncio.get_running_loop()
    with Tap(either.secondary) as tap:
        either.ways = either.ways[0], tap.connection_string
        client = either.client(interval=0, ping=60)
        sender = client.get_queue_sender("orders")
        client.hold("orders")
        await either.send(sender, ServiceBusMessage("warm"))

        def come_home(passing: Passing) -> bool:
            if passing.is_clients and passing.is_transfer(passing.path) and passing.path.startswith(BACKLOGS):
                if either.is_asyncio:
                    loop.call_soon_threadsafe(client.mark_path_healthy, "orders")
                else:
                    client.mark_path_healthy("orders")
            return True

        tap.rule = come_home
        assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
        await either.until(lambda: client.state_of("orders") is EntityState.HEALTHY)
        assert (await either.send(sender, ServiceBusMessage("home"))).stored_in is StoredIn.PRIMARY
        assert sum(either.parked()) == 2
        await either.done(client.close())
    counters = await either.syphon().drain()
    assert (counters.forwarded, counters.dead_lettered) == (2, 0)
    assert either.primary.counts("orders").active == 3
