"""Corners of the standard: deliveries in pieces, unusual values, links that fail to attach."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode, frame
from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    CreditGranted,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import (
    Attach,
    Flow,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sbpair.pair.amqp.types import Char, Described, Float, Int, Symbol, Timestamp, TypedKey, UInt, ULong

TRANSACTION = TransactionalState(b"txn-1")


def f(performative: object, payload: bytes = b"") -> bytes:
    return frame(0, encode_composite(performative), len(payload)) + payload


# -- deliveries in pieces


def in_pieces(pair, *pieces: dict[str, object]) -> MessageReceived:
    """Return the receiver's result for a delivery whose frames have these fields."""
    _, receiver = pair.sending_link()
    for number, fields in enumerate(pieces):
        is_first, is_last = number == 0, number == len(pieces) - 1
        head = Transfer(0, 0 if is_first else None, b"t" if is_first else None, more=not is_last, **fields)
        pair.server.receive_data(f(head, b"x"), 0.0)
    (event,) = [event for event in pair.server.events() if isinstance(event, MessageReceived)]
    assert event.payload == b"x" * len(pieces)
    assert (event.delivery_id in receiver.unsettled) is not event.settled
    return event


@pytest.mark.spec("R-30")
@pytest.mark.parametrize("at", range(3))
def test_the_state_in_any_frame_applies_to_the_delivery(pair, at):
    """A transaction named by the first frame alone was lost: the message was there before the discharge."""
    fields: list[dict[str, object]] = [{}, {}, {}]
    fields[at]["state"] = TRANSACTION

    assert in_pieces(pair, *fields).state == TRANSACTION


@pytest.mark.spec("R-30")
def test_a_later_frame_without_a_state_keeps_the_earlier_one(pair):
    assert in_pieces(pair, {"state": TRANSACTION, "settled": False}, {"settled": False}).state == TRANSACTION


@pytest.mark.spec("R-30")
@pytest.mark.parametrize("at", range(3))
def test_a_delivery_is_settled_if_any_frame_says_so(pair, at):
    fields: list[dict[str, object]] = [{"settled": False} for _ in range(3)]
    fields[at]["settled"] = True

    assert in_pieces(pair, *fields).settled


def test_a_delivery_that_no_frame_settles_is_unsettled(pair):
    assert not in_pieces(pair, {"settled": False}, {}, {}).settled


# -- values that are read can be written


@pytest.mark.spec("R-34")
@pytest.mark.parametrize(
    "keys",
    [
        (Int(1), 1),
        (1, Int(1)),
        (1, UInt(1), ULong(1), Timestamp(1), True),
        (1.0, Float(1.0), 1),
        ("a", Symbol("a"), Char("a")),
        (False, 0, 0.0),
    ],
)
def test_map_keys_may_differ_only_in_their_type(keys):
    written = b"".join(encode(key) + encode(f"value {number}") for number, key in enumerate(keys))
    data = bytes((0xC1, len(written) + 1, 2 * len(keys))) + written

    value, _ = decode(data)

    assert isinstance(value, dict)
    assert list(value.values()) == [f"value {number}" for number, _ in enumerate(keys)]
    assert value[keys[0]] == "value 0"
    assert value[TypedKey(type(keys[1]), keys[1])] == "value 1"
    assert encode(value) == data


@pytest.mark.spec("R-34")
def test_a_map_with_a_duplicate_key_is_refused():
    with pytest.raises(DecodeError, match="same key twice"):
        decode(bytes.fromhex("c10a06540140550140540140"))


@pytest.mark.spec("R-31")
@pytest.mark.parametrize("descriptor", [Int(-1), -1, -(2**63), UInt(7), True, "text", None])
def test_a_described_value_is_written_as_it_was_read(descriptor):
    data = b"\x00" + encode(descriptor) + encode("x")
    value, _ = decode(data)

    assert decode(encode(value))[0] == value == Described(descriptor, "x")


# -- nothing raises


@pytest.mark.spec("R-31")
def test_a_filter_with_a_negative_descriptor_is_echoed(pair):
    odd = Described(Int(-1), "x")
    source = Source("q", filter={Symbol("f"): odd})
    pair.server.receive_data(f(Attach("in", 0, True, source=source, target=Target())), 0.0)
    (event,) = pair.server.events()
    event.link.attach(source=event.attach.source, target=event.attach.target)

    assert b"\x00\x54\xff" in pair.server.data_to_send()


@pytest.mark.spec("R-31")
@pytest.mark.parametrize("field", [2, 6, 9, 10])
def test_a_non_ascii_symbol_closes_the_connection(pair, field):
    """It was taken as a string, and could not be written when it was repeated."""
    source: list[object] = ["q", *[None] * 10]
    source[field] = "\u00e9"
    attach = ["in", UInt(0), True, None, None, Described(ULong(0x28), source)]
    pair.server.receive_data(frame(0, encode(Described(ULong(0x12), attach))), 0.0)

    (closed,) = [event for event in pair.server.events() if isinstance(event, ConnectionClosed)]
    assert closed.condition.symbol == "amqp:decode-error"


@pytest.mark.spec("R-31")
@pytest.mark.parametrize(("count", "credit"), [(5, 2**32 - 1), (2**31, 2**32 - 1), (0, 2**32 - 1)])
def test_a_credit_beyond_the_largest_is_the_largest(pair, count, credit):
    """The peer's delivery-count may be ahead of ours: with its credit it made a number that fits no field."""
    sender, _ = pair.receiving_link()
    sender.delivery_count = 0
    flow = Flow(1, 100, 0, 100, sender.handle, count, credit, echo=True)
    pair.server.receive_data(f(flow), 0.0)
    (granted,) = [event for event in pair.server.events() if isinstance(event, CreditGranted)]

    assert granted.credit == sender.credit <= 2**32 - 1
    assert pair.server.data_to_send()
    assert pair.session.is_open


def test_credit_below_the_messages_in_flight_counts_as_zero(pair):
    sender, receiver = pair.sending_link(credit=10)
    for _ in range(10):
        sender.transfer(b"x", tag=b"t")
    flow = Flow(0, 100, 1, 100, receiver.handle, 0, 3)  # the peer has seen none of the ten and accepts three
    pair.client.receive_data(f(flow), 0.0)
    (granted,) = [event for event in pair.client.events() if isinstance(event, CreditGranted)]

    assert granted.credit == sender.credit == 0


# -- links and windows


@pytest.mark.spec("R-34")
@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_a_failed_attach_leaves_its_name_free(pair, direction):
    attach = pair.session.attach_sender if direction == "sender" else pair.session.attach_receiver
    terminus = "target" if direction == "sender" else "source"
    kind = Target if direction == "sender" else Source
    for _ in range(3):
        with pytest.raises(EncodeError):
            attach("link", **{terminus: kind("q")}, properties={Symbol("\u00e9"): 1})
    link = attach("link", **{terminus: kind("q")})
    pair.exchange()

    assert link.is_open
    assert link.handle == 0
    assert list(pair.session.links.values()) == [link]


@pytest.mark.spec("R-34")
def test_failed_attaches_do_not_count(make_pair):
    pair = make_pair()
    for _ in range(3_000):
        with pytest.raises(EncodeError):
            pair.session.attach_sender("link", target=Target("q"), properties={Symbol("\u00e9"): 1})

    pair.session.attach_sender("link", target=Target("q"))


@pytest.mark.spec("R-34")
def test_frames_sent_before_the_peers_begin_are_sent_with_it(make_pair):
    pair = make_pair(opened=False)
    sender = pair.session.attach_sender("link", target=Target("q"), snd_settle_mode=0)
    for number in range(5):
        sender.transfer(b"x", tag=bytes([number]), force=True)
    assert pair.session.pending == 5
    pair.exchange()

    assert len(pair.server_saw(MessageReceived)) == 5
    assert pair.session.pending == 0


@pytest.mark.spec("R-34")
def test_a_window_of_one_frame_is_used_and_renewed(make_pair):
    pair = make_pair(limits=Limits(incoming_window=1))
    sender, _ = pair.sending_link()
    for number in range(7):
        sender.transfer(b"x", tag=bytes([number]))
    pair.exchange()

    assert len(pair.server_saw(MessageReceived)) == 7
    assert not pair.server_saw(SessionEnded)
