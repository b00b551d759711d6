"""A client's links to queues, frame by frame without a socket, and the answer to each."""

from __future__ import annotations

import uuid

import pytest

from sbpair.broker.faults import (
    Delay,
    FaultRule,
    Operation,
    TwoFieldError,
    Withhold,
)
from sbpair.broker.frontends.delivered_message import encode_peeked
from sbpair.broker.frontends.received_message import BATCH
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.events import DispositionReceived, LinkAttached, LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Accepted,
    Rejected,
    Source,
    Target,
)
from sbpair.pair.amqp.sections import Section, decode_map_section, encode_map_section, split
from sbpair.pair.amqp.types import Described, Symbol, Timestamp, UInt, ULong

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
    def test_a_sender_learns_the_largest_message_size(self, lab):
        lab.queue(max_message_size_in_kilobytes=128)
        client = lab.client()
        link = client.sender("amqps://localhost:5671/Orders")

        assert link.is_open
        assert link.remote_attach.max_message_size == 128 * 1024
        assert link.remote_attach.properties["com.microsoft:max-message-batch-size"] == 128 * 1024
        assert link.remote_attach.source is not None

    def test_a_receivers_source_is_echoed_unchanged(self, lab):
        lab.queue()
        link = lab.client().receiver("amqps://LOCALHOST/oRdErs")

        assert link.remote_attach.source.address == "amqps://LOCALHOST/oRdErs"
        assert link.remote_attach.initial_delivery_count is not None

    @pytest.mark.parametrize("direction", ["sender", "receiver"])
    def test_attaching_to_a_missing_queue_is_answered_by_attach_and_detach(self, lab, direction):
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

    def test_a_session_filter_on_a_queue_without_sessions_is_refused(self, lab):
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

    def test_one_link_name_in_both_directions_is_two_links(self, lab):
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

    def test_the_bare_message_is_delivered_bit_for_bit(self, lab, sender):
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

    def test_annotations_of_the_broker_replace_those_of_the_sender(self, lab, sender):
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
    def test_malformed_data_is_rejected_and_the_link_survives(self, lab, sender, payload):
        client, link = sender
        state = client.send(link, payload)

        assert isinstance(state, Rejected)
        assert state.error.symbol == "amqp:decode-error"
        assert_tracked(state.error, "orders")
        assert client.send(link, HELLO) == ACCEPTED

    def test_a_message_id_has_at_most_128_characters(self, lab, sender):
        client, link = sender

        assert client.send(link, Message(properties=Properties(message_id="x" * 128)).encode()) == ACCEPTED
        state = client.send(link, Message(properties=Properties(message_id="x" * 129)).encode())
        assert state.error.symbol == "com.microsoft:argument-error"

    @pytest.mark.parametrize(
        "body", [None, ValueBody("x"), DataBody((HELLO, b"garbage")), DataBody((HELLO, HELLO[:-1]))]
    )
    def test_a_batch_with_one_bad_message_is_refused_whole(self, lab, sender, body):
        client, link = sender
        state = client.send(link, Message(body=body).encode(), message_format=BATCH)

        assert state.error.symbol == "amqp:decode-error"
        assert lab.namespace.queue("orders").counts(NOON).total == 0

    @pytest.mark.parametrize("bad", [b"\x00", Message(body=DataBody((bytes(257 * 1024),))).encode()])
    def test_only_the_bad_message_of_a_group_is_rejected(self, lab, sender, bad):
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

    def test_messages_sent_together_are_accepted_in_one_range(self, lab, sender):
        client, link = sender
        first, *_, last = [link.transfer(HELLO, tag=bytes((n,))) for n in range(10)]
        lab.run()
        (answer,) = client.take(DispositionReceived)

        assert (answer.first, answer.last, answer.state) == (first, last, ACCEPTED)
        assert lab.namespace.queue("orders").counts(NOON).active == 10

    def test_a_lowered_limit_applies_to_an_existing_link(self, lab, sender):
        client, link = sender
        queue = lab.namespace.queue("orders")
        lowered = type(queue.description)(max_message_size_in_kilobytes=1)
        lab.namespace.update_queue("orders", lowered, NOON)
        state = client.send(link, Message(body=DataBody((bytes(2048),))).encode())

        assert state.error.symbol == "amqp:link:message-size-exceeded"

    @pytest.mark.parametrize(
        ("sent", "stored"),
        [
            (Header(ttl=5_000), 5_000),
            (Header(ttl=0), None),
            (Header(), None),
        ],
    )
    def test_the_time_to_live_comes_from_the_header(self, lab, sender, sent, stored):
        client, link = sender
        client.send(link, Message(header=sent).encode() + HELLO)

        assert lab.namespace.queue("orders").receive(NOON).time_to_live == stored

    @pytest.mark.spec("P-30", "P-31")
    @pytest.mark.parametrize(
        "name", ["application/vnd.ms-servicebus-ping", "Application/VND.MS-ServiceBus-Ping"]
    )
    def test_a_ping_is_recognised_by_its_content_type(self, lab, sender, name):
        client, link = sender
        assert (
            client.send(link, Message(properties=Properties(message_id="p", content_type=name)).encode())
            == ACCEPTED
        )
        client.receiver("orders", credit=5)

        assert client.take(MessageReceived) == []
        assert lab.namespace.operations.pings == 1

    def test_a_sender_gets_more_than_its_first_credit(self, lab, sender):
        client, link = sender
        for _ in range(2500):
            assert link.credit > 0
            assert client.send(link, HELLO) == ACCEPTED


class TestFaults:
    def test_the_two_field_error_omits_the_third_field(self, lab):
        lab.queue()
        client = lab.client()
        link = client.sender("orders")
        two = TwoFieldError("amqp:internal-error", "two")
        fault = lab.frontend.set_fault(FaultRule(two, "orders"), lab.now.idle)
        link.transfer(HELLO, tag=b"1")
        client.server.receive_data(client.engine.data_to_send(), lab.now)
        raw = b"".join(client.server.pieces_to_send())

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

    def test_no_message_is_sent_without_credit(self, stocked):
        stocked.receiver("orders")

        assert self.ids(stocked) == []

    def test_credit_is_absolute_and_each_message_uses_one(self, stocked):
        link = stocked.receiver("orders", credit=2)

        assert self.ids(stocked) == ["m0", "m1"]
        assert link.credit == 0

    def test_the_delivery_tag_is_the_lock_token_and_ids_start_at_0(self, stocked, lab):
        stocked.receiver("orders", credit=1)

        (got,) = stocked.take(MessageReceived)
        assert len(got.tag) == 16
        assert got.delivery_id == 0
        assert not got.settled
        lab.namespace.queue("orders").complete(got.tag, NOON)

    def test_a_drain_delivers_available_messages_and_returns_the_credit(self, stocked, lab):
        link = stocked.receiver("orders")
        link.flow(10, drain=True)
        lab.run()

        assert self.ids(stocked) == ["m0", "m1", "m2"]
        assert link.credit == 0

    @pytest.mark.parametrize(("effect", "came"), [(Delay(1.0), ["m0"]), (Withhold(), [])], ids=str)
    def test_a_delivery_lost_to_a_fault_still_uses_its_credit(self, lab, stocked, effect, came):
        lab.frontend.set_fault(FaultRule(effect, "orders", Operation.RECEIVE, times=1), lab.now.idle)
        link = stocked.receiver("orders", credit=1)
        assert self.ids(stocked) == []
        lab.advance(connection=1.0)
        lab.run()
        assert self.ids(stocked) == came
        link.flow(1)
        lab.run()
        assert self.ids(stocked) == ["m1"]

    def test_a_delayed_delivery_is_not_sent_once_its_credit_is_drained(self, lab, stocked):
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

    def test_a_client_that_does_not_read_gets_no_more_messages(self, lab, stocked):
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
    def test_only_a_flow_that_raises_credit_from_zero_counts_as_a_poll(self, lab):
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
def test_a_message_id_of_any_type_is_kept(lab, odd):
    lab.queue()
    client = lab.client()
    client.send(client.sender("orders"), Message(properties=Properties(message_id=odd)).encode())
    client.receiver("orders", credit=1)

    (got,) = client.take(MessageReceived)
    kept = Message.decode(got.payload).properties.message_id
    assert (kept, type(kept)) == (odd, type(odd))


class TestDeliveryAnnotations:
    @pytest.mark.parametrize("deletes", [False, True])
    @pytest.mark.parametrize("is_last", [False, True])
    def test_the_senders_delivery_annotations_are_passed_on(self, lab, is_last, deletes):
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

    def test_a_browsed_delivery_has_no_lock_token(self, lab):
        queue = lab.queue()
        client = lab.client()
        client.send(client.sender("orders"), HELLO)
        client.receiver("orders", credit=1)

        (message,) = queue.peek(1, 1, NOON)
        assert split(encode_peeked(message)).delivery_annotations == b""
