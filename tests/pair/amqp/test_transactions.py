"""Transactions between a controller and a coordinator (AMQP part 4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import DispositionReceived, LinkAttached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, ValueBody, decode_request, encode_request
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    LOCAL_TRANSACTIONS,
    RELEASED,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    TransactionalState,
)

HELLO = Message(body=DataBody((b"hello",))).encode()
OUTCOMES = st.sampled_from([None, ACCEPTED, RELEASED, Rejected(), Modified(True, False)])


@pytest.mark.parametrize("request_", [Declare(), Discharge(b"t1", False), Discharge(b"t1", True)])
def test_a_request_is_the_value_of_a_message(request_):
    payload = encode_request(request_)

    assert payload[:3] == b"\x00\x53\x77"
    assert decode_request(payload) == request_


def test_a_request_may_be_named_by_symbol_and_come_with_other_sections():
    before = Message(message_annotations={"x": 1}).encode()
    symbolic = b"\x00\xa3\x13amqp:discharge:list\xc0\x05\x01\xa0\x02t1"

    assert decode_request(before + b"\x00\x53\x77" + symbolic) == Discharge(b"t1")


@pytest.mark.parametrize(
    "payload",
    [b"", HELLO, Message(body=ValueBody("declare")).encode(), b"\x00\x53\x77" + encode_composite(ACCEPTED)],
    ids=["nothing", "data", "text", "an outcome"],
)
def test_an_empty_transaction_message_is_malformed(payload):
    with pytest.raises(DecodeError, match="declare or a discharge"):
        decode_request(payload)


@given(txn_id=st.binary(max_size=32), outcome=OUTCOMES)
@settings(max_examples=50, deadline=None)
def test_a_transactional_state_survives_the_wire(txn_id, outcome):
    said = Disposition(True, 1, 2, False, TransactionalState(txn_id, outcome))
    octets = encode_composite(said)

    assert decode_composite(octets, 0, len(octets)) == (said, len(octets))


@given(data=st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_transaction_request_or_malformed(data):
    try:
        assert isinstance(decode_request(data), Declare | Discharge)
    except DecodeError:
        pass


@pytest.mark.parametrize("step", [0, 1])
def test_a_controller_declares_sends_and_discharges(make_pair, step):
    pair = make_pair(step=step)
    controller = pair.session.attach_sender("txn", target=Coordinator((LOCAL_TRANSACTIONS,)))
    pair.exchange()
    attached = pair.server_saw(LinkAttached)[0]
    assert attached.attach.target == Coordinator((LOCAL_TRANSACTIONS,))
    coordinator = attached.link
    coordinator.flow(10)
    pair.exchange()

    controller.transfer(encode_request(Declare()), tag=b"1")
    pair.exchange()
    asked = pair.server_saw(MessageReceived)[-1]
    assert decode_request(asked.payload) == Declare()
    coordinator.dispose(asked.delivery_id, asked.delivery_id, Declared(b"t1"))
    pair.exchange()
    assert pair.client_saw(DispositionReceived)[-1].state == Declared(b"t1")

    sender, receiver = pair.sending_link()
    sender.transfer(HELLO, tag=b"2", state=TransactionalState(b"t1"))
    pair.exchange()
    sent = pair.server_saw(MessageReceived)[-1]
    assert sent.state == TransactionalState(b"t1")
    receiver.dispose(sent.delivery_id, sent.delivery_id, TransactionalState(b"t1", ACCEPTED))
    pair.exchange()
    assert pair.client_saw(DispositionReceived)[-1].state == TransactionalState(b"t1", ACCEPTED)

    controller.transfer(encode_request(Discharge(b"t1", False)), tag=b"3")
    pair.exchange()
    assert decode_request(pair.server_saw(MessageReceived)[-1].payload) == Discharge(b"t1", False)


def test_a_multi_frame_message_carries_its_transaction(make_pair):
    pair = make_pair(server_max_frame_size=512)
    sender, _ = pair.sending_link()
    sender.transfer(HELLO * 500, tag=b"2", state=TransactionalState(b"t1"))
    pair.exchange()

    (sent,) = pair.server_saw(MessageReceived)
    assert (len(sent.payload), sent.state) == (500 * len(HELLO), TransactionalState(b"t1"))


def test_a_settlement_may_be_part_of_a_transaction(pair):
    sender, receiver = pair.receiving_link()
    sender.transfer(HELLO, tag=b"1")
    pair.exchange()
    (delivery,) = pair.client_saw(MessageReceived)
    receiver.dispose(
        delivery.delivery_id, delivery.delivery_id, TransactionalState(b"t1", RELEASED), settled=False
    )
    pair.exchange()

    assert pair.server_saw(DispositionReceived)[-1].state == TransactionalState(b"t1", RELEASED)
