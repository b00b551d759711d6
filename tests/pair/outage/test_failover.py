"""The blocking client on two namespaces: healthy, failed over and recovered."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import (
    EntityState,
    PairedNamespaceOptions,
    PairedServiceBusClient,
    ReservedPropertyError,
    SendReceipt,
    StoredIn,
)
from sbpair.broker.faults import RejectWith
from sbpair.broker.testing.ledger import Ledger
from sbpair.events import (
    BacklogsCreated,
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    PingFailed,
    PingSent,
)
from tests.children import exit_code_of
from tests.pair.outage.conftest import Either
from tests.pair.outage.emptying import emptied
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch


@pytest.mark.spec("P-1", "P-2")
async def test_a_healthy_primary_gets_every_message(either: Either) -> None:
    client = either.client()
    sender = client.get_queue_sender("orders")
    receipt = await either.send(sender, ServiceBusMessage("one", message_id="m-1"))
    assert receipt == SendReceipt(StoredIn.PRIMARY, None, ("m-1",))
    batch = await either.done(sender.create_message_batch())
    batch.add_message(ServiceBusMessage("six"))
    several = [ServiceBusMessage("two"), {"body": "three"}]
    for messages in (several, (ServiceBusMessage(str(n)) for n in (4, 5)), batch):
        assert (await either.send(sender, messages)).stored_in is StoredIn.PRIMARY
    assert (await either.send(sender, [])).message_ids == ()
    assert sorted(await either.bodies("orders")) == sorted([b"one", b"two", b"three", b"4", b"5", b"six"])
    assert sum(either.parked()) == 0
    assert client.pings_sent == 0


@pytest.mark.spec("P-3", "P-4", "P-33")
@pytest.mark.parametrize("policy", ["redirect", "raise"])
async def test_messages_are_parked_after_the_interval_and_go_home_after_a_ping(
    either: Either, policy: str
) -> None:
    client = either.client(interval=0.5, ping=1, suspect_policy=policy)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    either.primary.take_down("refuse")
    if policy == "raise":
        with pytest.raises(ServiceBusError):
            await either.send(sender, ServiceBusMessage("raised"))
    else:
        receipt = await either.send(sender, ServiceBusMessage("parked before the failover"))
        assert receipt.stored_in is StoredIn.BACKLOG
    await either.heard(EntitySuspected)
    await either.heard(EntityFailedOver)
    receipt = await either.send(sender, ServiceBusMessage("parked"))
    assert receipt.stored_in is StoredIn.BACKLOG
    await either.heard(PingFailed)
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    assert (await either.send(sender, ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY
    assert await either.bodies("orders") == [b"before", b"after"]
    assert sum(either.parked()) == (1 if policy == "raise" else 2)
    assert client.pings_sent >= 2
    assert sum(isinstance(event, PingSent) for event in either.told) == client.pings_sent


@pytest.mark.spec("F-43", "P-33")
@pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
def test_a_queue_disabled_in_an_outage_stays_failed_over_until_it_is_active(pairing, status) -> None:
    client = pairing.client(interval=0, ping=1)
    sender = client.get_queue_sender("orders")
    as_it_was = pairing.primary.description("orders")
    with pairing.primary.fault("orders", RejectWith("amqp:internal-error")):
        assert sender.send_messages(ServiceBusMessage("one")).stored_in is StoredIn.BACKLOG
        pairing.primary.update_queue("orders", replace(as_it_was, status=status))
    pairing.wait_for(PingFailed)
    assert sender.send_messages(ServiceBusMessage("two")).stored_in is StoredIn.BACKLOG
    pairing.primary.update_queue("orders", as_it_was)
    pairing.wait_for(EntityRecovered)
    assert sender.send_messages(ServiceBusMessage("home")).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("P-6")
async def test_all_senders_of_an_entity_share_its_health(either: Either) -> None:
    client = either.client(interval=0, ping=60)
    first, second = client.get_queue_sender("orders"), client.get_queue_sender("ORDERS")
    with either.primary.fault("orders", RejectWith("amqp:internal-error")):
        assert (await either.send(first, ServiceBusMessage("one"))).stored_in is StoredIn.BACKLOG
        assert (await either.send(second, ServiceBusMessage("two"))).stored_in is StoredIn.BACKLOG
    client.mark_path_healthy("orders")
    assert (await either.send(first, ServiceBusMessage("three"))).stored_in is StoredIn.PRIMARY
    assert (await either.send(second, ServiceBusMessage("four"))).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("P-20", "P-10")
def test_a_parked_message_carries_its_destination_and_the_cleared_properties(pairing, failed_over) -> None:
    sender = failed_over(ping=60).get_queue_sender("Orders")
    receipt = sender.send_messages(
        ServiceBusMessage("x", session_id="s-1", message_id="m-1", application_properties={"mine": 1})
    )
    queue = f"contoso/x-servicebus-transfer/{receipt.backlog}"
    with (
        ServiceBusClient.from_connection_string(pairing.secondary.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        (message,) = receiver.receive_messages(1, max_wait_time=30)
        assert message.session_id is None
        assert message.message_id == "m-1"
        assert message.application_properties[b"x-ms-path"] == b"Orders"
        assert message.application_properties[b"x-ms-sessionid"] == b"s-1"
        assert message.application_properties[b"mine"] == 1
        receiver.complete_message(message)


@pytest.mark.spec("P-7")
def test_a_sender_stays_with_its_chosen_backlog(pairing, failed_over) -> None:
    client = failed_over(ping=60, backlogs=3)
    sender = client.get_queue_sender("orders")
    assert len({sender.send_messages(ServiceBusMessage(str(n))).backlog for n in range(5)}) == 1


@pytest.mark.spec("P-15")
def test_one_backlog_holds_messages_of_many_entities(pairing, failed_over) -> None:
    pairing.primary.create_queue("invoices")
    client = failed_over(ping=60, backlogs=1)
    client.fail_over("invoices")
    for path in ("orders", "invoices"):
        assert client.get_queue_sender(path).send_messages(ServiceBusMessage(path)).backlog == 0
    assert pairing.parked(backlogs=1) == [2]


@pytest.mark.spec("P-22")
async def test_batches_of_every_kind_are_parked_whole_and_in_order(either: Either) -> None:
    foreign = ServiceBusMessageBatch()
    foreign.add_message(ServiceBusMessage("the SDK's own"))
    client = either.client(ping=60, backlogs=1)
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    await either.send(sender, [ServiceBusMessage(f"list {n}") for n in range(3)])
    await either.send(sender, (ServiceBusMessage(f"generator {n}") for n in range(3)))
    batch = await either.done(sender.create_message_batch())
    for n in range(3):
        batch.add_message(AmqpAnnotatedMessage(data_body=f"batch {n}"))
    receipt = await either.send(sender, batch)
    assert len(receipt.message_ids) == 3
    assert all(uuid.UUID(each) for each in receipt.message_ids)
    await either.send(sender, foreign)
    expected = [f"{kind} {n}".encode() for kind in ("list", "generator", "batch") for n in range(3)]
    parked = emptied(either.secondary, "contoso/x-servicebus-transfer/0")
    assert [b"".join(message.body) for message in parked] == [*expected, b"the SDK's own"]


@pytest.mark.spec("P-22")
async def test_a_full_batch_is_split_when_the_rewritten_one_no_longer_fits(either: Either) -> None:
    client = either.client(ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    batch, count = await either.done(sender.create_message_batch()), 0
    try:
        while True:
            batch.add_message(ServiceBusMessage("x" * 1000, session_id="s" * 100, message_id=str(count)))
            count += 1
    except ValueError:
        pass
    either.primary.take_down("refuse")
    assert (await either.send(sender, batch)).stored_in is StoredIn.BACKLOG
    assert either.parked(1) == [count]


@pytest.mark.spec("P-5", "G-19")
def test_a_failing_backlog_is_left_by_every_sender(pairing, failed_over) -> None:
    client = failed_over(ping=60, backlogs=2)
    sender = client.get_queue_sender("orders")
    first = sender.send_messages(ServiceBusMessage("one")).backlog
    queue = f"contoso/x-servicebus-transfer/{first}"
    with pairing.secondary.fault(queue, RejectWith("amqp:internal-error")):
        assert sender.send_messages(ServiceBusMessage("two")).backlog == 1 - first
        others = {
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")).backlog for _ in range(6)
        }
    assert others == {1 - first}


@pytest.mark.spec("P-2", "F-42")
async def test_a_queue_that_does_not_exist_is_raised_and_never_fails_over(either: Either) -> None:
    client = either.client(interval=0)
    with pytest.raises((ServiceBusAuthenticationError, MessagingEntityNotFoundError)):
        await either.send(client.get_queue_sender("no-such-queue"), ServiceBusMessage("x"))
    assert client.state_of("no-such-queue") is EntityState.HEALTHY


@pytest.mark.spec("F-40")
def test_a_busy_primary_is_raised_within_a_short_budget_and_never_fails_over(pairing) -> None:
    client = pairing.client(interval=0, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    with (
        pairing.primary.fault("orders", RejectWith("com.microsoft:server-busy")),
        pytest.raises(ServiceBusServerBusyError),
    ):
        sender.send_messages(ServiceBusMessage("x"), timeout=5)
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-20", "F-76")
async def test_a_reserved_property_is_refused_and_nothing_is_sent(either: Either) -> None:
    sender = either.client().get_queue_sender("orders")
    with pytest.raises(ReservedPropertyError):
        await either.send(
            sender,
            [ServiceBusMessage("good"), ServiceBusMessage("bad", application_properties={"x-ms-path": "x"})],
        )
    assert either.primary.counts("orders").active == 0


@pytest.mark.slow
@pytest.mark.spec("P-2", "P-6", "G-1", "G-2", "G-4")
def test_eight_threads_sharing_a_sender_through_an_outage_lose_nothing(pairing) -> None:
    client = pairing.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    threads, ledger, stored_in, lock = 8, Ledger(), Counter(), threading.Lock()
    half_way, is_down = threading.Barrier(threads + 1), threading.Event()

    def work(number: int) -> None:
        left, n = 5, 0  # sends in the outage
        while left:
            if n == 10:
                half_way.wait(60)
            key, n = f"{number}-{n}", n + 1
            left -= is_down.is_set()
            ledger.attempted(key)
            receipt = sender.send_messages(ServiceBusMessage(key))
            ledger.acknowledged(key)
            with lock:
                stored_in[receipt.stored_in, receipt.ambiguous] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    half_way.wait(60)
    pairing.primary.take_down("refuse")  # while they send
    is_down.set()
    for worker in workers:
        worker.join(60)
    pairing.primary.bring_up()
    queues = [(pairing.primary, "orders")]
    queues += [(pairing.secondary, f"contoso/x-servicebus-transfer/{index}") for index in range(2)]
    for namespace, queue in queues:
        ledger.received_all(body.decode() for body in pairing.bodies(namespace, queue))
    report = ledger.check()
    assert report.is_conserved, report
    assert report.acknowledged == stored_in.total()
    assert sum(count for (rest, _), count in stored_in.items() if rest is StoredIn.BACKLOG) >= 5 * threads
    # an extra copy only where the receipt says that the primary may have one
    assert report.duplicates <= sum(count for (_, ambiguous), count in stored_in.items() if ambiguous)


@pytest.mark.spec("P-2", "G-12")
def test_more_threads_that_send_at_once_than_links_are_opened_at_once_are_no_outage(pairing) -> None:
    client = pairing.client(interval=0)
    runtime_of(client)._workers._most = 2  # instead of 64, which a web service with 100 threads would exceed
    sender = client.get_queue_sender("orders")
    together, stored_in = threading.Barrier(8), []

    def work() -> None:
        together.wait(60)
        stored_in.append(sender.send_messages(ServiceBusMessage("x")).stored_in)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert stored_in == [StoredIn.PRIMARY] * 8
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-2")
def test_the_receiver_is_the_primarys_own(pairing) -> None:
    client = pairing.client()
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
        (message,) = receiver.receive_messages(1)
        receiver.complete_message(message)
    assert pairing.primary.counts("orders").total == 0


@pytest.mark.spec("F-19")
def test_a_forked_child_opens_its_own_links(pairing) -> None:
    client = pairing.client()
    pairing.wait_for(BacklogsCreated)  # no background thread is busy during the fork
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("parent"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = (
                0 if sender.send_messages(ServiceBusMessage("child")).stored_in is StoredIn.PRIMARY else 2
            )
        finally:
            os._exit(status)
    assert exit_code_of(child) == 0
    sender.send_messages(ServiceBusMessage("parent again"))
    assert pairing.bodies(pairing.primary, "orders") == [b"parent", b"child", b"parent again"]


@pytest.mark.spec("P-1")
def test_closing_ends_a_hanging_send(pairing) -> None:
    client = pairing.client(interval=60, timeout=60)
    sender = client.get_queue_sender("orders")
    pairing.primary.take_down("silent")
    raised: list[Exception] = []

    def work() -> None:
        try:
            sender.send_messages(ServiceBusMessage("x"))
        except Exception as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    while not any(thread.name == "sbpair-open" for thread in threading.enumerate()):
        worker.join(0.05)
    client.close()
    worker.join(60)
    pairing.primary.bring_up()
    assert not worker.is_alive()
    assert raised


@pytest.mark.spec("P-6")
def test_a_callback_that_raises_does_not_disturb_the_send(pairing) -> None:
    client = pairing.client(interval=0, ping=60)
    stop = client.on_event(lambda event: 1 / 0)
    client.fail_over("orders")
    assert (
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")).stored_in is StoredIn.BACKLOG
    )
    stop()


@pytest.mark.spec("P-2", "G-18", "F-31", "S-6")
def test_over_tls_a_message_is_sent_and_an_unknown_certificate_is_a_configuration_error(pairing) -> None:
    def over_tls(verify: str | None) -> PairedServiceBusClient:
        texts = [
            ns.connection_string.replace(";UseDevelopmentEmulator=true", "").replace(
                f"localhost:{ns.port}", f"{ns.name}.servicebus.windows.net"
            )
            for ns in (pairing.primary, pairing.secondary)
        ]
        return PairedServiceBusClient.from_connection_strings(
            *texts,
            connection_verify=verify,
            custom_endpoint_address=f"sb://localhost:{pairing.primary.port}",
            secondary_custom_endpoint_address=f"sb://localhost:{pairing.secondary.port}",
            options=PairedNamespaceOptions(assume_backlogs_exist=True, failover_interval=timedelta(0)),
        )

    with over_tls(str(pairing.broker.ca_file)) as client:
        assert client.primary.label == "contoso"
        assert (
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")).stored_in
            is StoredIn.PRIMARY
        )
    with over_tls(None) as client:
        with pytest.raises(ServiceBusError, match="certificate"):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("G-18", "F-25")
def test_a_peer_that_is_silent_in_the_tls_handshake_does_not_hold_a_send(pairing) -> None:
    pairing.primary.take_down("silent")
    text = "Endpoint=sb://{};SharedAccessKeyName=R;SharedAccessKey=K"
    with PairedServiceBusClient.from_connection_strings(
        text.format("one.servicebus.windows.net"),
        text.format("two.servicebus.windows.net"),
        custom_endpoint_address=f"sb://localhost:{pairing.primary.port}",
        secondary_custom_endpoint_address=f"sb://localhost:{pairing.secondary.port}",
        options=PairedNamespaceOptions(assume_backlogs_exist=True, suspect_policy="raise"),
    ) as client:
        with Stopwatch() as watch, pytest.raises(OperationTimeoutError):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=1)
        assert watch.seconds < 2.5
        pairing.primary.bring_up()  # ends the abandoned handshake


@pytest.mark.spec("P-3")
def test_no_send_is_raised_within_the_interval(pairing) -> None:
    client = pairing.client(interval=60, ping=60)
    pairing.wait_for(BacklogsCreated)
    pairing.primary.take_down("refuse")
    sender = client.get_queue_sender("orders")
    assert [sender.send_messages(ServiceBusMessage(str(n))).stored_in for n in range(3)] == [
        StoredIn.BACKLOG
    ] * 3
    assert client.state_of("orders") is EntityState.SUSPECT
    pairing.primary.bring_up()
    assert sender.send_messages(ServiceBusMessage("home")).stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-33")
def test_a_hold_lasts_until_it_is_released(pairing) -> None:
    client = pairing.client(ping=1)
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    assert sender.send_messages(ServiceBusMessage("held")).stored_in is StoredIn.BACKLOG
    assert client.pings_sent == 0
    client.release("orders")
    pairing.wait_for(EntityRecovered)
    assert sender.send_messages(ServiceBusMessage("home")).stored_in is StoredIn.PRIMARY
