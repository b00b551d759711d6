"""What clients of earlier generations expect of their peer."""

from __future__ import annotations

import pytest

from sbpair.amqp.events import MessageReceived


@pytest.mark.spec("X-4")
def test_a_client_that_expects_the_first_transfer_near_zero_gets_its_message(make_pair) -> None:
    """The flow of rhea before 3.0.3 says that it saw nothing yet, with a window of 2,048 from zero."""
    pair = make_pair(server_first_delivery_id=2**30)
    sender, _ = pair.receiving_link()
    assert sender.session.out.next_id == 1
    sender.transfer(b"x", tag=b"t")
    pair.exchange()
    (message,) = pair.client_saw(MessageReceived)
    assert message.delivery_id == 2**30


@pytest.mark.spec("X-20")
def test_a_delivery_tag_of_thirty_six_bytes_is_taken(pair, monkeypatch) -> None:
    monkeypatch.setattr("sbpair.amqp.link.MAX_TAG", 36)
    sender, _ = pair.sending_link()
    sender.transfer(b"x", tag=b"t" * 36)
    monkeypatch.setattr("sbpair.amqp.link.MAX_TAG", 32)
    pair.exchange()
    (message,) = pair.server_saw(MessageReceived)
    assert message.payload == b"x"
