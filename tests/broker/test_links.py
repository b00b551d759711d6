"""A client's links to queues, frame by frame without a socket, and the answer to each."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from sbpair.amqp.encoding import encode
from sbpair.amqp.events import DispositionReceived, LinkAttached, LinkDetached, MessageReceived
from sbpair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Rejected,
    Source,
    Target,
)
from sbpair.amqp.sections import Section, decode_map_section, encode_map_section, split
from sbpair.amqp.types import Described, Symbol, Timestamp, UInt, ULong
from sbpair.broker.faults import (
    AnswerReleased,
    Delay,
    FaultRule,
    Operation,
    RejectWith,
    TwoFieldError,
    Withhold,
)
from sbpair.broker.frontends.delivered_message import encode_peeked
from sbpair.broker.frontends.received_message import BATCH

NOON = 1_800_000_000_000
MINUTE = 60_000
HELLO = Message(properties=Properties(message_id="one"), body=DataBody((b"hello",))).encode()


def refusal(client):
    """Return the condition of the single refused attach."""
    (attached,) = client.take(LinkAttached)
    (detached,) = client.take(LinkDetached)
    attach = attached.attach
    assert attach.source is None or attach.target is None
    assert detached.closed
    return detached.condition


def assert_tracked(condition, path):
    for part in ("TrackingId:", f"SystemTracker:contoso:Queue:{path}", "Timestamp:2027-01-15T08:00:00"):
        assert part in condition.description


class TestAttaching:
    def test_a_sender_is_told_the_largest_message(self, lab):
        lab.queue(max_message_size_in_kilobytes=128)
        client = lab.client()
        link = client.sender("amqps://localhost:5671/Orders")

        assert link.is_open
        assert link.remote_attach.max_message_size == 128 * 1024
        assert link.remote_attach.properties["com.microsoft:max-message-batch-size"] == 128 * 1024
        assert link.remote_attach.source is not None

    def test_a_receivers_source_goes_back_as_it_came(self, lab):
        lab.queue()
        link = lab.client().receiver("amqps://LOCALHOST/oRdErs")

        assert link.remote_attach.source.address == "amqps://LOCALHOST/oRdErs"
        assert link.remote_attach.initial_delivery_count is not None

    @pytest.mark.parametrize("direction", ["sender", "receiver"])
    def test_a_queue_that_is_not_there_is_refused_by_attach_and_detach(self, lab, direction):
        client = lab.client()
        getattr(client, direction)("nowhere")

        condition = refusal(client)
        assert condition.symbol == "amqp:not-found"
        assert (
            "'sb://contoso.servicebus.windows.net/nowhere' could not be found. To know more visit"
            in condition.description
        )
        assert_tracked(condition, "nowhere")

    def test_sending_to_a_dead_letter_queue_is_refused(self, lab):
        lab.queue()
        client = lab.client()
        client.sender("orders/$deadletterqueue")

        assert refusal(client).symbol == "amqp:not-allowed"

    def test_a_session_filter_is_refused_where_there_are_no_sessions(self, lab):
        lab.queue()
        client = lab.client()
        client.receiver(
            "orders", source=Source("orders", filter={Symbol("com.microsoft:session-filter"): "s"})
        )

        assert refusal(client).symbol == "amqp:not-allowed"

    def test_a_link_to_no_address_is_not_implemented(self, lab):
        client = lab.client()
        client.session.attach_sender("x", target=Target(), source=Source("x"))
        lab.run()

        assert refusal(client).symbol == "amqp:not-implemented"

    @pytest.mark.parametrize(
        ("status", "direction"),
        [("SendDisabled", "sender"), ("ReceiveDisabled", "receiver"), ("Disabled", "sender")],
    )
    def test_a_disabled_queue_is_refused_in_the_barred_direction(self, lab, status, direction):
        lab.queue(status=status)
        client = lab.client()
        getattr(client, direction)("orders")

        assert refusal(client).symbol == "com.microsoft:entity-disabled"

    def test_one_name_in_both_directions_is_two_links(self, lab):
        lab.queue()
        client = lab.client()
        sender, receiver = client.sender("orders", name="same"), client.receiver("orders", name="same")

        assert sender.is_open
        assert receiver.is_open

    def test_deleting_the_queue_detaches_its_links(self, lab):
        lab.queue()
        client = lab.client()
        client.sender("orders")
        client.receiver("orders", credit=1)
        lab.namespace.delete_queue("orders", NOON)
        lab.run()

        conditions = [event.condition.symbol for event in client.take(LinkDetached)]
        assert conditions == ["amqp:resource-deleted"] * 2


class TestSending:
    @pytest.fixture
    def sender(self, lab):
        lab.queue()
        client = lab.client()
        return client, client.sender("orders")

    def test_it_is_accepted_and_settled(self, lab, sender):
        client, link = sender

        assert client.send(link, HELLO) == ACCEPTED
        assert lab.namespace.queue("orders").counts(NOON).active == 1

    def test_the_bare_message_leaves_bit_for_bit_as_it_came(self, lab, sender):
        client, link = sender
        bare = b"\x00\x53\x73\xd0\x00\x00\x00\x08\x00\x00\x00\x01\xa1\x02id"  # list32 where list8 would do
        bare += encode_map_section(Section.APPLICATION_PROPERTIES, {"a": UInt(5), "b": 2**40})
        bare += b"\x00\x53\x75\xa0\x01x\x00\x53\x75\xb0\x00\x00\x00\x01y\x00\x53\x78\xc1\x01\x00"
        annotations = encode_map_section(Section.MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): "k"})
        header = b"\x00\x53\x70\xc0\x04\x02\x41\x50\x07"
        assert client.send(link, header + annotations + bare) == ACCEPTED
        client.receiver("orders", credit=1)

        (got,) = client.take(MessageReceived)
        sections = split(got.payload)
        assert got.payload.endswith(bare)
        kept = decode_map_section(sections.message_annotations)
        assert kept["x-opt-partition-key"] == "k"
        assert Message.decode(got.payload).header == Header(True, 7, None, None, 0)

    def test_the_brokers_annotations_replace_a_senders_own(self, lab, sender):
        client, link = sender
        forged = Message(message_annotations={Symbol("x-opt-sequence-number"): 99, Symbol("x-opt-mine"): "m"})
        client.send(link, forged.encode() + HELLO)
        client.receiver("orders", credit=1)

        (got,) = client.take(MessageReceived)
        annotations = Message.decode(got.payload).message_annotations
        assert annotations["x-opt-sequence-number"] == 1
        assert annotations["x-opt-mine"] == "m"
        assert annotations["x-opt-enqueued-time"] == Timestamp(NOON)
        assert annotations["x-opt-locked-until"] == Timestamp(NOON + MINUTE)

    @pytest.mark.parametrize("payload", [b"", Message(body=ValueBody(None)).encode()])
    def test_a_message_without_an_id_is_given_one(self, lab, sender, payload):
        client, link = sender
        client.send(link, payload)
        client.receiver("orders", credit=1)

        (got,) = client.take(MessageReceived)
        assert Message.decode(got.payload).properties.message_id

    @pytest.mark.parametrize(
        "payload",
        [
            b"garbage",
            HELLO[:-1],
            b"\x00\x53\x75\xa0\x00" + HELLO,
            b"\x00\x53\x73\xc0\x04\x01\xa1\x02\xff\xff",
        ],
    )
    def test_what_is_no_message_is_rejected_and_the_link_lives(self, lab, sender, payload):
        client, link = sender
        state = client.send(link, payload)

        assert isinstance(state, Rejected)
        assert state.error.symbol == "amqp:decode-error"
        assert_tracked(state.error, "orders")
        assert client.send(link, HELLO) == ACCEPTED

    def test_a_message_id_may_have_128_characters_and_no_more(self, lab, sender):
        client, link = sender

        assert client.send(link, Message(properties=Properties(message_id="x" * 128)).encode()) == ACCEPTED
        state = client.send(link, Message(properties=Properties(message_id="x" * 129)).encode())
        assert state.error.symbol == "com.microsoft:argument-error"

    def test_a_batch_is_stored_message_by_message(self, lab, sender):
        client, link = sender
        batch = Message(body=DataBody((HELLO, HELLO, HELLO))).encode()

        assert client.send(link, batch, message_format=BATCH) == ACCEPTED
        assert lab.namespace.queue("orders").counts(NOON).active == 3

    @pytest.mark.parametrize(
        "body", [None, ValueBody("x"), DataBody((HELLO, b"garbage")), DataBody((HELLO, HELLO[:-1]))]
    )
    def test_a_batch_with_one_bad_message_is_refused_whole(self, lab, sender, body):
        client, link = sender
        state = client.send(link, Message(body=body).encode(), message_format=BATCH)

        assert state.error.symbol == "amqp:decode-error"
        assert lab.namespace.queue("orders").counts(NOON).total == 0

    def test_a_message_over_the_limit_is_rejected(self, lab, sender):
        client, link = sender
        state = client.send(link, Message(body=DataBody((bytes(257 * 1024),))).encode())

        assert state.error.symbol == "amqp:link:message-size-exceeded"
        assert client.send(link, HELLO) == ACCEPTED

    @pytest.mark.parametrize("bad", [b"\x00", Message(body=DataBody((bytes(257 * 1024),))).encode()])
    def test_of_messages_that_come_together_only_the_bad_one_is_refused(self, lab, sender, bad):
        client, link = sender
        numbers = [link.transfer(each, tag=bytes((n,))) for n, each in enumerate((HELLO, bad, HELLO))]
        lab.run()
        answers = {
            number: event.state
            for event in client.take(DispositionReceived)
            for number in range(event.first, event.last + 1)
        }

        assert [isinstance(answers[number], Accepted) for number in numbers] == [True, False, True]
        assert lab.namespace.queue("orders").counts(NOON).active == 2

    def test_messages_that_come_together_are_accepted_in_one_range(self, lab, sender):
        client, link = sender
        first, *_, last = [link.transfer(HELLO, tag=bytes((n,))) for n in range(10)]
        lab.run()
        (answer,) = client.take(DispositionReceived)

        assert (answer.first, answer.last, answer.state) == (first, last, ACCEPTED)
        assert lab.namespace.queue("orders").counts(NOON).active == 10

    def test_a_limit_that_was_lowered_since_holds_too(self, lab, sender):
        client, link = sender
        queue = lab.namespace.queue("orders")
        lowered = type(queue.description)(max_message_size_in_kilobytes=1)
        lab.namespace.update_queue("orders", lowered, NOON)
        state = client.send(link, Message(body=DataBody((bytes(2048),))).encode())

        assert state.error.symbol == "amqp:link:message-size-exceeded"

    def test_a_full_queue_rejects_with_the_quota_condition(self, lab, sender, message):
        client, link = sender
        queue = lab.namespace.queue("orders")
        queue.enqueue(message(bare=bytes(1024 * 1024 * 1024 - 200)), NOON)
        while isinstance(state := client.send(link, HELLO), Accepted):
            pass  # the last one exceeds the quota

        assert state.error.symbol == "amqp:resource-limit-exceeded"
        assert "maximum entity size" in state.error.description

    @pytest.mark.parametrize(
        ("sent", "stored"),
        [
            (Header(ttl=5_000), 5_000),
            (Header(ttl=0), None),
            (Header(), None),
        ],
    )
    def test_the_time_to_live_is_the_headers(self, lab, sender, sent, stored):
        client, link = sender
        client.send(link, Message(header=sent).encode() + HELLO)

        assert lab.namespace.queue("orders").receive(NOON).time_to_live == stored

    @pytest.mark.spec("T-1", "T-2")
    def test_it_is_counted_in_milliseconds(self, lab, sender):
        client, link = sender
        client.send(link, Message(header=Header(ttl=500)).encode() + HELLO)
        queue = lab.namespace.queue("orders")

        assert queue.peek(1, 1, NOON)[0].expires_at == NOON + 500
        assert queue.receive(NOON + 500) is None

    @pytest.mark.spec("T-1")
    def test_a_span_too_long_for_the_header_travels_as_two_instants(self, lab, sender):
        client, link = sender
        span = timedelta(days=100) // timedelta(milliseconds=1)
        properties = Properties(message_id="x", creation_time=5, absolute_expiry_time=5 + span)
        client.send(link, Message(header=Header(ttl=2**32 - 1), properties=properties).encode())

        assert lab.namespace.queue("orders").receive(NOON).time_to_live == span

    @pytest.mark.spec("P-30", "P-31")
    @pytest.mark.parametrize(
        "name", ["application/vnd.ms-servicebus-ping", "Application/VND.MS-ServiceBus-Ping"]
    )
    def test_a_ping_is_known_by_its_content_type(self, lab, sender, name):
        client, link = sender
        assert (
            client.send(link, Message(properties=Properties(message_id="p", content_type=name)).encode())
            == ACCEPTED
        )
        client.receiver("orders", credit=5)

        assert client.take(MessageReceived) == []
        assert lab.namespace.operations.pings == 1

    def test_more_than_the_first_credit_can_be_sent(self, lab, sender):
        client, link = sender
        for _ in range(2500):
            assert link.credit > 0
            assert client.send(link, HELLO) == ACCEPTED


class TestFaults:
    def test_each_fault_answers_as_it_is_named(self, lab):
        queue = lab.queue()
        client = lab.client()
        link = client.sender("orders")
        answers = {
            AnswerReleased(): RELEASED,
            Withhold(): None,
        }
        for fault, answer in answers.items():
            active = lab.frontend.set_fault(FaultRule(fault, "Orders"), lab.now.idle)
            assert client.send(link, HELLO) == answer
            lab.frontend.faults.remove(active)
            assert active.hits == 1
        assert queue.counts(NOON).active == 1  # stored, although the answer was withheld

        busy = RejectWith("com.microsoft:server-busy", "Busy.")
        lab.frontend.set_fault(FaultRule(busy, "orders"), lab.now.idle)
        state = client.send(link, HELLO)
        assert state.error.symbol == "com.microsoft:server-busy"
        assert state.error.description.startswith("Busy. TrackingId:")

    def test_the_two_field_error_leaves_the_third_field_out(self, lab):
        lab.queue()
        client = lab.client()
        link = client.sender("orders")
        two = TwoFieldError("amqp:internal-error", "two")
        fault = lab.frontend.set_fault(FaultRule(two, "orders"), lab.now.idle)
        link.transfer(HELLO, tag=b"1")
        client.server.receive_data(client.engine.data_to_send(), lab.now)
        raw = client.server.data_to_send()

        error = encode(Described(ULong(0x1D), [Symbol("amqp:internal-error"), "two"]))
        assert error in raw
        client.engine.receive_data(raw, lab.now.connection)
        assert fault.hits == 1


class TestReceiving:
    @pytest.fixture
    def stocked(self, lab):
        lab.queue()
        client = lab.client()
        link = client.sender("orders")
        for i in range(3):
            client.send(
                link, Message(properties=Properties(message_id=f"m{i}"), body=DataBody((b"x",))).encode()
            )
        return client

    def ids(self, client):
        return [Message.decode(event.payload).properties.message_id for event in client.take(MessageReceived)]

    def test_no_credit_no_message(self, stocked):
        stocked.receiver("orders")

        assert self.ids(stocked) == []

    def test_credit_is_absolute_and_spent_one_by_one(self, stocked):
        link = stocked.receiver("orders", credit=2)

        assert self.ids(stocked) == ["m0", "m1"]
        assert link.credit == 0

    def test_the_tag_is_the_lock_token_and_ids_begin_at_0(self, stocked, lab):
        stocked.receiver("orders", credit=1)

        (got,) = stocked.take(MessageReceived)
        assert len(got.tag) == 16
        assert got.delivery_id == 0
        assert not got.settled
        lab.namespace.queue("orders").complete(got.tag, NOON)

    def test_receive_and_delete_comes_settled(self, stocked, lab):
        stocked.receiver("orders", credit=5, deletes=True)

        assert [event.settled for event in stocked.take(MessageReceived)] == [True] * 3
        assert lab.namespace.queue("orders").counts(NOON).total == 0

    def test_a_drain_gives_what_there_is_and_takes_the_credit_back(self, stocked, lab):
        link = stocked.receiver("orders")
        link.flow(10, drain=True)
        lab.run()

        assert self.ids(stocked) == ["m0", "m1", "m2"]
        assert link.credit == 0

    @pytest.mark.parametrize(("effect", "came"), [(Delay(1.0), ["m0"]), (Withhold(), [])], ids=str)
    def test_a_delivery_that_a_fault_strikes_has_its_credit_all_the_same(self, lab, stocked, effect, came):
        lab.frontend.set_fault(FaultRule(effect, "orders", Operation.RECEIVE, times=1), lab.now.idle)
        link = stocked.receiver("orders", credit=1)
        assert self.ids(stocked) == []
        lab.advance(connection=1.0)
        lab.run()
        assert self.ids(stocked) == came
        link.flow(1)
        lab.run()
        assert self.ids(stocked) == ["m1"]

    def test_a_delivery_that_comes_too_late_for_its_credit_does_not_come(self, lab, stocked):
        lab.frontend.set_fault(FaultRule(Delay(1.0), "orders", Operation.RECEIVE, times=1), lab.now.idle)
        link = stocked.receiver("orders", credit=1)
        link.flow(1, drain=True)
        lab.run()
        lab.advance(connection=1.0)
        lab.run()
        assert (self.ids(stocked), link.credit) == ([], 0)

    def test_two_receivers_take_turns(self, lab, stocked):
        other = lab.client()
        first, second = other.receiver("orders"), other.receiver("orders")
        first.flow(10)
        second.flow(10)
        lab.run()

        links = [event.link for event in other.take(MessageReceived)]
        assert links == [first, second, first]

    def test_a_waiting_receiver_is_served_by_the_send_itself(self, lab):
        lab.queue()
        receiving, sending = lab.client(), lab.client()
        receiving.receiver("orders", credit=1)
        sending.send(sending.sender("orders"), HELLO)

        assert self.ids(receiving) == ["one"]

    def test_a_waiting_receiver_is_served_when_a_lock_ends(self, lab, stocked):
        stocked.receiver("orders", credit=3)
        stocked.take(MessageReceived)
        other = lab.client()
        other.receiver("orders", credit=1)
        assert self.ids(other) == []
        lab.advance(entity=MINUTE)

        (got,) = other.take(MessageReceived)
        message = Message.decode(got.payload)
        assert (message.properties.message_id, message.header.delivery_count) == ("m0", 1)

    def test_a_client_that_does_not_read_is_handed_nothing_more(self, lab, stocked):
        slow = lab.client()
        slow.receiver("orders")
        slow.server.set_clogged(True, lab.now)
        link = slow.receiver("orders", credit=3)
        assert self.ids(slow) == []

        slow.server.set_clogged(False, lab.now)
        lab.run()
        assert self.ids(slow) == ["m0", "m1", "m2"]
        assert link.credit == 0

    @pytest.mark.spec("P-41")
    def test_a_poll_is_credit_from_zero_and_not_each_flow(self, lab):
        lab.queue()
        client = lab.client()
        link = client.receiver("orders", credit=1)
        for _ in range(5):
            link.flow(1)
            lab.run()
        assert lab.namespace.operations.polls == 1

        link.flow(0)
        lab.run()
        link.flow(1)
        lab.run()
        assert lab.namespace.operations.polls == 2

    def test_a_credit_of_zero_ends_the_wait(self, lab):
        lab.queue()
        client = lab.client()
        link = client.receiver("orders", credit=1)
        link.flow(0)
        lab.run()
        client.send(client.sender("orders"), HELLO)

        assert self.ids(client) == []


@pytest.mark.parametrize("odd", [uuid.UUID(int=5), b"bytes", ULong(7)])
def test_an_id_of_any_type_is_kept_as_it_is(lab, odd):
    lab.queue()
    client = lab.client()
    client.send(client.sender("orders"), Message(properties=Properties(message_id=odd)).encode())
    client.receiver("orders", credit=1)

    (got,) = client.take(MessageReceived)
    kept = Message.decode(got.payload).properties.message_id
    assert (kept, type(kept)) == (odd, type(odd))


class TestDeliveryAnnotations:
    def test_a_locked_delivery_has_its_token_there_too(self, lab):
        lab.queue()
        client = lab.client()
        client.send(client.sender("orders"), HELLO)
        client.receiver("orders", credit=1)

        (delivery,) = client.take(MessageReceived)
        told = decode_map_section(split(delivery.payload).delivery_annotations)
        assert told == {Symbol("x-opt-lock-token"): uuid.UUID(bytes_le=delivery.tag)}

    @pytest.mark.spec("R-51")
    def test_one_that_is_deleted_has_an_empty_map_and_an_empty_tag(self, lab):
        lab.queue()
        client = lab.client()
        client.send(client.sender("orders"), HELLO)
        client.receiver("orders", credit=1, deletes=True)

        (delivery,) = client.take(MessageReceived)
        assert split(delivery.payload).delivery_annotations == b"\x00\x53\x71\xc1\x01\x00"
        assert delivery.tag == b""

    @pytest.mark.parametrize("deletes", [False, True])
    @pytest.mark.parametrize("is_last", [False, True])
    def test_the_senders_own_are_handed_on(self, lab, is_last, deletes):
        lab.queue()
        client = lab.client()
        theirs = encode_map_section(Section.DELIVERY_ANNOTATIONS, {Symbol("mine"): "x"})
        payload = HELLO + theirs if is_last else theirs + HELLO
        assert isinstance(client.send(client.sender("orders"), payload), Accepted)
        client.receiver("orders", credit=1, deletes=deletes)

        (delivery,) = client.take(MessageReceived)
        message = Message.decode(delivery.payload)
        assert message.delivery_annotations[Symbol("mine")] == "x"
        assert message.body == DataBody((b"hello",))
        assert ("x-opt-lock-token" in message.delivery_annotations) is not deletes

    def test_a_look_tells_no_lock_token(self, lab):
        queue = lab.queue()
        client = lab.client()
        client.send(client.sender("orders"), HELLO)
        client.receiver("orders", credit=1)

        (message,) = queue.peek(1, 1, NOON)
        assert split(encode_peeked(message)).delivery_annotations == b""
