"""The handshake before the first session: headers, SASL, open and timeouts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from sbpair.pair.amqp.errors import LocalProtocolError
from sbpair.pair.amqp.events import ConnectionClosed, ConnectionOpened, SaslInitReceived
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import Open, SaslInit, SaslMechanisms, SaslOutcome


def sasl(performative: object) -> bytes:
    return frame(0, encode_composite(performative), kind=1)


def a_server(**settings) -> Connection:
    return Connection(role=ConnectionRole.SERVER, container_id="server", now=0.0, **settings)


def a_client(**settings) -> Connection:
    return Connection(role=ConnectionRole.CLIENT, container_id="client", now=0.0, **settings)


def closed(connection: Connection):
    """Return the condition of the single ConnectionClosed event."""
    (event,) = [event for event in connection.events() if isinstance(event, ConnectionClosed)]
    return event.condition


def test_a_client_pipelines_its_sasl_init_and_opens_after_the_outcome():
    client = a_client(hostname="host", initial_response=b"")
    client.begin()
    assert client.data_to_send() == SASL_HEADER + sasl(SaslInit("ANONYMOUS", b"", "host"))
    client.receive_data(SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS",))), 0.0)
    assert client.data_to_send() == b""
    client.receive_data(sasl(SaslOutcome(0)), 0.0)
    opening = frame(0, encode_composite(Open("client", "host", 1_048_576, 4999)))
    assert client.data_to_send().startswith(AMQP_HEADER + opening)


def test_a_server_sends_nothing_before_the_client_does():
    server = a_server()
    assert server.data_to_send() == b""
    server.receive_data(SASL_HEADER, 0.0)
    assert server.data_to_send() == SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS",)))


def test_the_owner_decides_the_login_and_pipelined_frames_wait():
    server = a_server(mechanisms=("PLAIN", "ANONYMOUS"))
    client = a_client(mechanisms=("PLAIN",), initial_response=b"\0user\0secret", hostname="contoso")
    opening = AMQP_HEADER + frame(0, encode_composite(Open("eager")))
    server.receive_data(client.data_to_send() + opening, 0.0)
    assert server.events() == [SaslInitReceived("PLAIN", b"\0user\0secret", "contoso")]
    server.authenticate(True)
    assert [type(event) for event in server.events()] == [ConnectionOpened]
    client.receive_data(server.data_to_send(), 0.0)
    assert client.is_open
    assert server.remote_open.container_id == "eager"


def test_a_refused_client_gets_the_outcome_and_nothing_else():
    server, client = a_server(), a_client()
    server.receive_data(client.data_to_send(), 0.0)
    server.events()
    server.authenticate(False)
    data = server.data_to_send()
    assert data.endswith(sasl(SaslOutcome(1)))
    assert closed(server).symbol == "amqp:unauthorized-access"
    client.receive_data(data, 0.0)
    assert closed(client).symbol == "amqp:unauthorized-access"


def test_a_client_stops_if_its_mechanism_is_not_offered():
    client = a_client(mechanisms=("PLAIN",))
    client.receive_data(SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS", "EXTERNAL"))), 0.0)
    condition = closed(client)
    assert condition.symbol == "amqp:unauthorized-access"
    assert "ANONYMOUS, EXTERNAL" in condition.description


def test_answering_an_unasked_question_is_misuse():
    with pytest.raises(LocalProtocolError, match="no SASL exchange"):
        a_server().authenticate(True)


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HT",
    ],
    ids=["TLS", "0-9-1", "ClientHello", "HTTP"],
)
def test_a_wrong_protocol_header_is_answered_with_the_right_one(header):
    server = a_server()
    server.receive_data(header, 0.0)
    assert server.data_to_send() == SASL_HEADER
    assert closed(server).symbol == "amqp:connection:framing-error"
    assert server.is_closed


@pytest.mark.spec("X-5", "S-5")
def test_a_server_accepts_connections_without_sasl_and_a_client_makes_none():
    server = a_server()
    server.receive_data(AMQP_HEADER + frame(0, encode_composite(Open("plain"))), 0.0)
    assert server.is_open
    assert [event for event in server.events() if isinstance(event, ConnectionOpened)]
    assert server.data_to_send().startswith(AMQP_HEADER)
    client = Connection(role=ConnectionRole.CLIENT, container_id="client", mechanisms=("ANONYMOUS",), now=0.0)
    client.receive_data(AMQP_HEADER, 0.0)
    assert client.is_closed


@pytest.mark.spec("S-5")
@pytest.mark.parametrize(
    "data",
    [
        frame(0, encode_composite(SaslInit("ANONYMOUS"))),
        frame(0, encode_composite(Open("intruder"))),
        sasl(Open("intruder")),
        sasl(SaslOutcome(0)),
        sasl(SaslInit("NONSENSE")),
        EMPTY_FRAME,
        b"\x00\x00\x00\x08\x02\x01\x00\x00",
        sasl(SaslInit("ANONYMOUS"))[:-1] + b"\xff",
        (100_000).to_bytes(4, "big") + b"\x02\x01\x00\x00",
    ],
    ids=[
        "AMQP type",
        "open",
        "open as SASL",
        "outcome",
        "mechanism",
        "empty",
        "empty SASL",
        "field",
        "too large",
    ],
)
def test_only_one_init_is_accepted_in_the_sasl_phase(data):
    server = a_server()
    server.receive_data(SASL_HEADER + data, 0.0)
    assert closed(server).symbol.startswith("amqp:")
    assert not server.is_open


def test_a_second_init_is_not_read():
    server = a_server()
    server.receive_data(SASL_HEADER + sasl(SaslInit("ANONYMOUS")) * 2, 0.0)
    server.events()
    server.authenticate(True)
    assert closed(server).symbol == "amqp:connection:framing-error"


@pytest.mark.spec("S-7")
def test_data_pipelined_before_the_sasl_outcome_is_bounded():
    server = a_server()
    server.receive_data(SASL_HEADER + sasl(SaslInit("ANONYMOUS")), 0.0)
    server.events()
    for _ in range(server.limits.max_handshake_bytes // 100_000 + 1):
        server.receive_data(bytes(100_000), 0.0)
    assert closed(server).symbol == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("size", [0, 1, 511])
def test_a_max_frame_size_below_the_minimum_is_refused(make_pair, size):
    server = a_server()
    opening = frame(0, encode_composite(Open("c", max_frame_size=size)))
    server.receive_data(SASL_HEADER + sasl(SaslInit("ANONYMOUS")) + AMQP_HEADER + opening, 0.0)
    server.events()
    server.authenticate(True)
    assert closed(server).symbol == "amqp:invalid-field"
    with pytest.raises(LocalProtocolError, match="at least 512"):
        a_server(max_frame_size=size)


def test_the_largest_max_frame_size_is_accepted(make_pair):
    pair = make_pair(max_frame_size=2**32 - 1)
    assert pair.server.remote_max_frame_size == 2**32 - 1


def test_a_peer_that_never_opens_is_closed():
    server = a_server(limits=Limits(handshake_timeout=20.0))
    server.receive_data(b"A", 5.0)
    assert server.next_timer() == 20.0
    server.handle_timer(19.9)
    assert not server.is_closed
    server.handle_timer(20.0)
    assert closed(server).symbol == "amqp:resource-limit-exceeded"
    assert server.next_timer() is None


def test_the_open_ends_the_handshake_deadline(make_pair):
    pair = make_pair()
    assert pair.client.next_timer() is None
    assert pair.server.next_timer() is None


def test_heartbeats_are_sent_at_half_the_announced_timeout(make_pair):
    pair = make_pair(idle_time_out=60.0)
    assert pair.client.remote_open.idle_time_out is None
    assert pair.server.remote_open.idle_time_out == 60_000
    assert pair.server.next_timer() == 30.0
    pair.server.handle_timer(30.0)
    assert pair.server.data_to_send() == EMPTY_FRAME
    assert pair.server.next_timer() == 60.0
    pair.server.sessions[0].flow(None)  # any frame counts as a sign of life
    pair.server.receive_data(EMPTY_FRAME, 50.0)
    pair.server.data_to_send()
    assert pair.server.next_timer() == 80.0


def test_a_silent_peer_is_closed_after_twice_our_announced_timeout(make_pair):
    pair = make_pair(idle_time_out=60.0)
    pair.client.receive_data(EMPTY_FRAME, 100.0)
    assert pair.client.next_timer() == 220.0
    pair.client.handle_timer(219.0)
    assert pair.client.is_open
    pair.client.handle_timer(220.0)
    assert closed(pair.client).symbol == "amqp:resource-limit-exceeded"
    assert b"resource-limit-exceeded" in pair.client.data_to_send()


def test_a_tiny_idle_timeout_does_not_flood_the_peer_with_heartbeats(make_pair):
    pair = make_pair(idle_time_out=0.001)
    assert pair.server.next_timer() == Limits().min_heartbeat_interval


def test_an_unanswered_close_ends_by_itself(make_pair):
    pair = make_pair(limits=Limits(close_timeout=10.0))
    pair.server.close()
    pair.server.data_to_send()
    assert pair.server.next_timer() == 10.0
    pair.server.handle_timer(10.0)
    assert pair.server.is_closed
    assert closed(pair.server) is None


@given(step=st.integers(1, 40), sizes=st.lists(st.integers(0, 2000), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=list(__import__("hypothesis").HealthCheck))
def test_bytes_split_anywhere_give_the_same_events(make_pair, step, sizes):
    def run(cut: int) -> list[str]:
        pair = make_pair(step=cut, max_frame_size=600, server_max_frame_size=600)
        sender, receiver = pair.sending_link()
        for number, size in enumerate(sizes):
            sender.transfer(bytes(size), tag=bytes([number]))
        pair.exchange()
        for number in list(receiver.unsettled):
            receiver.dispose(number, number, None)
        pair.exchange()
        pair.client.close()
        pair.exchange()
        return [repr(event).split(" object at ")[0] for event in pair.client_events + pair.server_events]

    assert run(step) == run(0)
