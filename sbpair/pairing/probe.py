"""How is it found out whether a failed-over entity is back? (P-30)

By a ping, a message that a broker takes and hands to nobody; or by opening a link to the entity, which
costs nothing and proves less. No I/O.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from .aliases import PING_CONTENT_TYPE
from .batch import Cargo, PrimarySender


def ping() -> Cargo:
    """An empty message; in a session of its own, or a session queue could never heal."""
    message = ServiceBusMessage(
        b"",
        content_type=PING_CONTENT_TYPE,
        time_to_live=timedelta(seconds=1),
        session_id=str(uuid.uuid4()),
    )
    return Cargo(message, (message,))


class LinkProbe(Cargo):
    """Nothing to send: that the link could be opened is the answer."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__([], [])

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.create_message_batch()  # asks the link its limit, and no one else
