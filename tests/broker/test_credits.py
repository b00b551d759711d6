"""Throttling: operations per second, and the limits of connections and receivers."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, BrokerError, ManualClock
from sbpair.broker.entities import (
    Namespace,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.quotas import Credits, Tier
from sbpair.broker.errors import AdministrationBusyError, InvalidDescriptionError, ServerBusyError
from sbpair.broker.frontends.amqp import attach
from sbpair.pair.amqp.events import ConnectionClosed, DispositionReceived, MessageReceived
from sbpair.pair.amqp.performatives import Accepted, Rejected
from sbpair.pair.amqp.types import Int
from tests.broker.test_management import manage
from tests.waiting import wait_until

NOON = 1_800_000_000_000
WORDS = (
    "The request was terminated because the namespace contoso is being throttled. Error code : 50009. "
    "Please wait 2 seconds and try again."
)
EMPTY = b"\x00\x53\x75\xa0\x00"  # a message with an empty body


def test_all_credits_are_renewed_every_second():
    credits = Credits(3)
    for _ in range(3):
        credits.check(NOON)
        credits.charge(1, NOON + 500)
    with pytest.raises(ServerBusyError, match="Error code : 50009"):
        credits.check(NOON + 999)
    credits.check(NOON + 1000)


def test_an_operation_begun_with_credits_completes_whatever_it_costs():
    credits = Credits(3)
    credits.check(NOON)
    credits.charge(500, NOON)
    with pytest.raises(ServerBusyError):
        credits.check(NOON)
    credits.check(NOON + 1000)  # and is not carried over


def test_administration_costs_ten_credits_and_is_throttled_with_its_own_error():
    credits = Credits(15)
    credits.spend_on_administration("contoso", NOON)
    credits.spend_on_administration("contoso", NOON)
    with pytest.raises(AdministrationBusyError, match="the namespace contoso is being throttled") as refused:
        credits.spend_on_administration("contoso", NOON)
    assert (refused.value.status, refused.value.sub_code) == (429, 50004)


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_limit_of_zero_credits_is_a_configuration_error(wrong):
    with pytest.raises(InvalidDescriptionError, match=f"credits_per_second is {wrong}"):
        Credits(wrong)


def test_throttling_is_off_by_default_and_never_applies_to_premium():
    for namespace in (Namespace("a"), Namespace("b", tier=Tier.PREMIUM, credits_per_second=1)):
        namespace.credits.charge(10**9, NOON)
        namespace.credits.check(NOON)
    assert Namespace("c", tier=Tier.BASIC, credits_per_second=1).credits.per_second == 1


def test_a_send_without_credits_is_rejected_in_the_words_of_the_service(lab):
    lab.queue()
    lab.namespace.credits = Credits(2)
    client = lab.client()
    link = client.sender("orders")
    answers = [client.send(link, EMPTY) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Accepted, Accepted, Rejected]
    error = answers[2].error
    assert (error.symbol, error.description.startswith(WORDS)) == ("com.microsoft:server-busy", True)
    lab.advance(entity=1000)
    assert isinstance(client.send(link, EMPTY), Accepted)


def test_a_delivery_costs_credits_and_is_never_refused(lab):
    queue = lab.queue()
    lab.namespace.credits = Credits(4)
    client = lab.client()
    link = client.sender("orders")
    for _ in range(3):
        client.send(link, EMPTY)
    client.receiver("orders", credit=10, deletes=True)
    assert queue.counts(lab.now.entity).active == 0
    assert isinstance(client.send(link, EMPTY), Rejected)


def test_a_batch_sent_costs_the_sum_of_its_messages(lab):
    lab.queue()
    lab.namespace.credits = Credits(2)
    client = lab.client()
    link = client.sender("orders")
    for number in range(4):
        link.transfer(EMPTY, tag=bytes((number,)))
    lab.run()
    answers = [
        type(each.state)
        for each in client.take(DispositionReceived)
        for _ in range(each.first, each.last + 1)
    ]
    assert answers == [Accepted, Accepted, Rejected, Rejected]


@pytest.mark.parametrize("drain", [False, True])
def test_a_batch_delivered_costs_the_sum_of_its_messages(lab, drain):
    lab.queue()
    client = lab.client()
    link = client.sender("orders")
    for _ in range(4):
        client.send(link, EMPTY)
    lab.namespace.credits = Credits(4)
    client.receiver("orders").flow(10, drain=drain)
    lab.run()
    assert len(client.take(MessageReceived)) == 4
    assert isinstance(client.send(link, EMPTY), Rejected)


def test_a_published_message_costs_one_extra_credit_for_each_filter(lab):
    now = lab.now.entity
    topic = lab.namespace.create_topic("events", TopicDescription(), now)
    for name in ("a", "b", "c"):
        lab.namespace.create_subscription("events", name, SubscriptionDescription(), now)
    lab.namespace.credits = credits = Credits(8)
    credits.charge_messages(topic, 1, now)
    credits.check(now)
    credits.charge_messages(topic, 1, now)
    with pytest.raises(ServerBusyError):
        credits.check(now)


@pytest.mark.parametrize(("path", "cost"), [("orders", 2), ("events", 8)])
@pytest.mark.parametrize("spare", [0, 1])
def test_scheduling_costs_as_much_as_sending_including_topic_filters(lab, path, cost, spare):
    now = lab.now.entity
    lab.queue()
    lab.namespace.create_topic("events", TopicDescription(), now)
    for name in ("a", "b", "c"):
        lab.namespace.create_subscription("events", name, SubscriptionDescription(), now)
    client, node = lab.client(), f"{path}/$management"
    manage(client, "peek-message", {"from-sequence-number": 1, "message-count": Int(1)}, node)
    lab.namespace.credits = Credits(cost + spare)
    code, _, _ = manage(client, "schedule-message", {"messages": [{"message": EMPTY}] * 2}, node)
    assert code == 200
    code, condition, _ = manage(client, "cancel-scheduled-message", {"sequence-numbers": [9]}, node)
    assert condition == ("com.microsoft:message-not-found" if spare else "com.microsoft:server-busy")


def test_a_throttled_sdk_client_continues_in_the_next_second():
    clock = ManualClock()
    with Broker({"contoso": 0}, clock=clock, credits_per_second=12) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage("x") for _ in range(12)])
            with pytest.raises(ServiceBusServerBusyError, match="Error code : 50009"):
                sender.send_messages(ServiceBusMessage("x"))
            broker.advance(1000)
            sender.send_messages(ServiceBusMessage("x"))
        broker.advance(1000)
        with ServiceBusAdministrationClient.from_connection_string(
            contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
        ) as administration:
            administration.get_queue("orders")
            administration.get_queue("orders")
            with pytest.raises(HttpResponseError, match="SubCode=50004") as refused:
                administration.get_queue("orders")
            assert refused.value.status_code == 429


def test_a_connection_above_the_limit_is_closed_with_the_reason(lab):
    client, crowded = lab.client(), lab.client(is_refused=True)
    (closed,) = crowded.take(ConnectionClosed)
    assert closed.condition.symbol == "amqp:resource-limit-exceeded"
    assert "There are 5000 connections to the namespace already" in closed.condition.description
    assert client.take(ConnectionClosed) == []


def test_open_connections_are_counted_per_port(monkeypatch):
    monkeypatch.setattr("sbpair.broker.server.wire.MAX_CONNECTIONS", 1)
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            with client.get_queue_sender("orders") as first:
                first.send_messages(ServiceBusMessage("x"))
                with pytest.raises(ServiceBusError), client.get_queue_sender("orders") as second:
                    second.send_messages(ServiceBusMessage("x"))
            wait_until(lambda: not contoso.inspect(lambda server: len(server.wires)))
            with client.get_queue_sender("orders") as third:
                third.send_messages(ServiceBusMessage("x"))
        refused = contoso.inspect(lambda server: server.frontend.rejections.by_condition)
        assert dict(refused) == {"amqp:resource-limit-exceeded": 1}
        assert contoso.counts("orders").active == 2


def test_a_receiver_above_the_limit_of_an_entity_is_refused(lab, monkeypatch):
    lab.queue()
    monkeypatch.setattr(attach, "MAX_RECEIVERS", 3)
    client = lab.client()
    links = [client.receiver("orders") for _ in range(4)]
    assert [link.is_refused for link in links] == [False, False, False, True]
    assert client.sender("orders").is_open


def test_premium_does_not_mix_partitioned_and_plain_entities():
    premium = Namespace("contoso", tier=Tier.PREMIUM)
    premium.create_queue("orders", QueueDescription(max_message_size_in_kilobytes=102_400), NOON)
    with pytest.raises(InvalidDescriptionError, match="chosen for a whole namespace"):
        premium.create_queue("spread", QueueDescription(enable_partitioning=True), NOON)


def test_an_unknown_tier_is_named():
    with pytest.raises(BrokerError, match="The tier is 'Gold': use one of Basic, Standard, Premium"):
        Broker({"contoso": 0}, tier="Gold")
