"""Probes of a failed-over entity (P-30).

A ping is a message that the broker accepts and delivers to nobody. Opening a link instead is free and proves
less. No I/O.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from sbpair.envelope.aliases import PING_CONTENT_TYPE

from .request import PrimarySender, SendRequest


def ping() -> SendRequest:
    """An empty message; in a session of its own, or a session queue could never heal."""
    message = ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )
    return SendRequest(message, (message,))


class LinkProbe(SendRequest):
    """Nothing to send: that the link could be opened is the answer."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__([], [])

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.create_message_batch()  # asks the link its limit, and no one else
