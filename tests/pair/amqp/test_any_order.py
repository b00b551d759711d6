"""Any performative at any time: the engine keeps its contract with the application and the wire."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import AMQP_HEADER, SASL_HEADER, frame
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Condition,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Rejected,
    SaslInit,
    Source,
    Target,
    Transfer,
)

small = st.integers(0, 3)
number = st.integers(0, 5) | st.sampled_from([2**30, 2**30 + 1, 2**31, 2**32 - 1])
maybe = st.booleans()


performatives = st.one_of(
    st.builds(Begin, st.none() | small, number, number, number),
    st.builds(
        Attach,
        st.sampled_from("ab"),
        small,
        maybe,
        source=st.just(Source("q")) | st.none(),
        target=st.just(Target("q")),
    ),
    st.builds(
        Flow,
        st.none() | number,
        number,
        number,
        number,
        st.none() | small,
        st.none() | number,
        number,
        drain=maybe,
    ),
    st.builds(
        Transfer, small, st.none() | number, st.none() | st.binary(max_size=2), more=maybe, aborted=maybe
    ),
    st.builds(Disposition, maybe, number, number, maybe, st.none() | st.just(ACCEPTED)),
    st.builds(Detach, small, maybe),
    st.builds(End),
    st.sampled_from([Close(), Open("again")]),
)
OPENING = SASL_HEADER + frame(0, encode_composite(SaslInit("ANONYMOUS")), kind=1) + AMQP_HEADER
USUAL = [
    (0, Open("x", max_frame_size=512)),
    (0, Begin(None, 0, 5, 5)),
    (0, Attach("a", 0, False, target=Target("q"))),
]


def well_formed(data: bytes) -> list[object]:
    """Decode the performatives in a run of frames of at most 512 bytes each."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert 8 <= size <= 512
        assert size <= len(data)
        if size > 8:
            found.append(decode_composite(data, 8, size)[0])
        data = data[size:]
    return found


@pytest.mark.slow
@given(st.booleans(), st.lists(st.tuples(st.integers(0, 1), performatives), max_size=30), st.data())
@settings(max_examples=400, deadline=None)
def test_any_sequence_of_performatives_raises_nothing(usual, conversation, data):
    server = Connection(
        role=ConnectionRole.SERVER,
        container_id="s",
        now=0.0,
        first_delivery_id=2**30,
        limits=Limits(incoming_window=5),
    )
    server.receive_data(OPENING, 0.0)
    server.authenticate(True)
    server.events()
    server.data_to_send()
    events, said = [], []
    for channel, performative in (USUAL if usual else []) + conversation:
        server.receive_data(frame(channel, encode_composite(performative)), 0.0)
        fresh = server.events()
        events += fresh
        for event in fresh:
            act(event, data.draw(small))
        said += well_formed(server.data_to_send())
    counts = Counter(
        id(event.link) if isinstance(event, LinkDetached) else id(event.session)
        for event in events
        if isinstance(event, LinkDetached | SessionEnded)
    )
    assert set(counts.values()) <= {1}
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert len(closed) <= 1
    assert not closed or events[-1] is closed[0]
    assert server.is_closed is bool(closed)
    assert [type(what) for what in said].count(Open) <= 1
    assert [type(what) for what in said].count(Close) <= 1
    assert not said or isinstance(said[0], Open)
    if any(isinstance(what, Close) for what in said):
        assert isinstance(said[-1], Close)


def act(event: object, choice: int) -> None:
    """Perform one of the application's operations."""
    if isinstance(event, LinkAttached):
        if choice == 0:
            event.link.refuse(Condition("amqp:not-found", "x" * 600, {"k": "v" * 600}))
        elif not event.link.is_open:
            event.link.attach(source=Source("q"), target=Target("q"))
            if isinstance(event.link, ReceiverLink):
                event.link.flow(10)
            else:
                event.link.transfer(bytes(700), tag=b"t", force=True)
    elif isinstance(event, MessageReceived):
        state = ACCEPTED if choice else Rejected(Condition("a:b", "y" * 600))
        event.link.dispose(event.delivery_id, event.delivery_id, state)
    elif isinstance(event, SessionEnded) and choice == 0:
        event.session.end()
