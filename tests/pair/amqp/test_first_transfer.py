"""What clients of earlier generations expect of their peer."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.performatives import Transfer


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
def test_a_delivery_tag_of_36_bytes_is_accepted(pair) -> None:
    sender, _ = pair.sending_link()
    transfer = Transfer(sender.handle, 0, b"t" * 36, 0)
    pair.server.receive_data(frame(0, encode_composite(transfer), 1) + b"x", 0.0)
    (message,) = [event for event in pair.server.events() if isinstance(event, MessageReceived)]
    assert bytes(message.payload) == b"x"
