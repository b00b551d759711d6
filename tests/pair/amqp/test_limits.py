"""A peer causes only bounded memory and work, whatever it leaves unfinished or repeats."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import AMQP_HEADER, SASL_HEADER, frame
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    DispositionReceived,
    LinkAttached,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    RECEIVER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.types import Symbol
from tests.costs import cpu_of

MOST_CPU = 1.0  # seconds of this thread


def f(performative: object, payload: bytes = b"", channel: int = 0) -> bytes:
    return frame(channel, encode_composite(performative), len(payload)) + payload


OPENING = SASL_HEADER + frame(0, encode_composite(SaslInit("ANONYMOUS")), kind=1) + AMQP_HEADER + f(Open("x"))
BEGIN = f(Begin(None, 0, 2**31, 1000))


def a_server(**limits: int) -> Connection:
    server = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0, limits=Limits(**limits))
    hear(server, OPENING)
    server.authenticate(True)
    hear(server, BEGIN)
    return server


def hear(server: Connection, data: bytes) -> list:
    """Feed bytes and return the events; answer links."""
    server.receive_data(data, 0.0)
    events = server.events()
    for event in events:
        if isinstance(event, LinkAttached):
            event.link.attach(source=event.attach.source, target=event.attach.target)
    server.data_to_send()
    return events


def attach(name: str, handle: int, **fields: object) -> bytes:
    return f(
        Attach(name, handle, False, source=Source(), target=Target("q"), initial_delivery_count=0, **fields)
    )


def piece(handle: int, number: int | None, size: int, *, more: bool = True, aborted: bool = False) -> bytes:
    tag = None if number is None else b"t"
    return f(Transfer(handle, number, tag, 0, False, more, aborted=aborted), b"x" * size)


def is_closed(events: list) -> bool:
    return any(
        isinstance(event, ConnectionClosed) and event.condition.symbol == "amqp:resource-limit-exceeded"
        for event in events
    )


# -- bytes


@pytest.mark.spec("R-33")
def test_unfinished_deliveries_are_held_up_to_the_allowance_of_the_connection():
    server = a_server(max_held=200_000)
    for handle in range(10):
        assert not is_closed(hear(server, attach(f"link{handle}", handle)))
    events: list = []
    for handle in range(10):
        events += hear(server, piece(handle, handle, 30_000))

    assert is_closed(events)


@pytest.mark.spec("R-33")
@pytest.mark.parametrize("ending", ["last", "aborted", "detached", "session ended"])
def test_accounted_memory_is_returned_when_it_is_released(ending):
    server = a_server(max_held=120_000)
    for round_ in range(20):
        if ending == "session ended" and round_:
            hear(server, BEGIN)
        hear(server, attach("link", 0))
        hear(server, piece(0, round_, 60_000))
        end = {
            "last": piece(0, None, 10, more=False) + f(Detach(0, True)),
            "aborted": piece(0, None, 0, aborted=True) + f(Detach(0, True)),
            "detached": f(Detach(0, True)),
            "session ended": f(End()),
        }[ending]
        assert not is_closed(hear(server, end))

    assert not server.is_closed


@pytest.mark.spec("R-33")
def test_link_names_and_properties_count_towards_the_memory_limit():
    """Small values take fifty times their bytes on the wire, and each of a thousand links may have many."""
    server = a_server(max_held=2_000_000)
    events: list = []
    for handle in range(40):
        properties = {Symbol(f"p{n}"): [] for n in range(2_000)}
        events += hear(server, attach(f"link{handle}", handle, properties=properties))

    assert is_closed(events)


@pytest.mark.spec("R-33")
def test_sessions_count_towards_the_memory_limit():
    server = a_server(max_held=100_000)
    events: list = []
    for channel in range(1, 60):
        events += hear(server, f(Begin(None, 0, 1000, 1000), channel=channel))

    assert is_closed(events)


@pytest.mark.spec("R-33")
def test_a_frame_larger_than_the_allowance_is_refused_at_its_header():
    server = a_server()
    server.allowance = 100_000
    events = hear(server, piece(0, 0, 200_000)[:50])

    assert any(isinstance(event, ConnectionClosed) for event in events)


@pytest.mark.spec("R-33")
def test_a_larger_allowance_applies_from_when_it_is_granted():
    server = a_server()
    server.allowance = 50_000
    hear(server, attach("link", 0))
    server.allowance = 1_000_000

    assert not is_closed(hear(server, piece(0, 0, 400_000)))


def test_an_oversized_message_is_dropped_while_it_arrives():
    server = a_server(max_held=150_000, max_message_size=50_000)
    hear(server, attach("link", 0))
    events: list = []
    for number in range(20):
        events += hear(server, piece(0, number or None if number else 0, 40_000, more=number < 19))

    assert not is_closed(events)
    assert not server.is_closed


def test_a_multi_frame_message_of_the_exact_maximum_size_is_accepted():
    server = a_server(max_message_size=50_000)
    hear(server, attach("link", 0))
    hear(server, piece(0, 0, 25_000))
    (event,) = hear(server, piece(0, None, 25_000, more=False))

    assert isinstance(event, MessageReceived)
    assert len(event.payload) == 50_000


# -- dispositions of a range


def a_sender(count: int, **limits: int):
    """Return a server with a link of ``count`` unsettled deliveries, numbered from 0."""
    server = a_server(**limits)
    asked = f(Attach("in", 0, RECEIVER, source=Source("q"), target=Target()))
    (event,) = hear(server, asked)
    for number in range(count):
        event.link.transfer(b"x", tag=number.to_bytes(4, "big"), force=True)
    server.data_to_send()
    return server, event.link


def settle(first: int, last: int, settled: bool = True) -> bytes:
    return f(Disposition(RECEIVER, first, last, settled, ACCEPTED))


@pytest.mark.spec("R-32")
@pytest.mark.parametrize(
    ("first", "last", "settled"), [(5_000, 2**31, True), (0, 2**31 - 1, False), (1, 29_998, True)]
)
def test_useless_disposition_ranges_end_the_session_early(first, last, settled):
    """One after the other each looked at every delivery of the session: 16 KB of them took six seconds."""
    server, link = a_sender(30_000)
    if settled:
        hear(server, settle(1, 29_998))
    events: list = []
    assert cpu_of(lambda: events.extend(hear(server, settle(first, last, settled) * 600))) < MOST_CPU
    named = [event for event in events if isinstance(event, DispositionReceived)]
    if len(link.unsettled) > 2:
        (ended,) = [event for event in events if isinstance(event, SessionEnded)]
        assert ended.condition.symbol == "amqp:resource-limit-exceeded"
        assert len(named) < 20


@pytest.mark.spec("R-32")
def test_settling_real_deliveries_never_uses_up_the_tolerance():
    server, link = a_sender(0, disposition_budget=100)
    for start in range(0, 20_000, 100):
        for _ in range(100):
            link.transfer(b"x", tag=b"t", force=True)
        server.data_to_send()
        hear(server, settle(start + 50, start + 50) + settle(start, start + 99, settled=False))
        events = hear(server, settle(start, start + 2**30))
        assert sum(event.last - event.first + 1 for event in events) == 99

    assert link.unsettled == {}
    assert link.session.is_open


@pytest.mark.spec("R-32")
@pytest.mark.parametrize("last", [9, 10, 2**31 - 1])
def test_a_range_wider_than_the_open_deliveries_settles_all_of_them(last):
    server, link = a_sender(10)
    events = hear(server, settle(0, 8) if last == 9 else settle(1, 3))
    events = hear(server, settle(0, last))

    assert link.unsettled == {}
    assert events[-1].last == 9


@pytest.mark.spec("R-32")
def test_a_range_that_ends_with_the_last_delivery_settles_it():
    server, link = a_sender(10)
    hear(server, settle(1, 8))  # two are left, nine apart
    events = hear(server, settle(0, 9))

    assert [(event.first, event.last) for event in events] == [(0, 0), (9, 9)]
    assert link.unsettled == {}
