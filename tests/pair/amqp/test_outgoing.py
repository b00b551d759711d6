"""What a session sends, frame by frame: split to the peer's frame size, paced by its window."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import AMQP_HEADER, SASL_HEADER, frame
from sbpair.pair.amqp.errors import LocalProtocolError
from sbpair.pair.amqp.events import ConnectionClosed, DispositionReceived, LinkAttached, SessionEnded
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Condition,
    DeliveryState,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.types import Described, Symbol

pytestmark = pytest.mark.spec("R-66")

FIRST = 2**32 - 3  # numbers that wrap around soon
MASK = 2**32 - 1


def said(performative: object, channel: int = 0, kind: int = 0) -> bytes:
    return frame(channel, encode_composite(performative), kind=kind)


@dataclass
class Sending:
    """A session with sending links whose peer is written by hand."""

    connection: Connection
    links: list[SenderLink]
    frames: list[tuple[Transfer, bytes, int]] = field(default_factory=list)
    """The transfers sent: performative, payload, and size of the frame."""

    def take(self) -> None:
        data = self.connection.data_to_send()
        while data:
            size = int.from_bytes(data[:4], "big")
            performative, stop = decode_composite(data, 8, size)
            if isinstance(performative, Transfer):
                self.frames.append((performative, data[stop:size], size))
            data = data[size:]

    def peer_says(self, performative: object) -> None:
        self.connection.receive_data(said(performative), 0.0)

    def ends(self) -> list[Condition | None]:
        return [each.condition for each in self.connection.events() if isinstance(each, SessionEnded)]


def sending(*, window: int = 2**31, frame_size: int = 512, links: int = 1) -> Sending:
    connection = Connection(
        role=ConnectionRole.SERVER,
        container_id="s",
        now=0.0,
        first_delivery_id=FIRST,
        first_transfer_id=FIRST,
    )
    greeting = SASL_HEADER + said(SaslInit("ANONYMOUS"), kind=1) + AMQP_HEADER
    connection.receive_data(greeting, 0.0)
    connection.authenticate(True)
    connection.receive_data(said(Open("x", max_frame_size=frame_size)), 0.0)
    connection.receive_data(said(Begin(None, 0, window, 9)), 0.0)
    for handle in range(links):
        connection.receive_data(
            said(Attach(f"{handle}", handle, True, source=Source("q"), target=Target())), 0.0
        )
    attached = [each.link for each in connection.events() if isinstance(each, LinkAttached)]
    for link in attached:
        link.attach(source=Source("q"), target=Target())
    connection.data_to_send()
    return Sending(connection, attached)


@pytest.mark.parametrize("state", [None, ACCEPTED, Described(Symbol("a:b"), [b"x" * 100])], ids=repr)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("size", [0, 1, 300, 512, 2000])
def test_every_frame_of_a_message_is_filled_to_the_maximum_frame_size(
    size: int, settled: bool, state: DeliveryState | None
) -> None:
    it = sending()
    payload = bytes(range(256)) * 8
    number = it.links[0].transfer(
        payload[:size], tag=b"tag", settled=settled, message_format=5, state=state, force=True
    )
    it.take()
    assert number == FIRST
    assert b"".join(payload for _, payload, _ in it.frames) == payload[:size]
    for index, (transfer, _, size_of_frame) in enumerate(it.frames):
        more = index < len(it.frames) - 1
        assert transfer == Transfer(0, FIRST, b"tag", 5, settled, more, None, state)
        assert (size_of_frame == 512) if more else (size_of_frame <= 512)


def test_a_message_that_just_fits_one_frame_is_sent_in_one_frame() -> None:
    it = sending()
    it.links[0].transfer(b"", tag=b"tag", force=True)
    it.take()
    room = 512 - it.frames.pop()[2]
    it.links[0].transfer(bytes(room), tag=b"tag", force=True)
    it.links[0].transfer(bytes(room + 1), tag=b"tag", force=True)
    it.take()
    assert [size for _, _, size in it.frames] == [512, 512, 512 - room + 1]


@pytest.mark.parametrize("length", [400, 439, 440, 441, 600])
def test_a_state_that_leaves_no_room_for_a_payload_is_refused(length: int) -> None:
    it = sending()
    state = Described(Symbol("a:b"), [b"x" * length])
    alone = len(encode_composite(Transfer(0, FIRST, b"tag", 0, False, True, None, state))) + 8
    if alone < 512:
        it.links[0].transfer(b"xy", tag=b"tag", state=state, force=True)
        it.take()
        assert b"".join(payload for _, payload, _ in it.frames) == b"xy"
        assert len(it.frames) == (2 if alone == 511 else 1)
    else:
        with pytest.raises(
            LocalProtocolError, match=r"^a frame of 512 bytes is too small for this delivery-state$"
        ):
            it.links[0].transfer(b"xy", tag=b"tag", state=state, force=True)


sends = st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([0, 100, 511, 1200]))
flows = st.tuples(st.just("flow"), st.none() | st.integers(0, 6), st.integers(0, 8))
drops = st.tuples(st.just("detach"), st.integers(0, 1), st.just(0))


@pytest.mark.slow
@given(st.integers(0, 4), st.lists(sends | flows | drops, max_size=14))
@settings(max_examples=200, deadline=None)
def test_frames_leave_in_order_up_to_the_window(window: int, steps: list) -> None:
    it, free = sending(window=window, links=2), sending(links=2)
    waiting: list[tuple[int, tuple[Transfer, bytes, int]]] = []  # link and frame
    expected: list[tuple[Transfer, bytes, int]] = []
    detached: set[int] = set()
    for kind, which, size in steps:
        if kind == "send":
            if which in detached:
                continue
            for each in (it, free):
                each.links[which].transfer(bytes(size), tag=b"t", force=True)
            known = len(free.frames)
            free.take()
            waiting += [(which, each) for each in free.frames[known:]]
        elif kind == "detach":
            it.links[which].detach()
            detached.add(which)
            waiting = [each for each in waiting if each[0] != which]
        else:
            seen = 0 if which is None else which
            it.peer_says(Flow(None if which is None else (FIRST + seen) & MASK, size, 0, 9))
            if seen > len(expected):
                (ended,) = it.ends()
                number = (FIRST + seen) & MASK
                assert ended is not None
                assert ended.description == f"next-incoming-id {number} is beyond what was sent"
                return
            window = max(0, size - (len(expected) - seen))
        while window and waiting:
            window -= 1
            expected.append(waiting.pop(0)[1])
        it.take()
        assert it.frames == expected
        assert it.connection.sessions[0].pending == len(waiting)


def test_before_the_peers_begin_the_window_counts_from_the_first_number() -> None:
    it = sending(window=2)
    for number in range(5):
        it.links[0].transfer(b"%d" % number, tag=b"t", force=True)
    it.peer_says(Flow(None, 3, 0, 9))  # three in all: one more than were sent
    it.take()
    assert [payload for _, payload, _ in it.frames] == [b"0", b"1", b"2"]


# --- handles and counts of a session's links


def test_a_freed_handle_is_reused(pair) -> None:
    links = [pair.session.attach_sender(name, target=Target("q")) for name in "abc"]
    pair.exchange()
    assert [link.handle for link in links] == [0, 1, 2]
    links[0].detach()
    pair.exchange()
    again = [pair.session.attach_sender(name, target=Target("q")) for name in "de"]
    assert [link.handle for link in again] == [0, 3]
    pair.exchange()
    assert all(link.is_open for link in [*links[1:], *again])


def test_the_handle_max_of_the_peer_limits_the_attached_links(make_pair) -> None:
    pair = make_pair(server_handle_max=2)
    for name in "ab":
        pair.session.attach_sender(name, target=Target("q"))
    with pytest.raises(LocalProtocolError, match=r"^the peer allows handles up to 2$"):
        pair.session.attach_receiver("c", source=Source("q"))
    pair.session.links["a", False].detach()
    pair.exchange()
    assert pair.session.attach_receiver("c", source=Source("q")).handle == 0


@pytest.mark.parametrize("ending", ["end", "detach"])
def test_ended_links_make_room_for_others(make_pair, ending: str) -> None:
    pair = make_pair(limits=Limits(max_links=2))
    for turn in range(5):
        links = [pair.session.attach_sender(f"{turn}{name}", target=Target("q")) for name in "ab"]
        pair.exchange()
        assert all(link.is_open for link in links)
        if ending == "end":
            pair.session.end()
            pair.session = pair.client.begin()
        else:
            for link in links:
                link.detach()
        pair.exchange()
    for name in "abc":
        pair.session.attach_sender(name, target=Target("q"))
    pair.exchange()
    (ended,) = pair.server_saw(SessionEnded)[5 if ending == "end" else 0 :]
    assert ended.condition.symbol == "amqp:resource-limit-exceeded"


# --- errors of the session


def test_a_client_that_is_refused_is_closed_with_the_reason() -> None:
    connection = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0)
    connection.receive_data(SASL_HEADER + said(SaslInit("ANONYMOUS"), kind=1), 0.0)
    connection.authenticate(False)
    (closed,) = [each for each in connection.events() if isinstance(each, ConnectionClosed)]
    assert closed.condition == Condition("amqp:unauthorized-access", "authentication failed")


def test_a_transfer_to_a_sending_link_ends_the_session() -> None:
    it = sending()
    it.peer_says(Transfer(0, 0, b"t", 0))
    assert it.ends() == [Condition("amqp:not-allowed", "a transfer on handle 0, which it receives on")]


def test_too_many_useless_dispositions_end_the_session(make_pair) -> None:
    pair = make_pair(limits=Limits(disposition_budget=2))
    sender, receiver = pair.sending_link()
    for _ in range(3):
        sender.transfer(b"x", tag=b"t")
    pair.exchange()
    pair.server.disposition_budget = -1000  # three transfers do not compensate for it
    pair.session.dispose(False, 0, 2, False, ACCEPTED)
    pair.exchange()
    (ended,) = pair.server_saw(SessionEnded)
    assert ended.condition == Condition(
        "amqp:resource-limit-exceeded", "too many dispositions that settle nothing"
    )
    assert receiver.remote_attach is not None


@pytest.mark.parametrize("settled", [True, False])
def test_an_oversized_multi_frame_message_is_rejected_unless_presettled(make_pair, settled: bool) -> None:
    pair = make_pair(server_max_frame_size=512)
    pair.answers_links = False
    sender = pair.session.attach_sender("s", target=Target("q"))
    pair.exchange()
    (attached,) = pair.server_saw(LinkAttached)
    attached.link.attach(source=Source(), target=Target("q"), max_message_size=1000)
    attached.link.flow(5)
    pair.exchange()
    number = sender.transfer(bytes(3000), tag=b"t", settled=settled)
    pair.exchange()
    decided = pair.client_saw(DispositionReceived)
    assert [(each.first, each.settled) for each in decided] == ([] if settled else [(number, True)])
    assert sender.is_open


def test_a_flow_that_asks_for_an_echo_is_answered_for_its_link() -> None:
    it = sending()
    it.peer_says(Flow(FIRST, 9, 0, 9, 0, 0, 5, echo=True))
    data = it.connection.data_to_send()
    performative, _ = decode_composite(data, 8, len(data))
    assert isinstance(performative, Flow)
    assert (performative.handle, performative.link_credit, performative.echo) == (0, 5, False)
