"""Sessions and links between a client and a server of this package."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.errors import EncodeError, LocalProtocolError
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SessionBegun,
    SessionEnded,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Condition,
    Detach,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)


def test_both_sides_learn_that_connection_and_session_are_open(pair):
    assert pair.client.is_open
    assert pair.server.is_open
    assert pair.session.is_open
    assert pair.client_saw(ConnectionOpened)[0].open.container_id == "server"
    assert pair.server_saw(ConnectionOpened)[0].open.container_id == "client"
    assert len(pair.client_saw(SessionBegun)) == len(pair.server_saw(SessionBegun)) == 1


def test_the_same_link_name_runs_in_both_directions(pair):
    sender, _ = pair.sending_link("twin")
    _, receiver = pair.receiving_link("twin")
    assert sender.is_open
    assert receiver.is_open
    assert not pair.client_saw(LinkDetached)


def test_attaching_a_link_with_the_same_name_and_role_replaces_the_older_one(pair):
    sender, old = pair.sending_link("twin")
    thief = Attach("twin", 7, False, source=Source(), target=Target("queue"))
    pair.session.send(thief)
    pair.exchange()
    detached = pair.server_saw(LinkDetached)
    assert [event.link for event in detached] == [old]
    assert detached[0].condition.symbol == "amqp:link:stolen"
    assert not sender.is_open
    fresh = pair.server_saw(LinkAttached)[-1].link
    assert fresh is not old
    assert pair.server.sessions[0].links["twin", True] is fresh


def test_a_refused_link_sees_a_null_target_and_then_the_reason(pair):
    pair.answers_links = False
    sender = pair.session.attach_sender("s", target=Target("nowhere"))
    receiver = pair.session.attach_receiver("r", source=Source("nowhere"))
    pair.exchange()
    for event in pair.server_saw(LinkAttached):
        event.link.refuse(Condition("amqp:not-found", "no such queue"))
    pair.exchange()
    assert sender.is_refused
    assert receiver.is_refused
    assert sender.remote_attach.target is None
    assert receiver.remote_attach.source is None
    assert [e.condition.symbol for e in pair.client_saw(LinkDetached)] == ["amqp:not-found"] * 2
    assert all(e.closed for e in pair.client_saw(LinkDetached))
    assert sender.is_closed
    assert not pair.session.links
    assert not pair.server.sessions[0].links
    attached = pair.client_events.index(pair.client_saw(LinkAttached)[0])
    assert attached < pair.client_events.index(pair.client_saw(LinkDetached)[0])


@pytest.mark.parametrize("size", [0, 1, 470, 471, 472, 473, 474, 475, 511, 512, 5000])
def test_a_message_is_split_by_the_frame_size_of_the_peer_and_reassembled(make_pair, size):
    pair = make_pair(max_frame_size=512, server_max_frame_size=512)
    payload = bytes(range(256)) * 20
    for ours, theirs, saw in (
        (*pair.sending_link("a"), pair.server_saw),
        (*pair.receiving_link("b"), pair.client_saw),
    ):
        ours.transfer(payload[:size], tag=b"tag", message_format=0x80013700)
        pair.exchange()
        (message,) = saw(MessageReceived)
        assert message.payload == payload[:size]
        assert (message.tag, message.message_format, message.link) == (b"tag", 0x80013700, theirs)


def test_no_frame_exceeds_the_maximum_frame_size_of_the_peer(make_pair):
    pair = make_pair(server_max_frame_size=512)
    sender, _ = pair.sending_link()
    sender.transfer(bytes(3000), tag=b"t" * 32)
    data, sizes = pair.client.data_to_send(), []
    while data:
        sizes.append(int.from_bytes(data[:4], "big"))
        data = data[sizes[-1] :]
    assert max(sizes) == 512
    assert len(sizes) == 7


def test_deliveries_of_two_links_may_be_interleaved(pair):
    sender, _ = pair.sending_link("a")
    other, _ = pair.sending_link("b")
    for link, number, payload, more in (
        (sender, 0, b"a1", True),
        (other, 1, b"b1", True),
        (sender, 0, b"a2", False),
        (other, 1, b"b2", False),
    ):
        transfer = Transfer(link.handle, number, b"%d" % number, 0, False, more)
        pair.client.write(frame(pair.session.channel, encode_composite(transfer), len(payload)) + payload)
    pair.exchange()
    assert [(m.link.name, m.payload) for m in pair.server_saw(MessageReceived)] == [
        ("a", b"a1a2"),
        ("b", b"b1b2"),
    ]


def test_an_aborted_delivery_leaves_no_trace(pair):
    _sender, receiver = pair.sending_link()
    for transfer in (
        Transfer(0, 0, b"0", 0, False, True),
        Transfer(0, None, None, None, None, False, aborted=True),
        Transfer(0, 1, b"1", 0, False, False),
    ):
        pair.client.write(frame(pair.session.channel, encode_composite(transfer), 1) + b"x")
    pair.exchange()
    assert [m.payload for m in pair.server_saw(MessageReceived)] == [b"x"]
    assert list(receiver.unsettled) == [1]


def test_credit_is_counted_down_and_sending_without_it_is_misuse(pair):
    sender, _ = pair.sending_link(credit=2)
    sender.transfer(b"1", tag=b"1")
    sender.transfer(b"2", tag=b"2")
    with pytest.raises(LocalProtocolError, match="no credit on link 'link'"):
        sender.transfer(b"3", tag=b"3")
    sender.transfer(b"4", tag=b"4", force=True)
    pair.exchange()
    assert [m.payload for m in pair.server_saw(MessageReceived)] == [b"1", b"2", b"4"]


def test_credit_is_absolute_and_includes_messages_in_flight(pair):
    sender, receiver = pair.sending_link(credit=3)
    sender.transfer(b"1", tag=b"1")  # not yet seen by the receiver when it grants again
    receiver.flow(10)
    pair.client.receive_data(pair.server.data_to_send(), 0.0)
    assert sender.credit == 9


def test_credit_can_be_revoked(pair):
    sender, receiver = pair.sending_link(credit=50)
    receiver.flow(0)
    pair.exchange()
    assert sender.credit == 0


def test_a_drain_is_answered_and_leaves_no_credit(pair):
    sender, receiver = pair.receiving_link(credit=5)
    sender.transfer(b"last", tag=b"1")
    receiver.flow(5, drain=True)
    pair.exchange()
    grant = pair.server_saw(CreditGranted)[-1]
    assert grant.drain
    assert grant.link is sender
    assert sender.drain
    sender.drained()
    pair.exchange()
    assert pair.client_saw(CreditDrained) == [CreditDrained(receiver)]
    assert receiver.credit == 0
    assert receiver.delivery_count == sender.delivery_count


def test_a_requested_echo_is_sent_once(pair):
    _, receiver = pair.sending_link(credit=3)
    receiver.flow(3, echo=True)
    pair.exchange()  # falls silent, or fails


def test_consecutive_accepts_leave_as_one_range(pair):
    sender, receiver = pair.sending_link()
    for n in range(10):
        sender.transfer(b"x", tag=bytes([n]))
    pair.exchange()
    for message in pair.server_saw(MessageReceived):
        receiver.dispose(message.delivery_id, message.delivery_id, ACCEPTED)
    data = pair.server.data_to_send()
    assert len(data) < 50
    pair.client.receive_data(data, 0.0)
    assert pair.client.events() == [DispositionReceived(sender, 0, 9, ACCEPTED, True)]
    assert not sender.unsettled
    assert not pair.session.outgoing
    assert not receiver.unsettled


def test_a_range_across_two_links_becomes_one_event_per_run(pair):
    a, a_end = pair.sending_link("a")
    b, _ = pair.sending_link("b")
    for link in (a, a, b, a):
        link.transfer(b"x", tag=b"t")
    pair.exchange()
    a_end.session.dispose(True, 0, 3, True, ACCEPTED)
    pair.exchange()
    runs = [(e.link.name, e.first, e.last) for e in pair.client_saw(DispositionReceived)]
    assert runs == [("a", 0, 1), ("b", 2, 2), ("a", 3, 3)]


def test_a_range_wider_than_the_known_deliveries_names_only_known_ones(pair):
    sender, receiver = pair.sending_link()
    sender.transfer(b"x", tag=b"t")
    pair.exchange()
    receiver.session.dispose(True, 0, 2**31 - 1, True, ACCEPTED)
    pair.exchange()
    assert [(e.first, e.last) for e in pair.client_saw(DispositionReceived)] == [(0, 0)]


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        Released(),
        Rejected(Condition("com.microsoft:dead-letter", "why", {"DeadLetterReason": "r"})),
        Rejected(),
        Modified(True, False),
        Modified(None, True, {"x": 1}),
    ],
    ids=lambda state: type(state).__name__,
)
def test_the_sender_settles_a_delivery_that_the_receiver_accepted_unsettled(pair, state):
    sender, receiver = pair.receiving_link()
    number = sender.transfer(b"x", tag=b"t" * 16)
    assert number == 2**30
    pair.exchange()
    receiver.dispose(number, number, state, settled=False)
    pair.exchange()
    assert pair.server_saw(DispositionReceived) == [DispositionReceived(sender, number, number, state, False)]
    assert number in sender.unsettled
    sender.settle(number, number, state)
    pair.exchange()
    assert pair.client_saw(DispositionReceived) == [
        DispositionReceived(receiver, number, number, state, True)
    ]
    assert not sender.unsettled
    assert not receiver.unsettled


def test_a_settled_transfer_is_forgotten_by_both_sides(pair):
    sender, receiver = pair.sending_link()
    sender.transfer(b"x", tag=b"t", settled=True)
    pair.exchange()
    assert pair.server_saw(MessageReceived)[0].settled
    assert not sender.unsettled
    assert not receiver.unsettled
    assert not receiver.session.incoming


def test_a_transfer_may_carry_a_state(make_pair):
    pair = make_pair(server_max_frame_size=512)
    sender, _ = pair.sending_link()
    state = Rejected(Condition("a:b", "c" * 250))
    sender.transfer(bytes(600), tag=b"t", state=state)
    pair.exchange()
    (message,) = pair.server_saw(MessageReceived)
    assert message.state == state
    assert message.payload == bytes(600)


def test_delivery_ids_wrap_around(make_pair):
    pair = make_pair(first_delivery_id=2**32 - 3)
    sender, receiver = pair.sending_link()
    for n in range(6):
        sender.transfer(b"%d" % n, tag=b"t")
    pair.exchange()
    messages = pair.server_saw(MessageReceived)
    assert [m.delivery_id for m in messages] == [2**32 - 3, 2**32 - 2, 2**32 - 1, 0, 1, 2]
    receiver.dispose(messages[0].delivery_id, messages[-1].delivery_id, ACCEPTED)
    pair.exchange()
    assert not sender.unsettled
    assert not receiver.unsettled
    assert sum((e.last - e.first) % 2**32 + 1 for e in pair.client_saw(DispositionReceived)) == 6


def test_transfers_beyond_the_window_of_the_peer_wait_their_turn(make_pair):
    pair = make_pair(limits=Limits(incoming_window=4))
    sender, _ = pair.sending_link()
    for n in range(20):
        sender.transfer(b"%d" % n, tag=b"t")
    assert pair.session.pending == 16
    pair.exchange()
    assert pair.session.pending == 0
    assert [int(m.payload) for m in pair.server_saw(MessageReceived)] == list(range(20))


def test_a_peer_that_ignores_the_window_loses_the_session(make_pair):
    pair = make_pair(limits=Limits(incoming_window=2))
    sender, receiver = pair.sending_link()
    pair.session.out.window = 100  # the client believes there is room
    receiver.session._window = 0  # and no space is left
    sender.transfer(b"x", tag=b"t")
    pair.server.receive_data(pair.client.data_to_send(), 0.0)
    (ended,) = [e for e in pair.server.events() if isinstance(e, SessionEnded)]
    assert ended.condition.symbol == "amqp:session:window-violation"


def test_a_message_too_large_for_the_link_is_rejected_and_the_link_survives(pair):
    pair.answers_links = False
    sender = pair.session.attach_sender("s", target=Target("q"))
    pair.exchange()
    link = pair.server_saw(LinkAttached)[0].link
    link.attach(source=Source(), target=Target("q"), max_message_size=1000)
    link.flow(10)
    pair.exchange()
    sender.transfer(bytes(1001), tag=b"1")
    sender.transfer(bytes(1000), tag=b"2")
    pair.exchange()
    assert [len(m.payload) for m in pair.server_saw(MessageReceived)] == [1000]
    (told,) = pair.client_saw(DispositionReceived)
    assert told.state.error.symbol == "amqp:link:message-size-exceeded"
    assert sender.is_open


@pytest.mark.spec("R-21")
@pytest.mark.parametrize("size", [1001, 30_000])
def test_a_message_beyond_the_engines_own_limit_detaches_the_link_and_is_not_settled(make_pair, size):
    """Its owner has told nobody of a limit and never sees it: to reject it would be to dead-letter it."""
    pair = make_pair(limits=Limits(max_message_size=1000))
    sender, _ = pair.sending_link()
    sender.transfer(bytes(size), tag=b"1")
    pair.exchange()
    assert not pair.server_saw(MessageReceived)
    assert not pair.client_saw(DispositionReceived)
    (detached,) = pair.client_saw(LinkDetached)
    assert detached.condition.symbol == "amqp:link:message-size-exceeded"


def test_an_endless_delivery_is_not_kept_in_memory(make_pair):
    pair = make_pair(limits=Limits(max_message_size=10_000))
    _, receiver = pair.sending_link()
    piece = frame(0, encode_composite(Transfer(0, 0, b"t", 0, False, True)), 1000) + bytes(1000)
    for _ in range(50):
        pair.client.write(piece)
    pair.exchange()
    assert receiver._partial is not None
    assert not receiver._partial.pieces
    last = encode_composite(Transfer(0, 0, b"t", 0, False, False))
    pair.client.write(frame(0, last))
    pair.exchange()
    assert not pair.server_saw(MessageReceived)


def test_a_detach_is_answered_and_reported_once_to_both_owners(pair):
    sender, receiver = pair.sending_link()
    sender.transfer(b"x", tag=b"t")
    pair.exchange()
    receiver.detach(Condition("amqp:link:detach-forced", "gone"))
    receiver.detach()
    pair.exchange()
    assert pair.client_saw(LinkDetached) == [
        LinkDetached(sender, Condition("amqp:link:detach-forced", "gone"), True)
    ]
    assert pair.server_saw(LinkDetached) == [LinkDetached(receiver, None, True)]
    assert sender.is_closed
    assert receiver.is_closed
    assert not sender.unsettled
    assert not pair.session.outgoing
    assert not receiver.session.incoming
    again, _ = pair.sending_link("link")
    assert again.is_open


def test_a_detached_link_is_distinguished_from_a_closed_one(pair):
    sender, _receiver = pair.sending_link()
    sender.detach(closed=False)
    pair.exchange()
    assert [e.closed for e in pair.server_saw(LinkDetached)] == [False]


def test_frames_for_a_link_just_closed_by_the_peer_are_dropped(pair):
    sender, receiver = pair.sending_link()
    receiver.detach()
    pair.client.receive_data(pair.server.data_to_send(), 0.0)
    sender.transfer(b"x", tag=b"t", force=True)
    sender.drained()
    sender.settle(0, 0, ACCEPTED)
    pair.exchange()
    assert not pair.server_saw(MessageReceived)
    assert pair.server.is_open


def test_a_link_detached_before_the_owner_answered_is_answered_by_the_engine(pair):
    pair.answers_links = False
    sender = pair.session.attach_sender("s", target=Target("q"))
    sender.detach()
    pair.exchange()
    link = pair.server_saw(LinkAttached)[0].link
    link.attach(source=Source(), target=Target("q"))  # too late, but not an error
    pair.exchange()
    assert sender.is_closed
    assert pair.client.is_open


def test_the_end_of_a_session_ends_its_links_and_keeps_the_connection(pair):
    pair.sending_link()
    pair.session.end()
    pair.exchange()
    (ended,) = pair.server_saw(SessionEnded)
    assert [link.name for link in ended.session.links.values()] == ["link"]
    assert pair.client_saw(SessionEnded)[0].session is pair.session
    assert not pair.client.sessions
    assert not pair.server.sessions
    assert pair.client.is_open
    pair.session = pair.client.begin()
    assert pair.sending_link("next")[0].is_open


def test_a_session_error_does_not_affect_another_session(pair):
    other = pair.client.begin()
    pair.exchange()
    pair.session.send(Detach(99, True))
    pair.exchange()
    (ended,) = pair.client_saw(SessionEnded)
    assert ended.condition.symbol == "amqp:session:unattached-handle"
    assert other.is_open
    assert not pair.session.is_open


def test_a_close_with_a_reason_reaches_the_other_side(pair):
    pair.server.close(Condition("amqp:connection:forced", "maintenance"))
    pair.exchange()
    assert pair.client_saw(ConnectionClosed) == [
        ConnectionClosed(Condition("amqp:connection:forced", "maintenance"))
    ]
    assert pair.server_saw(ConnectionClosed) == [ConnectionClosed(None)]
    assert pair.client.is_closed
    assert pair.server.is_closed


def test_the_end_of_the_stream_closes_once(pair):
    pair.client.receive_eof(1.0)
    pair.client.receive_eof(2.0)
    assert pair.client.events() == [ConnectionClosed(None)]
    assert pair.client.next_timer() is None


def test_misuse_by_the_owner_is_named(pair):
    pair.session.attach_sender("s", target=Target("q"))
    with pytest.raises(LocalProtocolError, match="'s' in this direction"):
        pair.session.attach_sender("s", target=Target("q"))
    pair.session.end()
    with pytest.raises(LocalProtocolError, match="ended"):
        pair.session.attach_sender("t", target=Target("q"))
    pair.client.close()
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.client.begin()


@pytest.mark.spec("R-105")
def test_an_unencodable_state_does_not_affect_other_sessions(pair):
    sender, receiver = pair.sending_link()
    other = pair.client.begin().attach_sender("other", target=Target("q"), snd_settle_mode=0)
    pair.exchange()
    theirs = pair.server_saw(LinkAttached)[-1].link
    theirs.flow(10)
    pair.exchange()
    first, second = (link.transfer(b"x", tag=b"t") for link in (sender, other))
    pair.exchange()
    arrived = pair.server_saw(MessageReceived)
    receiver.dispose(
        arrived[0].delivery_id, arrived[0].delivery_id, Modified(message_annotations={"a": object()})
    )
    theirs.dispose(arrived[1].delivery_id, arrived[1].delivery_id, ACCEPTED)
    with pytest.raises(EncodeError):
        pair.server.data_to_send()
    pair.exchange()
    assert [(event.link, event.first) for event in pair.client_saw(DispositionReceived)] == [(other, second)]
    assert first in sender.unsettled


@pytest.mark.spec("R-98")
@pytest.mark.parametrize("by", ["us", "the peer"])
def test_a_link_of_an_ended_session_has_no_credit_and_accepts_no_transfer(pair, by):
    sender, receiver = pair.sending_link(credit=7)
    receiver.flow(9)
    (sender if by == "us" else receiver).session.end()
    pair.exchange()
    assert sender.credit == 0
    with pytest.raises(LocalProtocolError, match="no credit on link 'link'"):
        sender.transfer(b"x", tag=b"t")
    assert not pair.server_saw(MessageReceived)


def test_a_flow_from_a_sender_changes_no_credit(pair):
    sender, receiver = pair.sending_link(credit=7)
    pair.session.send(Flow(pair.session._next_incoming_id, 100, 0, 100, sender.handle, 0, 10_000))
    pair.exchange()
    assert receiver.credit == 7
    assert pair.server.is_open


@pytest.mark.spec("B-21")
def test_long_payloads_are_sent_as_they_are_and_what_is_between_them_is_joined(pair):
    sender, _ = pair.sending_link()
    bodies = [b"a" * 100, b"b" * 50_000, b"c" * 200, b"d" * 300, bytes(20_000)]
    for number, body in enumerate(bodies):
        sender.transfer(body, tag=bytes((number,)), settled=True)
    pieces = pair.client.pieces_to_send()
    assert [len(piece) for piece in pieces if len(piece) > 2000] == [50_000, 20_000]
    assert any(piece is bodies[1] for piece in pieces)
    assert len(pieces) == 4
    pair.server.receive_data(b"".join(pieces), 0.0)
    assert [event.payload for event in pair.server.events()] == bodies
    assert pair.client.pieces_to_send() == []
