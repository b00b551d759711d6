"""Whatever arrives, the engine answers on the wire, emits events, and stays small and fast."""

# ruff: noqa: E501  (tables of frames, one a line)
from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import ConnectionClosed, LinkDetached, MessageReceived, SessionEnded
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.sections import split
from tests.costs import cpu_of

OPENING = (
    SASL_HEADER
    + frame(0, encode_composite(SaslInit("ANONYMOUS")), kind=1)
    + AMQP_HEADER
    + frame(0, encode_composite(Open("x")))
)
BEGIN = frame(0, encode_composite(Begin(None, 0, 1000, 1000)))
ATTACH = frame(
    0, encode_composite(Attach("a", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0))
)


def f(performative: object, payload: bytes = b"", channel: int = 0) -> bytes:
    return frame(channel, encode_composite(performative), len(payload)) + payload


def attach(name: str, handle: int, **fields) -> bytes:
    return f(Attach(name, handle, False, source=Source(), target=Target("q"), **fields))


def flow(handle: int | None = None, seen: int = 1, **fields) -> bytes:
    return f(Flow(seen, 100, 0, 100, handle, **fields))


def raw(header: str, body: bytes = b"") -> bytes:
    return bytes.fromhex(header) + body


def a_server(*, upto: bytes = OPENING + BEGIN + ATTACH, limits: Limits | None = None) -> Connection:
    server = Connection(
        role=ConnectionRole.SERVER, container_id="s", now=0.0, first_delivery_id=2**30, limits=limits
    )
    server.receive_data(upto, 0.0)
    server.authenticate(True)
    for event in server.events():
        if hasattr(event, "attach"):
            event.link.attach(source=Source(), target=Target("q"))
    server.data_to_send()
    return server


CLOSES = {
    "frame of size 0": (raw("00000000 02000000"), "framing-error"),
    "frame of size 7": (raw("00000007 02000000"), "framing-error"),
    "frame of four gigabytes": (raw("ffffffff 02000000"), "framing-error"),
    "frame above our maximum": (raw("00100001 02000000"), "framing-error"),
    "data offset 0": (raw("00000008 00000000"), "framing-error"),
    "data offset 1": (raw("00000008 01000000"), "framing-error"),
    "data offset beyond the frame": (raw("00000008 ff000000"), "framing-error"),
    "SASL frame after SASL": (frame(0, encode_composite(SaslInit("ANONYMOUS")), kind=1), "framing-error"),
    "transfer dressed as SASL": (frame(0, encode_composite(Transfer(0)), kind=1), "framing-error"),
    "frame type 2": (raw("00000008 02020000"), "framing-error"),
    "body of noise": (frame(0, b"\xff\xfe\xfd"), "decode-error"),
    "body not described": (frame(0, b"\x45"), "decode-error"),
    "sasl-init as AMQP": (f(SaslInit("ANONYMOUS")), "not-allowed"),
    "transfer of nothing": (frame(0, raw("005314")), "decode-error"),
    "transfer cut": (frame(0, raw("005314c0")), "decode-error"),
    "transfer longer than its frame": (frame(0, raw("005314c0ff0b43")), "decode-error"),
    "transfer of list0": (frame(0, raw("00531445")), "decode-error"),
    "transfer with a count of one too many": (frame(0, raw("005314c00e0c4343a0017443424240404242 42")), "decode-error"),
    "disposition cut": (frame(0, raw("005315c00b0641")), "decode-error"),
    "disposition with a tail": (f(Disposition(True, 0, 0, True)) [:-1] + b"\x99", "decode-error"),
    "bytes behind a flow": (frame(0, encode_composite(Flow(0, 1, 0, 1)) + b"x"), "decode-error"),
    "a second open": (f(Open("again")), "illegal-state"),
    "begin on a used channel": (BEGIN, "not-allowed"),
    "begin above channel-max": (f(Begin(None, 0, 1, 1), channel=5000), "framing-error"),
    "begin that answers nothing": (f(Begin(7, 0, 1, 1), channel=3), "not-allowed"),
    "attach without a session": (f(Attach("b", 1, True), channel=9), "not-allowed"),
    "transfer without a session": (f(Transfer(0, 0, b"t"), channel=9), "not-allowed"),
    "performative of 100 kB": (f(Attach("b", 1, True, properties={"x": bytes(100_000)})), "decode-error"),
    "zero-width arrays": (frame(0, b"\x00\x53\x12\xc0\x1f\x03" + raw("f00000000500000fff40") * 3), "decode-error"),
    "array of 2^31 nulls": (frame(0, raw("005317f0000000058000000040")), "decode-error"),
    "nesting": (frame(0, b"\x00\x53\x12" + raw("c0ff01") * 200), "decode-error"),
    "unhashable descriptor": (frame(0, raw("004545")), "decode-error"),
}  # fmt: skip


@pytest.mark.spec("W-3")
def test_a_handle_above_handle_max_ends_the_session_of_a_server():
    server = a_server()
    server.receive_data(attach("b", 1024), 0.0)
    answer = server.data_to_send()
    assert b"\x00\x53\x17" in answer
    assert b"The maximum number of handles allowed is 1023." in answer
    assert not server.is_closed


@pytest.mark.parametrize("case", CLOSES)
def test_a_broken_frame_closes_the_connection(case):
    data, symbol = CLOSES[case]
    server = a_server()
    server.receive_data(data, 0.0)
    (closed,) = [event for event in server.events() if isinstance(event, ConnectionClosed)]
    assert closed.condition.symbol.endswith(symbol), closed
    answer = server.data_to_send()
    assert b"\x00\x53\x18" in answer
    assert symbol.encode() in answer
    assert server.is_closed
    server.receive_data(data, 1.0)
    assert server.events() == []
    assert server.data_to_send() == b""


BEFORE_OPEN = {
    "begin": (BEGIN, "illegal-state"),
    "close": (f(Close()), "illegal-state"),
    "a large frame": (raw("00002001 02000000"), "framing-error"),
    "noise": (frame(0, b"\x99"), "decode-error"),
}


@pytest.mark.parametrize("case", BEFORE_OPEN)
def test_only_a_small_open_is_accepted_as_the_first_frame(case):
    data, symbol = BEFORE_OPEN[case]
    server = a_server(upto=OPENING[: -len(frame(0, encode_composite(Open("x"))))])
    server.receive_data(data, 0.0)
    (closed,) = [event for event in server.events() if isinstance(event, ConnectionClosed)]
    assert closed.condition.symbol.endswith(symbol)
    answer = server.data_to_send()
    assert answer.index(b"\x00\x53\x10") < answer.index(b"\x00\x53\x18")  # 2.4.3: an open precedes the close


ENDS = {
    "attach on a used handle": (attach("b", 0), "handle-in-use"),
    "transfer on a free handle": (f(Transfer(9, 0, b"t")), "unattached-handle"),
    "flow on a free handle": (flow(9), "unattached-handle"),
    "detach of a free handle": (f(Detach(9)), "unattached-handle"),
    "flow that has seen the future": (flow(seen=1 + 5), "invalid-field"),
    "disposition backwards": (f(Disposition(False, 5, 2, True)), "invalid-field"),
    "disposition of half the circle": (f(Disposition(True, 0, 2**31, True)), "invalid-field"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_session_error_ends_only_the_session(case):
    data, symbol = ENDS[case]
    server = a_server()
    server.receive_data(data, 0.0)
    (ended,) = [event for event in server.events() if isinstance(event, SessionEnded)]
    assert ended.condition.symbol.endswith(symbol)
    assert server.is_open
    server.receive_data(f(Transfer(0, 0, b"t", 0), b"late"), 0.0)
    server.receive_data(frame(0, encode_composite(Begin(None, 0, 1, 1)))[:8] + b"", 0.0)
    assert not [event for event in server.events() if isinstance(event, MessageReceived)]


DETACHES = {
    "no delivery-id": (f(Transfer(0, None, b"t")), "invalid-field"),
    "no tag": (f(Transfer(0, 0, None)), "invalid-field"),
    "tag of 129 bytes": (f(Transfer(0, 0, bytes(129))), "invalid-field"),
    "delivery inside a delivery": (
        f(Transfer(0, 0, b"t", 0, False, True)) + f(Transfer(0, 1, b"t", 0, False)),
        "not-allowed",
    ),
}


@pytest.mark.parametrize("case", DETACHES)
def test_a_broken_link_rule_detaches_the_link_only(case):
    data, symbol = DETACHES[case]
    server = a_server()
    server.receive_data(data, 0.0)
    (detached,) = [event for event in server.events() if isinstance(event, LinkDetached)]
    assert detached.condition.symbol.endswith(symbol)
    assert server.is_open
    assert server.sessions[0].is_open
    server.receive_data(f(Transfer(0, 5, b"t", 0)) + f(Detach(0, True)), 0.0)
    assert server.events() == []
    server.receive_data(attach("again", 0), 0.0)
    assert len(server.events()) == 1


def test_two_deliveries_with_one_tag_are_two_messages():  # as the Python SDK numbers concurrent requests
    server = a_server()
    server.receive_data(f(Transfer(0, 0, b"t", 0), b"\x00\x53\x77\x40") * 2, 0.0)
    deliveries = [event for event in server.events() if isinstance(event, MessageReceived)]
    assert [delivery.delivery_id for delivery in deliveries] == [0, 0]
    for delivery in deliveries:
        delivery.link.dispose(0, 0, ACCEPTED, settled=True)
    assert server.is_open
    assert not server.sessions[0].incoming


HARMLESS = {
    "empty frames": EMPTY_FRAME * 1000,
    "an extended header": raw("0000000c 03000000 deadbeef"),
    "an empty tag": f(Transfer(0, 0, b"", 0), b"x"),
    "unknown delivery-ids": f(Disposition(True, 5, 500, True)) + f(Disposition(False, 0, 2**31 - 1, False)),
    "credit of 2^32-1": f(Attach("r", 1, True, source=Source("q"), target=Target())) + flow(1, delivery_count=0, link_credit=2**32 - 1),
    "a drain of nothing": flow(0, delivery_count=0, link_credit=0, drain=True),
    "echoes": flow(echo=True) * 500,
    "no source and no target": f(Attach("n", 1, False)),
    "a coordinator": f(Attach("c", 1, False, source=Source(), target=Coordinator(("amqp:local-transactions",)))),
    "dynamic": f(Attach("d", 1, True, source=Source(dynamic=True), target=Target())),
    "the name in the other role": f(Attach("a", 1, True, source=Source("q"), target=Target())),
    "an unknown message-format": f(Transfer(0, 0, b"t", 0xDEADBEEF), b"x"),
    "an aborted delivery": f(Transfer(0, 0, b"t", 0, aborted=True)),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS)
def test_odd_but_legal_input_is_accepted(case):
    server = a_server()
    server.receive_data(HARMLESS[case], 0.0)
    events = server.events()
    server.data_to_send()
    assert not [e for e in events if isinstance(e, ConnectionClosed | SessionEnded | LinkDetached)], events
    assert server.is_open


@pytest.mark.spec("S-7")
def test_the_number_of_sessions_is_bounded():
    server = a_server(upto=OPENING, limits=Limits(max_sessions=3))
    server.receive_data(b"".join(f(Begin(None, 0, 1, 1), channel=n) for n in range(4)), 0.0)
    assert server.events()[-1].condition.symbol == "amqp:resource-limit-exceeded"


@pytest.mark.spec("S-7")
def test_links_are_bounded_over_all_sessions():
    server = a_server(upto=OPENING + BEGIN, limits=Limits(max_links=3))
    server.receive_data(b"".join(attach(f"l{n}", n) for n in range(4)), 0.0)
    assert server.events()[-1].condition.symbol == "amqp:resource-limit-exceeded"


def test_ended_links_are_not_counted():
    server = a_server(upto=OPENING + BEGIN, limits=Limits(max_links=3))
    for _ in range(10):
        server.receive_data(attach("l", 0) + f(Detach(0, True)), 0.0)
    server.receive_data(f(Begin(None, 0, 1, 1), channel=1), 0.0)
    assert server.is_open
    assert len(server.sessions) == 2


@pytest.mark.spec("S-7")
def test_unsettled_deliveries_are_bounded():
    server = a_server(limits=Limits(max_unsettled=5))
    server.receive_data(b"".join(f(Transfer(0, n, b"t", 0)) for n in range(6)), 0.0)
    events = server.events()
    assert len(events) == 6
    assert events[-1].condition.symbol == "amqp:resource-limit-exceeded"


def test_credit_is_enforced_where_configured():
    server = a_server(limits=Limits(enforce_credit=True))
    server.receive_data(f(Transfer(0, 0, b"t", 0)), 0.0)
    assert server.events()[-1].condition.symbol == "amqp:link:transfer-limit-exceeded"


def many_small_arrays() -> bytes:
    zero_width = raw("f00000000500000fff45") * 5000
    properties = b"\xd0" + (len(zero_width) + 4).to_bytes(4, "big") + (5000).to_bytes(4, "big") + zero_width
    return frame(0, b"\x00\x53\x12" + properties)


HOSTILE_STREAMS: dict[str, Callable[[], bytes]] = {
    "many small arrays": many_small_arrays,
    "a delivery without end": lambda: f(Transfer(0, 0, b"t", 0, False, True), bytes(60_000)) * 200,
    "dispositions of everything": lambda: f(Disposition(True, 0, 2**31 - 1, False)) * 5000,
    "attaches": lambda: b"".join(attach(f"name{n}", n % 1000 + 1) for n in range(5000)),
    "begins": lambda: b"".join(f(Begin(None, 0, 1, 1), channel=n) for n in range(1, 65536, 13)),
    "one huge frame, never finished": lambda: raw("000fffff 02000000") + bytes(900_000),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE_STREAMS)
def test_a_hostile_stream_costs_little(case):
    stream = HOSTILE_STREAMS[case]()

    def hear() -> None:
        server = a_server()
        for at in range(0, len(stream), 65536):
            server.receive_data(stream[at : at + 65536], 0.0)
            server.data_to_send()

    assert cpu_of(hear) < 5  # the target is one second
    tracemalloc.start()  # not earlier, because tracing slows everything down
    try:
        hear()
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 2**20


def test_a_frame_arriving_byte_by_byte_is_not_copied_repeatedly():
    server = a_server()
    message = f(Transfer(0, 0, b"t", 0), bytes(200_000))

    def hear() -> None:
        for octet in message:
            server.receive_data(bytes((octet,)), 0.0)

    assert cpu_of(hear) < 5
    assert [len(e.payload) for e in server.events()] == [200_000]


@pytest.mark.spec("B-21")
@given(st.lists(st.integers(0, 130_000), max_size=12), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_long_messages_split_anywhere_arrive_unchanged(cuts, step):
    bodies = [b"a" * 40_000, b"b" * 10, b"c" * 20_000, b"d" * 60_000, b"e" * 5000]
    stream = b"".join(f(Transfer(0, number, b"t", 0), body) for number, body in enumerate(bodies))
    server, at = a_server(), 0
    for cut in [*(step * number for number in range(1, 20)), *sorted(cuts), len(stream)]:
        if cut > at:
            server.receive_data(stream[at:cut], 0.0)
            at = cut
    assert [event.payload for event in server.events()] == bodies


@pytest.mark.spec("B-21")
def test_a_long_incoming_message_is_copied_only_once():
    server, size = a_server(), 1_000_000
    stream = f(Transfer(0, 0, b"t", 0), bytes(size))
    chunks = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]
    tracemalloc.start()
    try:
        for chunk in chunks:
            server.receive_data(chunk, 0.0)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(event.payload) for event in server.events()] == [size]
    assert peak < 1.1 * size


@pytest.mark.spec("B-21")
def test_a_split_long_message_still_counts_against_the_link_limits():
    server = a_server()
    long = f(Transfer(7, 0, b"t", 0), bytes(100_000))  # on a handle that nobody attached
    for at in range(0, len(long), 30_000):
        server.receive_data(long[at : at + 30_000], 0.0)
    (ended,) = server.events()
    assert isinstance(ended, SessionEnded)


@pytest.mark.spec("S-8")
@given(st.binary(max_size=300), st.sampled_from([b"", OPENING, OPENING + BEGIN + ATTACH]))
@settings(max_examples=300, deadline=None)
def test_random_bytes_never_raise_at_the_owner(noise, upto):
    server = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0)
    server.receive_data(upto, 0.0)
    if upto:
        server.authenticate(True)
    server.receive_data(noise, 0.0)
    server.events()
    server.data_to_send()


@pytest.mark.slow
@pytest.mark.spec("S-8")
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_never_raises_at_the_owner(data):
    stream = bytearray(
        BEGIN + ATTACH + f(Transfer(0, 0, b"t", 0), b"x") + flow(0, link_credit=5) + f(Disposition(False, 0))
    )
    stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    server = a_server(upto=OPENING)
    server.receive_data(bytes(stream), 0.0)
    server.events()
    server.data_to_send()


@given(st.binary(max_size=100))
@settings(max_examples=300, deadline=None)
def test_random_bytes_as_a_message_split_or_raise_a_decode_error(noise):
    try:
        assert b"".join(split(noise)) == noise
    except DecodeError:
        pass
