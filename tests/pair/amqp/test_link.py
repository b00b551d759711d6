"""The frames that two ends of a link exchange, field by field."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.errors import LocalProtocolError
from sbpair.pair.amqp.events import (
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Coordinator, Rejected, Source, Target

pytestmark = pytest.mark.spec("R-66")


def ends(pair, *, is_sender: bool = True, **fields):
    """Attach a link with these fields; return both ends before the server answers."""
    pair.answers_links = False
    attach = pair.session.attach_sender if is_sender else pair.session.attach_receiver
    usual = {"target": Target("there")} if is_sender else {"source": Source("here")}
    ours = attach("link", **usual | fields)
    pair.exchange()
    return ours, pair.server_saw(LinkAttached)[-1].link


FIELDS = {
    "properties": {"a": 1},
    "max_message_size": 4096,
    "desired_capabilities": ("two", "three"),
    "snd_settle_mode": 1,
    "rcv_settle_mode": 1,
}


@pytest.mark.parametrize("is_sender", [True, False])
def test_the_fields_of_an_attach_arrive_unchanged(pair, is_sender: bool) -> None:
    source, target = Source("here"), Target("there")
    ours, theirs = ends(pair, is_sender=is_sender, source=source, target=target, **FIELDS)
    said = theirs.remote_attach
    assert (said.name, said.handle, said.role) == ("link", ours.handle, not is_sender)
    assert (said.source.address, said.target.address) == ("here", "there")
    assert {name: getattr(said, name) for name in FIELDS} == FIELDS
    assert said.initial_delivery_count == (0 if is_sender else None)
    assert said.unsettled is None
    assert (ours.credit, ours.delivery_count, ours.held_bytes, ours.max_message_size) == (0, 0, 0, 4096)
    assert (theirs.credit, theirs.delivery_count, theirs.max_message_size) == (0, 0, None)
    assert ours.remote_attach is None
    assert repr(ours) == f"<{type(ours).__name__} 'link' OPEN/UNOPENED>"
    answer = {**FIELDS, "properties": {"b": 2}, "max_message_size": 99, "offered_capabilities": ("one",)}
    theirs.attach(source=source, target=target, initial_delivery_count=7, **answer)
    pair.exchange()
    said = ours.remote_attach
    assert {name: getattr(said, name) for name in answer} == answer
    assert (said.source.address, said.target.address) == ("here", "there")
    assert said.initial_delivery_count == (None if is_sender else 7)
    assert (theirs.delivery_count, ours.delivery_count) == ((0, 0) if is_sender else (7, 7))
    assert repr(theirs) == f"<{type(theirs).__name__} 'link' OPEN/OPEN>"


@pytest.mark.parametrize("is_sender", [True, False])
@pytest.mark.parametrize("modes", [(0, 1), (1, 0)])
def test_unset_settle_modes_are_the_peers_or_the_defaults(
    pair, is_sender: bool, modes: tuple[int, int]
) -> None:
    snd, rcv = modes
    ours, theirs = ends(pair, is_sender=is_sender, snd_settle_mode=snd, rcv_settle_mode=rcv)
    theirs.attach(source=Source("a"), target=Target("a"))
    pair.exchange()
    assert (ours.remote_attach.snd_settle_mode, ours.remote_attach.rcv_settle_mode) == modes
    usual = pair.session.attach_sender("usual", target=Target("there"))
    pair.exchange()
    said = pair.server_saw(LinkAttached)[-1].attach
    assert (said.snd_settle_mode, said.rcv_settle_mode) == (2, 0)
    assert usual.remote_attach is None


def test_a_link_is_attached_once_and_never_after_its_end(pair) -> None:
    ours, _ = ends(pair)
    with pytest.raises(LocalProtocolError) as told:
        ours.attach(source=None, target=None)
    assert str(told.value) == "link 'link' is attached already"
    ours.detach()
    assert pair.client.data_to_send()
    ours.attach(source=None, target=None)
    ours.detach()
    assert not pair.client.data_to_send()


@pytest.mark.parametrize("is_sender", [True, False])
def test_a_refusal_echoes_only_the_terminus_of_the_peer(pair, is_sender: bool) -> None:
    ours, theirs = ends(pair, is_sender=is_sender, source=Source("here"), target=Target("there"))
    assert not ours.is_refused
    theirs.refuse(Condition("amqp:not-found", "gone"))
    pair.exchange()
    said = ours.remote_attach
    addresses = [each and each.address for each in (said.source, said.target)]
    assert addresses == (["here", None] if is_sender else [None, "there"])
    (detached,) = pair.client_saw(LinkDetached)
    assert (detached.link, detached.condition, detached.closed) == (
        ours,
        Condition("amqp:not-found", "gone"),
        True,
    )
    assert ours.is_refused


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_says_whether_it_closes_the_link_and_voids_its_credit(pair, closed: bool) -> None:
    sender, receiver = pair.sending_link(credit=5)
    receiver.detach(Condition("a:b", "c"), closed=closed)
    assert receiver.credit == 0
    pair.exchange()
    for events, link, why in (
        (pair.client_saw(LinkDetached), sender, Condition("a:b", "c")),
        (pair.server_saw(LinkDetached), receiver, None),
    ):
        (detached,) = events
        assert (detached.link, detached.condition, detached.closed) == (link, why, closed)
        assert link.credit == 0


def test_a_link_error_of_the_peer_ends_the_link_at_once(pair) -> None:
    _, receiver = pair.sending_link(credit=5)
    pair.server_events.clear()
    receiver.fault(Condition("a:b", "c"))
    (detached,) = pair.server.events()
    assert (detached.link, detached.condition, detached.closed) == (receiver, Condition("a:b", "c"), True)
    pair.exchange()
    assert pair.server_saw(LinkDetached) == []  # reported once


def test_detaching_a_link_keeps_frames_queued_for_other_links(pair) -> None:
    one, _ = pair.sending_link("one")
    other, _ = pair.sending_link("other")
    other.transfer(b"x", tag=b"1")
    one.detach()
    pair.exchange()
    assert [event.link.name for event in pair.server_saw(MessageReceived)] == ["other"]


# --- credit and transfers


def test_a_transfer_uses_a_credit_and_the_next_number(pair) -> None:
    sender, receiver = pair.sending_link(credit=2)
    first = pair.session.next_delivery_id
    assert [sender.transfer(b"x", tag=b"%d" % n) for n in range(2)] == [first, first + 1]
    assert (sender.credit, sender.delivery_count) == (0, 2)
    assert sender.unsettled == {first: b"0", first + 1: b"1"}
    with pytest.raises(LocalProtocolError) as told:
        sender.transfer(b"x", tag=b"")
    assert str(told.value) == "no credit on link 'link'"
    sender.transfer(b"x", tag=b"f", force=True, settled=True)
    assert (sender.credit, sender.delivery_count, len(sender.unsettled)) == (0, 3, 2)
    pair.exchange()
    seen = pair.server_saw(MessageReceived)
    assert [(each.tag, each.settled, each.message_format) for each in seen] == [
        (b"0", False, 0),
        (b"1", False, 0),
        (b"f", True, 0),
    ]
    assert receiver.delivery_count == 2 + (1 if receiver.credit == 0 else 0)
    assert list(receiver.unsettled.values()) == [b"0", b"1"]


def test_a_tag_has_at_most_thirty_two_bytes(pair) -> None:
    sender, _ = pair.sending_link()
    sender.transfer(b"x", tag=b"t" * 32)
    with pytest.raises(LocalProtocolError) as told:
        sender.transfer(b"x", tag=b"t" * 33)
    assert str(told.value) == "a delivery-tag has at most 32 bytes, not 33"


def test_nothing_is_sent_on_a_link_that_is_not_open(pair) -> None:
    sender, _ = pair.sending_link()
    sender.detach()
    pair.exchange()
    before = pair.session.next_delivery_id
    assert sender.transfer(b"x", tag=b"1", force=True) == before
    assert (pair.session.next_delivery_id, sender.unsettled, sender.delivery_count) == (before, {}, 0)
    assert not pair.client.data_to_send()


def test_the_sender_settles_a_range_with_its_state(pair) -> None:
    sender, receiver = pair.sending_link()
    numbers = [sender.transfer(b"x", tag=b"%d" % n) for n in range(4)]
    pair.exchange()
    sender.settle(numbers[1], numbers[1], ACCEPTED)
    sender.settle(numbers[2], numbers[3], None)
    assert list(sender.unsettled) == list(pair.session.outgoing) == numbers[:1]
    pair.exchange()
    said = [(e.first, e.last, e.settled, e.state) for e in pair.server_saw(DispositionReceived)]
    assert said == [(numbers[1], numbers[1], True, ACCEPTED), (numbers[2], numbers[3], True, None)]
    assert receiver.session.incoming == {numbers[0]: receiver}


@pytest.mark.parametrize("settled", [True, False])
def test_a_receiver_sends_an_outcome_settled_or_unsettled(pair, settled: bool) -> None:
    sender, receiver = pair.sending_link()
    numbers = [sender.transfer(b"x", tag=b"%d" % n) for n in range(3)]
    pair.exchange()
    receiver.dispose(numbers[0], numbers[1], ACCEPTED, settled=settled)
    left = numbers[2:] if settled else numbers
    assert list(receiver.unsettled) == list(receiver.session.incoming) == left
    pair.exchange()
    (said,) = pair.client_saw(DispositionReceived)
    assert (said.first, said.last, said.settled, said.state) == (numbers[0], numbers[1], settled, ACCEPTED)
    assert list(sender.unsettled) == left


@pytest.mark.parametrize("credit", [-1, 2**32])
def test_credit_has_thirty_two_bits(pair, credit: int) -> None:
    _, receiver = pair.sending_link()
    for fits in (0, 2**32 - 1):
        receiver.flow(fits)
    with pytest.raises(LocalProtocolError) as told:
        receiver.flow(credit)
    assert str(told.value) == f"credit is 0 … 4294967295, not {credit}"


def test_a_flow_event_carries_credit_drain_and_echo(pair) -> None:
    sender, receiver = pair.sending_link(credit=3)
    receiver.flow(4, drain=True)
    pair.exchange()
    told = pair.client_saw(CreditGranted)[-1]
    assert (told.link, told.credit, told.drain, told.properties) == (sender, 4, True, None)
    assert sender.drain is True
    sender.drained()
    assert (sender.credit, sender.delivery_count, sender.drain) == (0, 4, False)
    pair.exchange()
    assert [event.link for event in pair.server_saw(CreditDrained)] == [receiver]
    assert (receiver.credit, receiver.delivery_count) == (0, 4)


def test_a_drain_during_sends_ends_when_all_credit_is_returned(pair) -> None:
    sender, receiver = pair.sending_link(credit=3)
    sender.transfer(b"x", tag=b"1")
    pair.exchange()
    receiver.flow(2, drain=True)
    pair.exchange()
    assert sender.credit == 2
    pair.session.flow(sender, 1, drain=True)  # no credit was returned yet
    pair.exchange()
    assert pair.server_saw(CreditDrained) == []
    assert receiver.credit == 2
    sender.drained()
    pair.exchange()
    assert len(pair.server_saw(CreditDrained)) == 1


# --- sizes


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("size", [100, 101, 5000])
def test_an_oversized_message_is_rejected_in_one_frame_or_in_many(
    make_pair, size: int, settled: bool
) -> None:
    pair = make_pair(max_frame_size=512, server_max_frame_size=512)
    sender, receiver = ends(pair, target=Target("queue"))
    receiver.attach(source=Source("a"), target=Target("queue"), max_message_size=100)
    receiver.flow(5)
    pair.exchange()
    number = sender.transfer(bytes(size), tag=b"1", settled=settled)
    pair.exchange()
    if size == 100:
        assert len(pair.server_saw(MessageReceived)) == 1
        assert not pair.client_saw(DispositionReceived)
        return
    assert not pair.server_saw(MessageReceived)
    said = [(e.first, e.last, e.settled, e.state) for e in pair.client_saw(DispositionReceived)]
    text = f"a message of {size} bytes; this link takes 100"
    why = Condition("amqp:link:message-size-exceeded", text)
    assert said == ([] if settled else [(number, number, True, Rejected(why))])
    assert (receiver.unsettled, sender.unsettled, receiver.is_open) == ({}, {}, True)


def test_a_link_may_accept_more_than_it_announces_and_refuse_with_its_own_error(pair) -> None:
    sender, receiver = ends(pair, target=Target("queue"))
    receiver.attach(source=Source("a"), target=Target("queue"), max_message_size=100)
    receiver.tolerate(200, lambda size: Condition("a:b", f"{size}"))
    receiver.flow(5)
    pair.exchange()
    for size in (200, 201):
        sender.transfer(bytes(size), tag=b"%d" % size)
    pair.exchange()
    assert [len(event.payload) for event in pair.server_saw(MessageReceived)] == [200]
    assert [each.state for each in pair.client_saw(DispositionReceived)] == [
        Rejected(Condition("a:b", "201"))
    ]


def test_an_aborted_or_ended_partial_delivery_frees_its_memory(make_pair) -> None:
    pair = make_pair(max_frame_size=512, server_max_frame_size=512)
    sender, receiver = pair.sending_link()
    held = receiver.held_bytes
    sender.transfer(bytes(2000), tag=b"1")
    data = pair.client.data_to_send()
    pair.server.receive_data(data[:1024], 0.0)
    assert receiver.held_bytes >= held + 900
    pair.server.receive_data(data[1024:], 0.0)
    assert receiver.held_bytes == held
    (message,) = [event for event in pair.server.events() if isinstance(event, MessageReceived)]
    assert (len(message.payload), message.tag, message.settled) == (2000, b"1", False)


def test_too_many_unsettled_deliveries_end_the_link(make_pair) -> None:
    pair = make_pair(limits=Limits(max_unsettled=2))
    sender, receiver = pair.sending_link()
    for n in range(3):
        sender.transfer(b"x", tag=b"%d" % n)
    pair.exchange()
    assert len(pair.server_saw(MessageReceived)) == 2
    (detached,) = pair.server_saw(LinkDetached)
    assert detached.link is receiver
    why = Condition("amqp:resource-limit-exceeded", "2 deliveries are unsettled")
    assert detached.condition == why


def test_a_coordinator_is_a_valid_target(pair) -> None:
    _, theirs = ends(pair, target=Coordinator(("amqp:local-transactions",)))
    assert theirs.remote_attach.target == Coordinator(("amqp:local-transactions",))


# --- a session's window


def test_a_session_window_is_used_completely_and_renewed_at_half(make_pair) -> None:
    pair = make_pair(limits=Limits(incoming_window=4))
    sender, _ = pair.sending_link()
    session = pair.server.sessions[0]
    assert pair.session.out.window == 4
    for number in range(3):  # at half of the window the peer gets a new one
        sender.transfer(b"x", tag=b"%d" % number)
        pair.exchange()
    session._window = 1
    sender.transfer(b"x", tag=b"last")
    sender.transfer(b"x", tag=b"next")
    data = pair.client.data_to_send()
    pair.server.receive_data(data, 0.0)
    assert [type(event) for event in pair.server.events()] == [MessageReceived] * 2
    session._window = 0
    pair.exchange()
    sender.transfer(b"x", tag=b"beyond")
    pair.exchange()
    (ended,) = pair.server_saw(SessionEnded)
    assert ended.session is session
    text = "a transfer beyond our incoming-window"
    assert ended.condition == Condition("amqp:session:window-violation", text)


@pytest.mark.parametrize("state", [ACCEPTED, None, Rejected(Condition("a:b", "c"))])
def test_a_disposition_arrives_unchanged_and_extends_a_similar_range(pair, state) -> None:
    sender, receiver = pair.sending_link()
    numbers = [sender.transfer(b"x", tag=b"%d" % n) for n in range(6)]
    pair.exchange()
    same = Rejected(Condition("a:b", "c")) if isinstance(state, Rejected) else state
    for number, each, settled in (
        (numbers[0], state, True),
        (numbers[1], same, True),
        (numbers[2], same, False),
        (numbers[3], Rejected(Condition("other")), False),
        (numbers[5], Rejected(Condition("other")), False),
    ):
        receiver.dispose(number, number, each, settled=settled)
    pair.exchange()
    said = [(e.first, e.last, e.state, e.settled) for e in pair.client_saw(DispositionReceived)]
    assert said == [
        (numbers[0], numbers[1], state, True),
        (numbers[2], numbers[2], state, False),
        (numbers[3], numbers[3], Rejected(Condition("other")), False),
        (numbers[5], numbers[5], Rejected(Condition("other")), False),
    ]
    assert {event.link for event in pair.client_saw(DispositionReceived)} == {sender}


def test_an_ended_session_sends_nothing_more_and_is_reported_once(pair) -> None:
    sender, receiver = pair.sending_link()
    number = sender.transfer(b"x", tag=b"1")
    pair.exchange()
    session = receiver.session
    receiver.dispose(number, number, ACCEPTED)
    session.end(Condition("a:b"))
    session.end()
    pair.exchange()
    assert [event.state for event in pair.client_saw(DispositionReceived)] == [ACCEPTED]
    assert [event.condition for event in pair.client_saw(SessionEnded)] == [Condition("a:b")]
    assert [event.condition for event in pair.server_saw(SessionEnded)] == [None]
    assert (session.is_open, pair.session.is_open, pair.server.sessions) == (False, False, [])
    session.flow(None)
    receiver.flow(5)
    assert not pair.server.data_to_send()
    with pytest.raises(LocalProtocolError):
        pair.session.attach_sender("late", target=Target("q"))


def test_a_sender_keeps_its_initial_delivery_count(pair) -> None:
    sender, theirs = ends(pair, initial_delivery_count=41)
    assert (sender.delivery_count, theirs.delivery_count) == (41, 41)
    assert theirs.remote_attach.initial_delivery_count == 41
    theirs.attach(source=Source("a"), target=Target("q"))
    theirs.flow(5)
    pair.exchange()
    assert sender.credit == 5
