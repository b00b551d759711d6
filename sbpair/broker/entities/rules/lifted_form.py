"""What do rules read of a message whose bytes nobody opens: that which its face has lifted out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from ..stored_message import Instant, StoredMessage
from .message_properties import MessageProperties, PropertyChanges
from .system_properties import SPAN
from .values import Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_of(milliseconds: int) -> datetime | None:
    """Milliseconds since the epoch as an instant; None for one that no calendar has."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


class LiftedForm:
    """Reads and writes what a stored message holds beside its bytes."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """The message's own properties that are known without its bytes. Raises EvaluationError in others."""
        return MessageProperties(lifted(message), {})

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Write the changes that are known without the bytes. Raises EvaluationError in others."""
        for name, value in changes.system.items():
            if name == SPAN:
                message.time_to_live = (
                    value // timedelta(milliseconds=1) if isinstance(value, timedelta) else None
                )
            elif name == "sessionid":
                message.session_id = None if value is None else str(value)
            elif name == "messageid":
                message.message_id = str(value)

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Never: how large the rest of the header is, the bytes alone tell."""
        return False


def lifted(message: StoredMessage) -> dict[str, Value]:
    """The properties of a message about to be published, by their names in lower case."""
    span, number = message.time_to_live, message.enqueued_sequence_number
    return {
        "deadlettersource": message.dead_letter_source,
        "deliverycount": message.delivery_count,
        "enqueuedsequencenumber": number,
        "enqueuedtimeutc": instant_of(message.enqueued_at),
        "expiresatutc": _at(None if span is None else message.enqueued_at + span),
        "forcepersistence": False,
        "messageid": str(message.message_id),
        "partitionkey": message.partition_key,
        "scheduledenqueuetimeutc": _at(message.scheduled_for),
        "sequencenumber": number,
        "sessionid": message.session_id,
        "size": message.size,
        "state": "Active",
        SPAN: None if span is None else timedelta(milliseconds=span),
        "viapartitionkey": message.via_partition_key,
    }


def _at(instant: Instant | None) -> datetime | None:
    return None if instant is None else instant_of(instant)
