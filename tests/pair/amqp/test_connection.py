"""The frames of a connection and its sessions, field by field, and its errors; time is an argument."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.decoding import MAX_DEPTH, DecodeBudget, decode, skip
from sbpair.pair.amqp.encoding import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from sbpair.pair.amqp.errors import DecodeError, LocalProtocolError
from sbpair.pair.amqp.events import ConnectionClosed, ConnectionOpened, LinkAttached
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Condition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
)

pytestmark = pytest.mark.spec("R-66")


def f(performative: object, channel: int = 0) -> bytes:
    return frame(channel, encode_composite(performative))


def sasl(performative: object) -> bytes:
    return frame(0, encode_composite(performative), kind=1)


def said(data: bytes) -> list[tuple[int, object]]:
    """Decode the performatives of these frames, each with its channel."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size > 8:
            found.append(
                (int.from_bytes(data[at + 6 : at + 8], "big"), decode_composite(data, at + 8, at + size)[0])
            )
        at += size
    return found


def a_server(opening: Open | None = None, **settings) -> Connection:
    """Return a server with an authenticated client at 0.0; with ``opening`` it has sent its open."""
    server = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0, **settings)
    server.receive_data(SASL_HEADER + sasl(SaslInit("ANONYMOUS")) + AMQP_HEADER, 0.0)
    server.authenticate(True)
    if opening is not None:
        server.receive_data(f(opening), 0.0)
    server.events()
    server.data_to_send()
    return server


def closed(connection: Connection) -> tuple[str, str | None]:
    (event,) = [event for event in connection.events() if isinstance(event, ConnectionClosed)]
    return event.condition.symbol, event.condition.description


def test_the_fields_of_an_open_arrive_unchanged(make_pair) -> None:
    ours = {
        "hostname": "h",
        "channel_max": 7,
        "idle_time_out": 2.5,
        "properties": {"a": 1},
        "max_frame_size": 4096,
    }
    pair = make_pair(**ours)
    wanted = Open("client", "h", 4096, 7, 2500, properties={"a": 1})
    assert pair.server.remote_open == wanted
    assert [event.open for event in pair.server_saw(ConnectionOpened)] == [wanted]
    assert pair.client.remote_open == Open("server", None, 1_048_576, 4999)
    assert (pair.client.remote_max_frame_size, pair.server.remote_max_frame_size) == (1_048_576, 4096)
    assert (pair.client.channel_max, pair.client.handle_max) == (7, 1023)


def test_the_fields_of_a_begin_arrive_unchanged() -> None:
    limits = Limits(incoming_window=100, outgoing_window=200)
    server = a_server(Open("x"), limits=limits, handle_max=9, first_delivery_id=5)
    server.receive_data(f(Begin(None, 40, 50, 60), 3), 0.0)
    assert said(server.data_to_send()) == [(0, Begin(3, 1, 100, 200, 9))]
    (session,) = server.sessions
    assert (session.channel, session.remote_channel, session.next_delivery_id) == (0, 3, 5)
    session.flow(None, echo=True)
    assert said(server.data_to_send()) == [(0, Flow(40, 100, 1, 200, echo=True))]
    server.begin()
    assert said(server.data_to_send()) == [(1, Begin(None, 1, 100, 200, 9))]


def test_the_fields_of_a_flow_arrive_unchanged() -> None:
    server = a_server(Open("x"))
    server.receive_data(f(Begin(None, 40, 50, 60)), 0.0)
    for handle, role in ((4, False), (6, True)):
        attach = Attach("a", handle, role, source=Source(), target=Target("q"), initial_delivery_count=3)
        server.receive_data(f(attach), 0.0)
    receiver, sender = [event.link for event in server.events() if isinstance(event, LinkAttached)]
    for link in (receiver, sender):
        link.attach(source=Source(), target=Target("q"))
    server.data_to_send()
    receiver.flow(9, drain=True, echo=True)
    receiver.session.flow(sender, 2)
    assert [each for _, each in said(server.data_to_send())] == [
        Flow(40, 8192, 1, 65535, receiver.handle, 3, 9, None, True, True),
        Flow(40, 8192, 1, 65535, sender.handle, 0, 2, 0, False, False),
    ]


BEGUN = f(Begin(None, 0, 9, 9))


@pytest.mark.parametrize(
    ("data", "symbol", "description"),
    [
        (f(Open("y")), "illegal-state", "a second open"),
        (BEGUN * 2, "not-allowed", "a second begin on channel 0"),
        (f(Begin(None, 0, 9, 9), 5000), "connection:framing-error", "channel 5000 is above 4999"),
        (f(Begin(4, 0, 9, 9)), "not-allowed", "begin answers channel 4, which did not begin a session"),
        (f(End()), "not-allowed", "End on channel 0, which has no session"),
        (BEGUN + f(SaslInit("x")), "not-allowed", "SaslInit on a session"),
        (
            b"\0\0\0\7\2\0\0\0",
            "connection:framing-error",
            "a frame of 7 bytes, data offset 2, type 0 is malformed",
        ),
        (
            b"\0\0\0\x08\1\0\0\0",
            "connection:framing-error",
            "a frame of 8 bytes, data offset 1, type 0 is malformed",
        ),
        (
            b"\0\0\0\x08\3\0\0\0",
            "connection:framing-error",
            "a frame of 8 bytes, data offset 3, type 0 is malformed",
        ),
        (
            b"\0\0\0\x08\2\1\0\0",
            "connection:framing-error",
            "a frame of 8 bytes, data offset 2, type 1 is malformed",
        ),
        (frame(0, encode_composite(Close()) + b"@"), "decode-error", "1 bytes after Close"),
        (frame(0, b"\0" * 65537), "decode-error", "a performative of 65537 bytes"),
    ],
)
def test_a_protocol_error_of_the_peer_closes_the_connection_and_names_the_error(
    data: bytes, symbol: str, description: str
) -> None:
    server = a_server(Open("x"))
    server.receive_data(data, 1.0)
    assert closed(server) == (f"amqp:{symbol}", description)
    assert said(server.data_to_send())[-1] == (0, Close(Condition(f"amqp:{symbol}", description)))
    assert server.is_closed
    assert server.next_timer() is None
    server.receive_data(BEGUN, 2.0)
    server.receive_eof(2.0)
    assert (server.events(), server.data_to_send()) == ([], b"")


@pytest.mark.parametrize(
    ("data", "symbol", "description"),
    [
        (BEGUN, "illegal-state", "Begin before open"),
        (f(Open("y", max_frame_size=511)), "invalid-field", "max-frame-size 511 is below 512"),
        (
            b"\0\0\x20\x01\2\0\0\0",
            "connection:framing-error",
            "a frame of 8193 bytes, data offset 2, type 0 is malformed",
        ),
    ],
)
def test_an_error_before_the_open_is_sent_after_an_open(data: bytes, symbol: str, description: str) -> None:
    server = a_server()
    server.receive_data(data, 1.0)
    assert closed(server) == (f"amqp:{symbol}", description)
    assert [type(each) for _, each in said(server.data_to_send())] == [Open, Close]


@pytest.mark.parametrize(
    ("data", "description"),
    [
        (b"GET / HT", "protocol header b'GET / HT', not SASL's"),
        (SASL_HEADER + f(SaslInit("x")), "malformed SASL frame: 19 bytes, data offset 2, type 0"),
        (SASL_HEADER + sasl(SaslOutcome(0)), "SaslOutcome instead of a single sasl-init"),
        (SASL_HEADER + sasl(SaslInit("n" * 50)), f"SASL mechanism {'n' * 40!r} not offered"),
        (SASL_HEADER + frame(0, encode_composite(SaslInit("x")) + b"@", kind=1), "1 bytes after SaslInit"),
    ],
)
def test_a_bad_protocol_header_is_reported_to_the_owner(data: bytes, description: str) -> None:
    server = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0)
    server.receive_data(data, 0.0)
    assert closed(server)[1] == description


@pytest.mark.parametrize(
    ("data", "description"),
    [
        (sasl(SaslMechanisms(("B", "C"))), "SASL ANONYMOUS is not among B, C"),
        (sasl(SaslOutcome(1)), "SASL outcome 1"),
        (sasl(SaslInit("x")), "SaslInit in a one-step SASL exchange"),
        (sasl(SaslOutcome(0)) + b"GET / HT", "protocol header b'GET / HT', not AMQP 1.0's"),
    ],
)
def test_a_client_reports_a_bad_protocol_header(data: bytes, description: str) -> None:
    client = Connection(role=ConnectionRole.CLIENT, container_id="c", now=0.0)
    client.receive_data(SASL_HEADER + data, 0.0)
    assert closed(client)[1] == description


def test_the_number_of_sessions_is_bounded_on_either_side() -> None:
    server = a_server(Open("x", channel_max=1), limits=Limits(max_sessions=1))
    server.receive_data(BEGUN, 0.0)
    server.begin()
    with pytest.raises(LocalProtocolError) as told:
        server.begin()
    assert str(told.value) == "all 2 channels are in use"
    server.receive_data(f(Begin(None, 0, 9, 9), 1), 0.0)
    assert closed(server) == ("amqp:resource-limit-exceeded", "2 sessions on this connection")
    with pytest.raises(LocalProtocolError) as told:
        server.begin()
    assert str(told.value) == "the connection is not open"


def test_the_number_of_links_per_connection_is_bounded(make_pair) -> None:
    pair = make_pair(limits=Limits(max_links=1))
    pair.sending_link("one")
    other = pair.session.attach_sender("two", target=Target("q"))
    pair.exchange()
    assert not other.is_open
    assert pair.client_events[-1].condition == Condition(
        "amqp:resource-limit-exceeded", "1 links on this connection"
    )


def test_a_link_name_is_unique_per_direction_and_session(pair) -> None:
    pair.sending_link("twin")
    with pytest.raises(LocalProtocolError) as told:
        pair.session.attach_sender("twin", target=Target("q"))
    assert str(told.value) == "there is already a link named 'twin' in this direction"
    pair.session.end()
    with pytest.raises(LocalProtocolError) as told:
        pair.session.attach_sender("new", target=Target("q"))
    assert str(told.value) == "the session has ended"


def test_a_session_may_use_the_last_channel() -> None:
    server = a_server(Open("x"), channel_max=3, limits=Limits(max_sessions=1))
    server.receive_data(f(Begin(None, 0, 9, 9), 3), 0.0)
    assert len(server.sessions) == 1
    server.receive_data(f(Begin(None, 0, 9, 9), 1), 0.0)
    assert closed(server) == ("amqp:resource-limit-exceeded", "1 sessions on this connection")
    for answered in (0, 1):  # one begun by the peer, and one already answered
        server = a_server(Open("x"))
        server.receive_data(BEGUN, 0.0)
        server.begin()
        server.receive_data(f(Begin(1, 0, 9, 9), 1), 0.0)
        server.receive_data(f(Begin(answered, 0, 9, 9), 2), 0.0)
        why = f"begin answers channel {answered}, which did not begin a session"
        assert closed(server) == ("amqp:not-allowed", why)


def test_a_close_by_the_peer_is_answered_and_reported_with_its_reason() -> None:
    server = a_server(Open("x"))
    server.receive_data(f(Close(Condition("a:b", "c"))), 0.0)
    assert closed(server) == ("a:b", "c")
    assert said(server.data_to_send()) == [(0, Close())]


def test_the_accounted_size_of_sessions_and_links_grows_with_the_peers_fields() -> None:
    weights = []
    for count in (1, 9):
        server = a_server(Open("x"))
        properties = {f"p{n}": n for n in range(count)}
        server.receive_data(f(Begin(None, 0, 9, 9, properties=properties)), 0.0)
        attach = Attach("a", 0, True, source=Source(), target=Target("q"), properties=properties)
        server.receive_data(f(attach), 0.0)
        (session,) = server.sessions
        (link,) = session.links.values()
        weights.append((session.weight, link.held_bytes))
        server.receive_data(f(End()), 0.0)
    assert weights[1][0] > weights[0][0] > 0
    assert weights[1][1] > weights[0][1] > 0


# --- time


def test_a_silent_peer_is_closed_after_twice_the_announced_time() -> None:
    server = a_server(Open("x"), idle_time_out=3.0)
    server.receive_data(EMPTY_FRAME, 10.0)
    assert server.next_timer() == 16.0
    server.handle_timer(15.9)
    assert not server.is_closed
    server.handle_timer(16.0)
    assert closed(server) == ("amqp:resource-limit-exceeded", "silent for 6.0 s")


def test_heartbeats_are_sent_at_half_the_idle_timeout_of_the_peer() -> None:
    server = a_server(Open("x", idle_time_out=4000))
    assert server.next_timer() == 2.0
    server.handle_timer(1.9)
    assert server.data_to_send() == b""
    server.handle_timer(2.0)
    server.handle_timer(2.1)
    assert server.data_to_send() == EMPTY_FRAME
    assert server.next_timer() == pytest.approx(4.1)
    hurried = a_server(Open("x", idle_time_out=1))
    assert hurried.next_timer() == 0.05
    assert a_server(Open("x", idle_time_out=0)).next_timer() is None
    server.close()
    assert server.next_timer() == pytest.approx(12.1)


def test_a_peer_that_does_not_open_or_close_in_time_is_closed() -> None:
    server = a_server()
    assert server.next_timer() == 20.0
    server.handle_timer(20.0)
    assert closed(server) == ("amqp:resource-limit-exceeded", "no open within 20 s")
    server = a_server(Open("x"))
    server.handle_timer(5.0)
    server.close()
    server.close(Condition("a:b"))  # said once
    assert said(server.data_to_send()) == [(0, Close())]
    assert server.next_timer() == 15.0
    server.handle_timer(14.9)
    assert not server.is_closed
    server.handle_timer(15.0)
    assert [event.condition for event in server.events()] == [None]


def test_an_error_too_long_for_the_peers_frames_is_sent_without_its_details() -> None:
    server = a_server(Open("x", max_frame_size=512))
    server.close(Condition("a:b", "c" * 600))
    ((_, close),) = said(server.data_to_send())
    assert close.error.symbol == "a:b"
    assert len(close.error.description or "") < 600
    server = a_server(Open("x", max_frame_size=512))
    longest = Condition("a:b", "c" * (512 - len(f(Close(Condition("a:b", "c" * 300)))) + 300))
    assert len(f(Close(longest))) == 512
    server.close(longest)
    assert said(server.data_to_send()) == [(0, Close(longest))]


# --- values


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("50", "the data ends inside a value"),
        ("a1 02 41", "a value is longer than its container"),
        ("b1 00000002 41", "a value is longer than its container"),
        ("98 00", "the data ends inside a value"),
        ("c0 05 01 40", "a compound value is longer than its container"),
        ("d0 00000009 00000001 40", "a compound value is longer than its container"),
        ("c1 07 04 a1 01 61 40 a1 01 61 40", "a value is longer than its container"),
        ("c1 09 04 a1 01 61 40 a1 01 61 40", "a map with the same key twice"),
        ("00 " * (MAX_DEPTH + 1) + "40 40", f"nested deeper than {MAX_DEPTH}"),
        ("a3 01 ff", "text is not ascii: ordinal not in range(128)"),
    ],
)
def test_a_decode_error_names_the_fault(octets: str, told: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(bytes.fromhex(octets))
    assert str(refused.value) == told


@pytest.mark.parametrize(
    "octets",
    ["40", "45", "56 01", "50 ff", "60 0102", "70 01020304", "80 0102030405060708", "98" + "01" * 16,
     "a1 02 4141", "b0 00000003 010203", "c0 03 01 50 01", "d0 00000006 00000001 50 01", "e0 04 02 50 01 02",
     "00 53 24 45", "00 00 53 01 53 02 a1 01 41"],
)  # fmt: skip
def test_skipping_a_value_consumes_as_much_as_reading_it(octets: str) -> None:
    data = bytes.fromhex(octets)
    padded = b"@" + data + b"@"
    assert skip(padded, 1, len(padded)) == len(data) + 1
    assert decode(padded, 1)[1] == len(data) + 1
    assert decode(memoryview(data)) == decode(data)
    for short in range(1, len(data)):
        with pytest.raises(DecodeError):
            skip(data[:short], 0, short)


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("00", "the data ends where a value should begin"),
        ("3f", "unknown format code 0x3f"),
        ("70 01", "a value is longer than its container"),
        ("a1", "the data ends inside a value"),
        ("b0 01", "the data ends inside a value"),
        ("00 " * MAX_DEPTH + "40", f"nested deeper than {MAX_DEPTH}"),
    ],
)
def test_a_value_that_cannot_be_skipped_is_reported(octets: str, told: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(DecodeError) as refused:
        skip(data, 0, len(data))
    assert str(refused.value) == told


def test_the_deepest_allowed_nesting_is_read_and_skipped() -> None:
    listed = b"\x40"
    for _ in range(MAX_DEPTH):
        listed = b"\xd0" + (len(listed) + 4).to_bytes(4, "big") + b"\0\0\0\1" + listed
    assert decode(listed)[1] == len(listed)
    described = b"\0" * (MAX_DEPTH - 1) + b"\x40" * MAX_DEPTH
    assert skip(described, 0, len(described)) == len(described)
    deeper = b"\xd0" + (len(listed) + 4).to_bytes(4, "big") + b"\0\0\0\1" + listed
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(deeper)


@pytest.mark.parametrize(("size", "nodes"), [(0, 64), (10**9, 250_000)])
def test_a_memory_budget_grants_a_little_to_the_smallest_and_is_limited(size: int, nodes: int) -> None:
    budget = DecodeBudget(size)
    budget.spend(nodes)
    assert (budget.left, budget.spent) == (0, nodes)
    with pytest.raises(DecodeError) as told:
        budget.spend(1)
    assert str(told.value) == "more values than the size of the data allows"
