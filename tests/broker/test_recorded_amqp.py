"""What users saw the service send over AMQP, one test for the facts of a kind: `tests/cloud/amqp.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sbpair.broker.entities import SubscriptionDescription, TopicDescription
from sbpair.broker.frontends.amqp.client_connection import ClientConnection
from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.encoding import AMQP_HEADER, SASL_HEADER, frame
from sbpair.pair.amqp.events import LinkDetached
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.types import Symbol
from tests.cloud.facts import facts
from tests.tools.source import ROOT

pytestmark = [pytest.mark.client("amqp"), pytest.mark.spec("W-3", "W-7")]
BEGIN = Begin(None, 0, 65_536, 65_536)


class Peer:
    """Sends frames to a broker and reads its answers, one performative at a time."""

    def __init__(self, lab, *opening: object, mechanism: str = "ANONYMOUS") -> None:
        self.lab = lab
        self.server = ClientConnection(lab.frontend, lab.now)
        lab.clients_of_frames = [*getattr(lab, "clients_of_frames", []), self]
        sasl = frame(0, encode_composite(SaslInit(mechanism, b"")), kind=1)
        self.greeting = self.send_bytes(SASL_HEADER) + self.send_bytes(sasl)
        self.said = self.send_bytes(AMQP_HEADER)
        for each in opening:
            self.said += self.send(each)

    def send(self, performative: object, payload: bytes = b"") -> list[object]:
        return self.send_bytes(frame(0, encode_composite(performative), len(payload)) + payload)

    def send_bytes(self, data: bytes) -> list[object]:
        self.server.receive_data(data, self.lab.now)
        while self.lab.frontend.deliver(self.lab.now):
            pass
        return list(_performatives(b"".join(self.server.pieces_to_send())))


def _performatives(data: bytes) -> Iterator[object]:
    at = 0
    while at < len(data):
        if data.startswith(b"AMQP", at):
            at += 8
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        yield decode_composite(data, at + 8, at + size)[0]
        at += size


def only(kind: type, found: list[object]) -> object:
    (one,) = (each for each in found if isinstance(each, kind))
    return one


def attach(name: str, handle: int, *, receives: bool, address: str, **fields: object) -> Attach:
    count = None if receives else 0
    ends = (Source(address), Target("t")) if receives else (Source("s"), Target(address))
    return Attach(
        name, handle, receives, source=ends[0], target=ends[1], initial_delivery_count=count, **fields
    )


def test_every_recorded_fact_has_a_test_or_a_reason_for_its_difference() -> None:
    for each in facts():
        assert (each.test is None) is not (each.accepted is None), each.id
        if each.test is not None:
            file, _, name = each.test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text("utf-8"), each.id
        assert each.source.startswith("https://"), each.id


def test_the_sasl_greeting_matches_the_recording(guarded) -> None:
    peer = Peer(guarded)
    mechanisms = only(SaslMechanisms, peer.greeting)
    assert mechanisms.sasl_server_mechanisms == ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
    assert only(SaslOutcome, peer.greeting) == SaslOutcome(0, b"Welcome!")


@pytest.mark.parametrize(
    ("asked", "size", "idle"),
    [
        (Open("c", max_frame_size=32_768), 32_768, 240_000),
        (Open("c", max_frame_size=1_048_576, idle_time_out=50_000), 65_536, 120_000),
        (Open("c", max_frame_size=65_536), 65_536, 240_000),
    ],
)
def test_the_open_matches_the_recording(lab, asked: Open, size: int, idle: int) -> None:
    opened = only(Open, Peer(lab, asked).said)
    assert re.fullmatch(r"[0-9a-f]{32}_G\d+", opened.container_id)
    assert (opened.hostname, opened.max_frame_size, opened.channel_max) == (None, size, 4999)
    assert (opened.idle_time_out, opened.properties) == (idle, None)


@pytest.mark.parametrize("window", [65_536, 2_047])
def test_the_begin_matches_the_recording(lab, window: int) -> None:
    lab.queue()
    peer = Peer(lab, Open("c"), Begin(None, 0, window, 65_536))
    begun = only(Begin, peer.said)
    assert (begun.next_outgoing_id, begun.incoming_window) == (1, 5_000)
    assert (begun.outgoing_window, begun.handle_max) == (window, 255)
    flow = only(Flow, peer.send(attach("a", 0, receives=False, address="orders")))
    assert (flow.incoming_window, flow.outgoing_window) == (5_000, window)


def test_the_handles_match_the_recording(lab) -> None:
    lab.queue()
    peer = Peer(lab, Open("c"), BEGIN)
    for handle in range(255):
        assert any(
            isinstance(each, Attach)
            for each in peer.send(attach(f"l{handle}", handle, receives=False, address="orders"))
        )
    ended = only(End, peer.send(attach("one more", 255, receives=False, address="orders")))
    assert ended.error.symbol == "amqp:resource-limit-exceeded"
    assert ended.error.description == (
        "Cannot allocate more handles to the current session or connection. The maximum number of handles allowed is "
        "255. Please free up resources and try again."
    )


def test_the_claims_node_matches_the_recording(lab) -> None:
    lab.queue()
    peer = Peer(lab, Open("c"), BEGIN)
    found = peer.send(attach("out", 0, receives=False, address="$cbs", snd_settle_mode=0))
    answered = only(Attach, found)
    assert (answered.role, answered.snd_settle_mode, answered.rcv_settle_mode) == (True, 0, 0)
    assert (answered.max_message_size, answered.properties) == (2**64 - 1, None)
    assert answered.initial_delivery_count is None
    flow = only(Flow, found)
    assert (flow.link_credit, flow.incoming_window) == (100, 5_000)
    back = only(Attach, peer.send(attach("in", 1, receives=True, address="$cbs", snd_settle_mode=0)))
    assert (back.role, back.initial_delivery_count, back.max_message_size) == (False, 0, 2**64 - 1)

    request = Message(
        properties=Properties(message_id="1"),
        application_properties={"operation": "put-token", "type": "jwt", "name": "sb://contoso/orders"},
        body=ValueBody("any"),
    )
    told = only(Transfer, peer.send(Transfer(0, 0, b"1", 0, settled=True), request.encode()))
    assert (told.delivery_tag, told.delivery_id) == (b"\x01\0\0\0", 0)
    assert (bool(told.settled), told.batchable) == (False, False)


def test_settling_matches_the_recording(lab) -> None:
    lab.queue()
    peer = Peer(lab, Open("c"), BEGIN, attach("out", 0, receives=False, address="orders"))
    body = Message(body=DataBody((b"x",))).encode()
    settled = only(Disposition, peer.send(Transfer(0, 0, b"1", 0, settled=False), body))
    assert (settled.role, settled.first, settled.last, settled.settled) == (True, 0, None, True)


def test_a_delivery_matches_the_recording(lab) -> None:
    lab.queue(lock_duration=300_000)
    peer = Peer(lab, Open("c"), BEGIN, attach("out", 0, receives=False, address="orders"))
    peer.send(Transfer(0, 0, b"1", 0, settled=True), Message(body=DataBody((b"x",))).encode())
    peer.send(attach("in", 1, receives=True, address="orders", rcv_settle_mode=1))
    peer.server.receive_data(frame(0, encode_composite(Flow(1, 100, 1, 100, 1, 0, 1))), lab.now)
    while lab.frontend.deliver(lab.now):
        pass
    data = b"".join(peer.server.pieces_to_send())
    transfer, at = decode_composite(data, 8, len(data))
    message = Message.decode(data[at:])
    assert (len(transfer.delivery_tag), transfer.message_format, transfer.more) == (16, 0, False)
    assert message.message_annotations[Symbol("x-opt-enqueue-sequence-number")] == 0
    assert message.message_annotations["x-opt-locked-until"] - lab.now.entity == 300_000
    assert message.header.delivery_count == 0


def test_a_sender_matches_the_recording(lab) -> None:
    lab.queue()
    answered = only(
        Attach, Peer(lab, Open("c"), BEGIN, attach("a", 0, receives=False, address="orders")).said
    )
    assert answered.max_message_size == 262_144
    assert answered.properties == {Symbol("com.microsoft:max-message-batch-size"): 262_144}


TRACKED_TWICE = re.compile(
    r".* TrackingId:\S+, SystemTracker:\S+, Timestamp:\S+"
    r" TrackingId:[0-9a-f]{32}_G\d+, SystemTracker:gateway5, Timestamp:\S+"
)


def test_refused_links_match_the_recording(lab, guarded) -> None:
    lab.queue("sessions", requires_session=True)
    lab.namespace.create_topic("news", TopicDescription(), lab.now.entity)
    lab.namespace.create_subscription("news", "all", SubscriptionDescription(), lab.now.entity)
    peer = Peer(lab, Open("c"), BEGIN)
    session = Source("sessions", filter={"com.microsoft:session-filter": "s"})
    peer.send(Attach("held", 0, True, source=session, target=Target("t")))
    cases = {
        "news/Subscriptions/none": (
            "amqp:not-found",
            "The messaging entity 'contoso:Topic:news|none' could not be found.",
        ),
        "news": ("amqp:not-found", "The messaging entity 'contoso:topic:news' could not be found."),
        "sessions": (
            "com.microsoft:session-cannot-be-locked",
            "The requested session 's' cannot be accepted. It may be locked by another receiver.",
        ),
    }
    for handle, (address, (symbol, text)) in enumerate(cases.items(), 1):
        asked = attach(address, handle, receives=True, address=address)
        if address == "sessions":
            asked.source = session
        answered, detached = (each for each in peer.send(asked) if isinstance(each, Attach | Detach))
        assert (answered.source, detached.closed) == (None, True)
        assert (detached.error.symbol, detached.error.description.startswith(text)) == (symbol, True)
        assert TRACKED_TWICE.fullmatch(detached.error.description), detached.error.description

    guarded.queue()
    detached = only(
        Detach, Peer(guarded, Open("c"), BEGIN, attach("in", 0, receives=True, address="orders")).said
    )
    assert detached.error.description.startswith(
        "Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: "
        "'sb://contoso.servicebus.windows.net/orders'. TrackingId:"
    )


def test_the_next_session_matches_the_recording(lab) -> None:
    lab.queue("sessions", requires_session=True)
    client = lab.client()
    client.receiver(
        "sessions",
        source=Source("sessions", filter={"com.microsoft:session-filter": None}),
        properties={"com.microsoft:timeout": 65_000},
    )
    lab.advance(connection=66, ahead=66)
    (detached,) = client.take(LinkDetached)
    assert detached.condition.symbol == "com.microsoft:timeout"
    assert detached.condition.description.startswith(
        "The operation did not complete within the allotted timeout of 00:01:05. The time allotted to this operation "
        "may have been a portion of a longer timeout. "
    )


def test_a_token_for_a_target_matches_the_recording(guarded) -> None:
    from sbpair.broker.frontends.admin.requests import forwarding_refusal
    from tests.broker.administration import body_of, request

    asked = request("PUT", "/orders", body_of({"ForwardTo": "other"}))
    refused = forwarding_refusal(asked, guarded.namespace, guarded.frontend.verifier, guarded.now.wall)
    assert refused is not None
    assert b"<Detail>MissingToken: The authorization header was not found. To know more visit" in refused.body
