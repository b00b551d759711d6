"""Expired messages and the unmodified SDK: what it still peeks, and what it never receives.

The test advances the broker's entity clock but not the SDK's clock; spans are hours, so that a
second more or less does not matter.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.amqp import AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker, ShiftedClock
from tests.broker.wire.elsewhere import entity_time, fresh
from tests.waiting import until, wait_until

HOUR = timedelta(hours=1)
IN_MS = 3_600_000
EXPIRED = "TTLExpiredException"
DEAD = ServiceBusSubQueue.DEAD_LETTER


@pytest.fixture(scope="module")
def broker():
    """A broker for this module only, because its clock is advanced by days."""
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as running:
        yield running


@pytest.fixture(scope="module")
def contoso(broker):
    return broker.namespace("contoso")


@pytest.fixture
def administration(broker, contoso):
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as opened:
        yield opened


@pytest.fixture
async def aio(contoso):
    async with AsyncClient.from_connection_string(contoso.connection_string, retry_total=0) as opened:
        yield opened


def send(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def bodies(messages):
    return [str(message) for message in messages]


def dead_letters(client, queue):
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        found = receiver.receive_messages(9, max_wait_time=0.3)
        return [(str(message), message.dead_letter_reason) for message in found]


@pytest.mark.spec("T-1", "T-2", "T-4", "T-7")
def test_an_expired_message_is_counted_and_peeked_but_never_received(client, contoso, make_queue, broker):
    queue = make_queue()
    send(client, queue, ServiceBusMessage("short", time_to_live=HOUR), ServiceBusMessage("long"))
    broker.advance(2 * HOUR)
    assert contoso.counts(queue).active == 2
    with client.get_queue_receiver(queue) as receiver:
        corpse, _ = receiver.peek_messages(2)
        assert corpse.expires_at_utc == corpse.enqueued_time_utc + HOUR
        assert corpse.expires_at_utc < entity_time(contoso)

        assert bodies(receiver.receive_messages(2, max_wait_time=30)) == ["long"]
        assert bodies(receiver.peek_messages(2, sequence_number=1)) == ["long"]
    assert contoso.counts(queue).total == 1


@pytest.mark.spec("T-2", "T-10")
def test_receive_and_delete_never_returns_an_expired_message(client, contoso, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    send(client, queue, ServiceBusMessage("short", time_to_live=HOUR))
    broker.advance(2 * HOUR)
    with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
    assert (contoso.counts(queue).active, contoso.counts(queue).dead_letter) == (0, 1)


@pytest.mark.spec("T-3", "T-11")
@pytest.mark.parametrize("settle", ["complete_message", "abandon_message"])
def test_a_locked_message_does_not_expire_until_it_is_settled(client, contoso, make_queue, broker, settle):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    send(client, queue, ServiceBusMessage("short", time_to_live=timedelta(seconds=20)))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        broker.advance(timedelta(seconds=30))
        getattr(receiver, settle)(message)
    expected = {"complete_message": [], "abandon_message": [("short", EXPIRED)]}
    assert dead_letters(client, queue) == expected[settle]
    assert contoso.counts(queue).active == 0


@pytest.mark.spec("T-6")
def test_the_default_time_to_live_of_the_entity_is_also_its_maximum(client, make_queue, broker):
    queue = make_queue(default_message_time_to_live=IN_MS)
    send(client, queue, ServiceBusMessage("none"), ServiceBusMessage("longer", time_to_live=3 * HOUR))
    with client.get_queue_receiver(queue) as receiver:
        none, longer = receiver.peek_messages(2)
        assert (none.time_to_live, longer.time_to_live) == (None, HOUR)
        broker.advance(2 * HOUR)
        assert receiver.receive_messages(2, max_wait_time=0.3) == []


@pytest.mark.spec("T-6")
def test_messages_without_a_time_to_live_follow_a_changed_default(client, administration, make_queue, broker):
    queue = make_queue(default_message_time_to_live=IN_MS)
    send(client, queue, ServiceBusMessage("own", time_to_live=HOUR), ServiceBusMessage("follows"))
    asked = administration.get_queue(queue)
    asked.default_message_time_to_live = 3 * HOUR
    administration.update_queue(asked)
    broker.advance(2 * HOUR)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(2, max_wait_time=30)
        assert (str(message), message.time_to_live) == ("follows", 3 * HOUR)
        receiver.complete_message(message)


@pytest.mark.spec("T-8")
def test_the_default_time_to_live_is_the_largest_span(administration, make_queue):
    span = administration.get_queue(make_queue()).default_message_time_to_live
    assert span // timedelta(microseconds=1) in ((2**63 - 1) // 10, (2**63 - 1) // 10 + 1)


@pytest.mark.spec("T-1")
def test_a_time_to_live_longer_than_the_header_holds_is_kept(client, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    for days in (60, 70):  # the header holds 49.7 days: the SDK's time_to_live raises, two instants do not
        message = ServiceBusMessage(str(days))
        message.raw_amqp_message.properties = AmqpMessageProperties(
            creation_time=IN_MS, absolute_expiry_time=IN_MS + days * 24 * IN_MS
        )
        send(client, queue, message)
    broker.advance(timedelta(days=59))
    with client.get_queue_receiver(queue) as receiver:
        assert bodies(receiver.peek_messages(2)) == ["60", "70"]
        broker.advance(timedelta(days=2))
        (message,) = receiver.receive_messages(2, max_wait_time=30)
        assert str(message) == "70"
        receiver.abandon_message(message)
    assert dead_letters(client, queue) == [("60", EXPIRED)]


@pytest.mark.spec("T-10")
def test_an_expired_dead_letter_has_its_reason_and_source(client, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    properties = {"colour": "blue"}
    send(client, queue, ServiceBusMessage("x", time_to_live=HOUR, application_properties=properties))
    broker.advance(2 * HOUR)
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        (message,) = receiver.receive_messages(1)
        assert message.application_properties == {
            b"colour": b"blue",
            b"DeadLetterReason": b"TTLExpiredException",
            b"DeadLetterErrorDescription": b"The message expired and was dead lettered.",
        }
        assert message.dead_letter_source is None
        receiver.complete_message(message)


class TestIdleDeletion:
    @pytest.fixture
    def temporary(self, administration):
        """A new queue that is deleted automatically after an idle hour."""
        name = fresh("temporary")
        administration.create_queue(name, auto_delete_on_idle=HOUR)
        return name

    @pytest.mark.spec("T-20")
    def test_an_idle_queue_is_deleted_for_every_client(self, administration, client, temporary, broker):
        assert administration.get_queue(temporary).auto_delete_on_idle == HOUR
        broker.advance(HOUR)
        with pytest.raises(ResourceNotFoundError):
            administration.get_queue(temporary)
        with pytest.raises(ServiceBusError):  # the token is refused before the link attaches
            send(client, temporary, ServiceBusMessage("x"))

    @pytest.mark.spec("T-20", "T-21")
    def test_an_attached_sender_does_not_keep_an_idle_queue(self, client, temporary, broker):
        with client.get_queue_sender(temporary) as sender:
            broker.advance(HOUR)
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("x"))

    @pytest.mark.spec("T-21")
    def test_a_peek_through_the_sdk_keeps_an_idle_queue(self, administration, client, temporary, broker):
        broker.advance(timedelta(minutes=40))
        with client.get_queue_receiver(temporary) as receiver:
            receiver.peek_messages(1)
        broker.advance(timedelta(minutes=40))
        assert administration.get_queue_runtime_properties(temporary).accessed_at_utc is not None

    @pytest.mark.spec("T-21")
    async def test_a_reply_queue_lives_while_the_asyncio_client_waits_on_it(
        self, aio, contoso, temporary, broker
    ):
        async with aio.get_queue_receiver(temporary) as receiver, aio.get_queue_sender(temporary) as sender:
            polls = contoso.operations.polls
            reply = asyncio.ensure_future(receiver.receive_messages(1, max_wait_time=20))
            await until(lambda: contoso.operations.polls > polls)  # the receiver has issued credit
            broker.advance(24 * HOUR)
            await sender.send_messages(ServiceBusMessage("reply"))
            assert bodies(await reply) == ["reply"]

    @pytest.mark.spec("T-20", "T-21")
    async def test_the_asyncio_administration_client_makes_temporary_subscriptions(self, broker, contoso):
        async with AsyncAdministrationClient.from_connection_string(
            contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
        ) as administration:
            topic = fresh("topic")
            await administration.create_topic(topic)
            await administration.create_subscription(topic, "mine", auto_delete_on_idle=HOUR)
            broker.advance(HOUR)
            assert [each.name async for each in administration.list_subscriptions(topic)] == []
            assert (await administration.get_topic(topic)).name == topic


@pytest.mark.client("sbpair")
@pytest.mark.spec("T-20", "P-11")
def test_a_backlog_queue_created_by_a_pairing_is_never_deleted_as_idle(broker, contoso):
    secondary = broker.namespace("contoso-dr")
    secondary.create_queue("witness", auto_delete_on_idle=IN_MS)
    options = PairedNamespaceOptions(primary_namespace_name="contoso", backlog_queue_count=2)
    with PairedServiceBusClient.from_connection_strings(
        contoso.connection_string,
        secondary.connection_string,
        options=options,
        connection_verify=str(broker.ca_file),
    ):
        wait_until(lambda: len(secondary.queue_names()) == 3)
    broker.advance(timedelta(days=36_500))

    assert secondary.queue_names() == [f"contoso/x-servicebus-transfer/{number}" for number in range(2)]


@pytest.mark.spec("T-8")
def test_basic_has_a_default_and_maximum_time_to_live_of_fourteen_days():
    with (
        Broker({"contoso": 0}, tier="Basic") as basic,
        ServiceBusAdministrationClient.from_connection_string(
            basic.namespace("contoso").connection_string, connection_verify=str(basic.ca_file), retry_total=0
        ) as administration,
    ):
        assert administration.get_namespace_properties().messaging_sku == "Basic"
        made = administration.create_queue("orders")
        assert made.default_message_time_to_live == timedelta(days=14)
        made.max_delivery_count = 3
        administration.update_queue(made)
        with pytest.raises(HttpResponseError, match="at most 14 days"):
            administration.create_queue("longer", default_message_time_to_live=timedelta(days=15))
        with pytest.raises(HttpResponseError, match="Topics are not allowed"):
            administration.create_topic("news")
