"""The conditions and descriptions of the answers to violations, and the caches of the fast path."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import AMQP_HEADER, SASL_HEADER, encode, frame
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import SessionEnded
from sbpair.pair.amqp.fast_path import Reader, write_transfer
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Condition,
    Detach,
    Disposition,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.sections import split_entries


def f(performative: object) -> bytes:
    return frame(0, encode_composite(performative))


def attach(name: str, handle: int) -> bytes:
    return f(Attach(name, handle, False, source=Source(), target=Target("q"), initial_delivery_count=0))


def a_server(handle_max: int = 1000) -> Connection:
    server = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0)
    opening = frame(0, encode_composite(SaslInit("ANONYMOUS")), kind=1) + AMQP_HEADER + f(Open("x"))
    server.receive_data(SASL_HEADER + opening + f(Begin(None, 0, 1000, 1000, handle_max)), 0.0)
    server.authenticate(True)
    server.receive_data(attach("a", 0), 0.0)
    for event in server.events():
        if hasattr(event, "attach"):
            event.link.attach(source=Source(), target=Target("q"))
    server.data_to_send()
    return server


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f(Flow(0, 1, 0, 1, 9)), "a flow on handle 9"),
        (f(Detach(9)), "a detach of handle 9"),
        (f(Transfer(9, 0, b"t")), "a transfer on handle 9"),
        (attach("b", 0), "handle 0 is attached"),
        (f(Flow(5, 1, 0, 1)), "next-incoming-id 5 is beyond what was sent"),
        (f(Disposition(False, 5, 2, True)), "a disposition of 5 to 2"),
    ],
)
def test_a_session_that_ends_by_an_error_names_it(said: bytes, told: str) -> None:
    server = a_server()
    session = server.sessions[0]
    server.receive_data(said, 0.0)
    (ended,) = [event for event in server.events() if isinstance(event, SessionEnded)]
    assert ended.session is session
    assert ended.condition.description == told
    assert told.encode() in server.data_to_send()


@pytest.mark.spec("R-66")
def test_a_peer_that_attaches_more_links_than_its_handles_allow_loses_the_session() -> None:
    server = a_server(handle_max=0)
    server.receive_data(attach("b", 1), 0.0)
    (ended,) = [event for event in server.events() if isinstance(event, SessionEnded)]
    assert ended.condition.symbol == "amqp:resource-limit-exceeded"
    assert ended.condition.description == "the peer allows handles up to 0"
    assert server.is_open


@pytest.mark.spec("R-66")
def test_a_detached_link_has_no_credit(pair) -> None:
    sender, _ = pair.sending_link(credit=5)
    sender.detach()
    assert sender.credit == 0


@pytest.mark.spec("R-66")
def test_a_receiver_repeats_its_credit_on_request(pair) -> None:
    sender, receiver = pair.sending_link(credit=7)
    sender.credit = 0  # it has forgotten
    pair.session.flow(sender, 0, echo=True)
    pair.exchange()
    assert sender.credit == receiver.credit == 7


STATES = [(None, True), (ACCEPTED, True), (Released(), True), (Modified(True), True),
          (Modified(True, None, {"a": 1}), False), (Rejected(Condition("a:b")), False)]  # fmt: skip


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(("state", "is_shared"), STATES, ids=repr)
def test_constant_disposition_fields_are_decoded_once(state: object, is_shared: bool) -> None:
    reader = Reader()
    found = []
    for first, last in ((0, None), (1, 3), (300, None), (70_000, 70_001)):
        for role in (True, False):
            data = b"head" + encode_composite(Disposition(role, first, last, True, state))
            read = reader.disposition(data, 4, len(data))
            assert read[:3] == (role, first, first if last is None else last)
            assert (read[3].settled, read[3].state) == (True, state)
            found.append(read[3])
    assert all(each is found[0] for each in found) is is_shared


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(("state", "is_shared"), STATES, ids=repr)
def test_constant_transfer_fields_are_decoded_once(state: object, is_shared: bool) -> None:
    reader = Reader()
    found = []
    for handle, number, tag in ((0, 0, b""), (7, 1, b"t"), (0, 300, b"t" * 32), (7, 70_000, b"tag")):
        body = encode_composite(Transfer(handle, number, tag, 0, True, False, None, state))
        data = b"head" + body + b"payload"
        assert (reader.transfer(data, 4, len(data))[:3]) == (handle, number, tag)
        *_, tail, payload_at = reader.transfer(data, 4, len(data))
        assert (tail.settled, tail.more, tail.state, tail.is_piece) == (True, False, state, False)
        assert data[payload_at:] == b"payload"
        found.append(tail)
    assert all(each is found[0] for each in found) is is_shared


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    "transfer",
    [Transfer(300, 1, b"t", 0), Transfer(1, None, None), Transfer(1, 5, None, 0), Transfer(1, None, b"t")],
    ids=repr,
)
def test_a_transfer_in_an_unusual_form_is_still_read(transfer: Transfer) -> None:
    data = encode_composite(transfer)
    read = Reader().transfer(data, 0, len(data))
    assert read[:3] == (transfer.handle, transfer.delivery_id, transfer.delivery_tag)
    assert read[4] == len(data)


@pytest.mark.spec("R-66")
def test_a_transfer_uses_its_short_form_up_to_255_bytes() -> None:
    room = 255 - 8 - 1 - 8
    data = write_transfer(3, b"\x43", 7, bytes(room), bytes(8), 0)
    assert len(data) == int.from_bytes(data[:4], "big") == 255 + 13
    with pytest.raises(ValueError, match=r"^the transfer does not fit a list8$"):
        write_transfer(3, b"\x43", 7, bytes(room + 1), bytes(8), 0)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("45", "a frame body that is not described"),
        ("00 53 99 45", "unknown descriptor"),
        ("00 53 10 40", "Open is not a list"),
        ("00 53 10 45", "Open.container_id is mandatory"),
        ("00 53 24 c0 02 01 40", "Accepted has 0 fields, not 1"),
        ("00 53 10 c0 03 01 52 05", "Open.container_id is a string: not UInt(5)"),
    ],
)
def test_an_invalid_frame_body_is_reported(octets: str, told: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(DecodeError) as refused:
        decode_composite(data, 0, len(data))
    assert str(refused.value).startswith(told)


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("d1 00000005 00000001 40", "a map with an odd number of items"),
        ("c1 03 02 45 40", "a map key that contains a list or a map"),
        ("c0 02 05 40", "5 items in 1 bytes"),
        ("c0 03 01 40 40", "the size of a compound value does not match its items"),
        ("e0 05 01 50 01 02 03", "the size of an array does not match its elements"),
        ("e0 02 01 00", ""),
        ("56 02", "a boolean of value 2"),
        ("a1 01 ff", "text is not utf-8: invalid start byte"),
        ("3f", "unknown format code 0x3f"),
        ("e0 02 00 3f", "array elements cannot have the format code 0x3f"),
    ],
)
def test_an_invalid_value_is_reported(octets: str, told: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(bytes.fromhex(octets))
    assert told in str(refused.value)


@pytest.mark.spec("R-66")
def test_a_map_with_an_odd_count_is_refused_by_its_count() -> None:
    section = bytes.fromhex("005374 c1") + bytes((4, 3)) + encode("")[:1] * 3
    with pytest.raises(DecodeError, match=r"^a map of 3 items in 3 bytes$"):
        split_entries(section)
