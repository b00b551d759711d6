"""What a program received, as the journal has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from sbpair.observation import MessagesReceived, messages_received


@dataclass
class Message:
    message_id: str | None
    session_id: str | None
    sequence_number: int | None
    enqueued_time_utc: datetime | None = None
    scheduled_enqueue_time_utc: datetime | None = None


@pytest.mark.spec("G-2")
def test_every_message_received_is_told_with_its_session_and_number():
    told = messages_received("orders", iter([Message("a", "s", 2**50), Message(None, None, None)]))

    assert told == MessagesReceived("orders", ("a", ""), ("s", ""), (2**50, 0), (0, 0))


@pytest.mark.spec("R-222")
def test_when_the_broker_enqueued_a_message_is_told_unless_that_was_set_by_its_sender():
    at = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
    told = messages_received("orders", [Message("a", "", 1, at), Message("b", "", 2, at, at)])

    assert told.enqueued == (1_795_262_400_250, 0)
