"""End-to-end guarantees: what the program sent, what the brokers store and what a consumer receives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import BacklogUnavailableError, StoredIn
from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.faults import RejectWith, Withhold
from sbpair.broker.testing.ledger import Ledger
from sbpair.events import BacklogsCreated, EntityRecovered, PingFailed, PingSent
from tests.pair.outage.conftest import Either
from tests.pair.outage.shifted import done, drain, paired

MINUTE = timedelta(minutes=1)
WINDOW = timedelta(minutes=10)
SKINS = pytest.mark.parametrize("is_asyncio", [False, True], ids=["blocking", "asyncio"])


def backlog(index: int = 0) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


@contextmanager
def plain(namespace: NamespaceControl) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield client


def taken(namespace: NamespaceControl, queue: str, sub_queue: str | None = None) -> list:
    """Receive and complete all messages of a queue."""
    with (
        plain(namespace) as client,
        client.get_queue_receiver(queue, sub_queue=sub_queue, receive_mode="receiveanddelete") as receiver,
    ):
        found = []
        counts = namespace.counts(queue)
        for _ in range(counts.dead_letter if sub_queue else counts.active):
            found += receiver.receive_messages(1, max_wait_time=30)
        return found


@pytest.mark.spec("G-1", "G-2", "G-3", "F-42", "F-74")
@SKINS
async def test_every_acknowledged_id_is_in_one_of_its_allowed_places(
    shifted: Broker, is_asyncio: bool
) -> None:
    primary, secondary = shifted.namespace("contoso"), shifted.namespace("contoso-dr")
    primary.create_queue("doomed")
    client, ledger = paired(shifted, is_asyncio=is_asyncio), Ledger()
    senders = {path: client.get_queue_sender(path) for path in ("orders", "doomed")}

    async def send(count: int) -> None:
        for path, sender in senders.items():
            for _ in range(count):
                key = f"{path}-{ledger.check().sent}"
                ledger.attempted(key)
                await done(sender.send_messages(ServiceBusMessage(b"x", message_id=key)))
                ledger.acknowledged(key)

    await send(10)
    for path in senders:
        client.hold(path)
    await send(10)
    await done(client.close())
    primary.delete_queue("doomed")  # deletes ten messages, as the operator intends
    assert await drain(shifted) == (10, 10)
    dead = taken(secondary, backlog(), "deadletter")
    assert {message.dead_letter_reason for message in dead} == {"DestinationNotFound"}
    ledger.received_all(str(m.message_id) for m in (*taken(primary, "orders"), *dead))
    report = ledger.check()
    assert {key.partition("-")[0] for key in report.lost} == {"doomed"}
    assert (len(report.lost), report.duplicates, len(report.unexpected)) == (10, 0, 0)
    assert secondary.counts(backlog()).total == 0


@pytest.mark.spec("G-6", "G-4", "G-5", "G-7")
@pytest.mark.parametrize(("dwell", "copies"), [(WINDOW - MINUTE, 1), (WINDOW + MINUTE, 2)])
@SKINS
async def test_with_duplicate_detection_an_ambiguous_send_arrives_once_within_the_window(
    shifted: Broker, parks_early: None, is_asyncio: bool, dwell: timedelta, copies: int
) -> None:
    primary = shifted.namespace("contoso")
    primary.create_queue(
        "once",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=WINDOW // timedelta(milliseconds=1),
    )
    client = paired(shifted, is_asyncio=is_asyncio, failover_interval=timedelta(0))
    with primary.fault("once", Withhold()):  # stored, but the answer is lost
        sent = ServiceBusMessage(b"x", message_id="m-1", application_properties={"mine": 1})
        receipt = await done(client.get_queue_sender("once").send_messages(sent, timeout=20))
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.BACKLOG, True)
    await done(client.close())
    shifted.advance(dwell)
    assert await drain(shifted) == (1, 0)
    found = taken(primary, "once")
    assert [message.message_id for message in found] == ["m-1"] * copies
    bare = [(b"".join(m.body), m.application_properties, m.raw_amqp_message.properties) for m in found]
    assert all(repr(first) == repr(second) for first, second in pairwise(bare))


@pytest.mark.spec("G-8", "P-33")
@SKINS
async def test_order_holds_on_the_primary_and_parked_messages_break_it(
    shifted: Broker, is_asyncio: bool
) -> None:
    client = paired(shifted, is_asyncio=is_asyncio)
    sender = client.get_queue_sender("orders")

    async def send(*numbers: int) -> None:
        for number in numbers:
            await done(sender.send_messages(ServiceBusMessage(b"x", message_id=str(number))))

    await send(1, 2, 3)
    client.hold("orders")
    await send(4, 5)
    client.release("orders")
    client.mark_path_healthy("orders")
    await send(6, 7)  # sent before the backlog is drained, which breaks the order
    await done(client.close())
    assert await drain(shifted) == (2, 0)
    arrived = [message.message_id for message in taken(shifted.namespace("contoso"), "orders")]
    assert arrived == ["1", "2", "3", "6", "7", "4", "5"]


@pytest.mark.spec("G-11", "P-6")
async def test_an_outage_of_one_queue_neither_parks_nor_pings_another(either: Either) -> None:
    either.primary.create_queue("invoices")
    client = either.client(interval=0, ping=1)
    orders, invoices = client.get_queue_sender("orders"), client.get_queue_sender("invoices")
    with either.primary.fault("orders", RejectWith("amqp:internal-error")):
        for _ in range(5):
            assert (await either.send(orders, ServiceBusMessage("x"))).stored_in is StoredIn.BACKLOG
            assert (await either.send(invoices, ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY
        await either.heard(PingFailed)
    assert sum(either.parked()) == 5
    assert either.primary.counts("invoices").active == 5
    assert {event.path for event in either.told if isinstance(event, PingSent)} == {"orders"}


@pytest.mark.spec("G-13", "P-30", "P-31", "P-33", "P-34")
async def test_a_ping_brings_the_entity_home_and_reaches_nobody(either: Either) -> None:
    either.primary.create_queue("strict", dead_lettering_on_message_expiration=True, requires_session=True)
    client = either.client(interval=0, ping=1)
    sender = client.get_queue_sender("strict")
    with either.primary.fault("strict", RejectWith("amqp:internal-error")):
        await either.send(sender, ServiceBusMessage("parked", session_id="s"))
        await either.heard(PingFailed)
    await either.heard(EntityRecovered)
    home = either.primary.operations.pings
    assert home >= 1
    receipt = await either.send(sender, ServiceBusMessage("home", session_id="s"))
    assert receipt.stored_in is StoredIn.PRIMARY
    counts = either.primary.counts("strict")
    with plain(either.primary) as consumer, consumer.get_queue_receiver("strict", session_id="s") as receiver:
        got = receiver.receive_messages(10, max_wait_time=30)
    assert [str(message) for message in got] == ["home"]
    assert counts.dead_letter == 0
    await either.done(client.close())
    assert either.primary.operations.pings == home  # no ping while healthy or after the close


@pytest.mark.spec("G-17", "T-5", "F-85")
@pytest.mark.parametrize("dwell", [1, 7])
@SKINS
async def test_a_parked_schedule_keeps_its_time_and_its_time_to_live_counts_from_there(
    shifted: Broker, is_asyncio: bool, dwell: int
) -> None:
    primary = shifted.namespace("contoso")
    due = datetime.now(UTC) + 5 * MINUTE
    client = paired(shifted, is_asyncio=is_asyncio)
    client.hold("orders")
    sent = ServiceBusMessage(b"x", time_to_live=10 * MINUTE, scheduled_enqueue_time_utc=due)
    assert (await done(client.get_queue_sender("orders").send_messages(sent))).stored_in is StoredIn.BACKLOG
    await done(client.close())
    shifted.advance(dwell * MINUTE)
    assert await drain(shifted) == (1, 0)
    counts = primary.counts("orders")
    assert (counts.scheduled, counts.active) == ((1, 0) if dwell < 5 else (0, 1))
    if dwell < 5:
        shifted.advance(5 * MINUTE - dwell * MINUTE)
    with plain(primary) as consumer, consumer.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=30)
        assert message.expires_at_utc == message.enqueued_time_utc + 10 * MINUTE
        begins = due if dwell < 5 else due + (dwell - 5) * MINUTE
        assert abs(message.enqueued_time_utc - begins) < timedelta(seconds=30)


@pytest.mark.spec("G-19", "P-5", "F-35")
async def test_two_of_three_backlogs_may_fail_and_all_three_failing_names_every_cause(either: Either) -> None:
    client = either.client(interval=0, ping=60, backlogs=3)
    client.hold("orders")
    await either.send(client.get_queue_sender("orders"), ServiceBusMessage("first"))
    await either.heard(BacklogsCreated)
    queues = [backlog(index) for index in range(3)]
    broken = RejectWith("amqp:internal-error")
    with either.secondary.fault(queues[0], broken), either.secondary.fault(queues[1], broken):
        rested = Counter[int | None]()
        for _ in range(5):
            sender = client.get_queue_sender("orders")
            rested[(await either.send(sender, ServiceBusMessage("x"))).backlog] += 1
        assert rested == {2: 5}
        before = either.secondary.operations.sends
        with either.secondary.fault(queues[2], broken), pytest.raises(BacklogUnavailableError) as raised:
            await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert raised.value.causes
    assert raised.value.__cause__ is raised.value.causes[0]
    assert either.secondary.operations.sends == before


@pytest.mark.spec("G-24", "P-43")
@SKINS
async def test_a_parked_message_costs_four_operations_from_end_to_end(
    shifted: Broker, is_asyncio: bool
) -> None:
    primary, secondary = shifted.namespace("contoso"), shifted.namespace("contoso-dr")
    client = paired(shifted, is_asyncio=is_asyncio)
    client.hold("orders")
    for _ in range(20):
        await done(client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")))
    await done(client.close())
    assert await drain(shifted) == (20, 0)
    assert len(taken(primary, "orders")) == 20
    spent = [(each.sends, each.receives, each.pings) for each in (primary.operations, secondary.operations)]
    assert spent == [(20, 20, 0), (20, 20, 0)]  # four for each of twenty
