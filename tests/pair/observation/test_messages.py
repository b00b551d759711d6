"""What a program received, as the journal has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zlib import crc32

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from sbpair import SendReceipt, StoredIn
from sbpair.observation import MessagesReceived, messages_received, send_accepted


@dataclass
class Message:
    message_id: str | None
    session_id: str | None
    sequence_number: int | None
    enqueued_time_utc: datetime | None = None
    scheduled_enqueue_time_utc: datetime | None = None


@pytest.mark.spec("G-2")
def test_every_received_message_is_reported_with_session_and_number():
    told = messages_received("orders", iter([Message("a", "s", 2**50), Message(None, None, None)]))

    assert told == MessagesReceived("orders", ("a", ""), ("s", ""), (2**50, 0), (0, 0), (-1, -1))


@pytest.mark.spec("R-222")
def test_the_enqueue_time_of_a_message_is_reported_unless_its_sender_set_it():
    at = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
    told = messages_received("orders", [Message("a", "", 1, at), Message("b", "", 2, at, at)])

    assert told.enqueued == (1_795_262_400_250, 0)


@pytest.mark.spec("R-226")
def test_a_data_body_has_one_checksum_in_any_form_and_other_bodies_have_none():
    sections = AmqpAnnotatedMessage(data_body=[b"a ", b"body"])
    given = [ServiceBusMessage("a body"), ServiceBusMessage(b"a body"), sections, ServiceBusMessage(b"")]
    values = [AmqpAnnotatedMessage(value_body=1), AmqpAnnotatedMessage(sequence_body=[[1]])]
    receipt = SendReceipt(StoredIn.PRIMARY, None, tuple("abcdef"))

    told = send_accepted("orders", receipt, [*given, *values])

    assert told.checksums == (*[crc32(b"a body")] * 3, 0, -1, -1)
    assert (
        send_accepted("orders", receipt).checksums == send_accepted("orders", receipt, given).checksums == ()
    )
