"""Probes of a failed-over entity (P-30).

A ping is a message that the broker accepts but never delivers. Opening a link instead is free, but proves less.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from sbpair.envelope.aliases import PING_CONTENT_TYPE

from .request import PrimarySender, SendRequest


def ping() -> SendRequest:
    """A ping: an empty message, with a session id of its own, which queues with sessions require."""
    message = ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )
    return SendRequest(message, (message,))


class LinkProbe(SendRequest):
    """A probe that sends nothing: it succeeds if the link opens."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__([], [])

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.create_message_batch()  # only opens the link
