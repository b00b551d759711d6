"""The numbers of a connection at the protocol's limits: channels, handles, delivery ids."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.connection import CHANNEL_MAX
from sbpair.pair.amqp.errors import LocalProtocolError
from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.performatives import ACCEPTED, Source, Target

pytestmark = pytest.mark.spec("S-24")


@pytest.mark.parametrize("first", [0, 1, 2**31 - 2, 2**32 - 3])
def test_delivery_ids_wrap_around(make_pair, first) -> None:
    pair = make_pair(first_delivery_id=first, server_first_delivery_id=first)
    link = pair.session.attach_sender("s", source=Source("s"), target=Target("orders"))
    pair.exchange()
    sent = [link.transfer(b"x", tag=bytes([n]), force=True) for n in range(6)]
    pair.exchange()
    assert sent == [(first + n) % 2**32 for n in range(6)]
    arrived = [event for event in pair.server_events if isinstance(event, MessageReceived)]
    assert [event.delivery_id for event in arrived] == sent
    for event in arrived:
        event.link.dispose(event.delivery_id, event.delivery_id, ACCEPTED)
    pair.exchange()
    settled = [event for event in pair.client_events if isinstance(event, DispositionReceived)]
    assert settled[0].first == sent[0]
    assert settled[-1].last == sent[-1]


def test_a_connection_offers_one_session_per_channel_and_reports_exhaustion(make_pair) -> None:
    pair = make_pair()
    for _ in range(CHANNEL_MAX):
        pair.client.begin()
    with pytest.raises(LocalProtocolError, match=f"all {CHANNEL_MAX + 1} channels are in use"):
        pair.client.begin()
