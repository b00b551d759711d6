"""What a program received, as the journal has it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sbpair.observation import MessagesReceived, messages_received


@dataclass
class Message:
    message_id: str | None
    session_id: str | None
    sequence_number: int | None


@pytest.mark.spec("G-2")
def test_every_message_received_is_told_with_its_session_and_number():
    told = messages_received("orders", iter([Message("a", "s", 2**50), Message(None, None, None)]))

    assert told == MessagesReceived("orders", ("a", ""), ("s", ""), (2**50, 0))
