"""What of a paired sender is the same for both skins?

What it is called, what is checked before anything is sent, and what the caller gets in the end: a receipt,
or the error that is his. Nothing in here waits.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from .batch import Cargo, PairedMessageBatch
from .core import Core
from .envelope import Message, checked_id, message_id_of, prepare, raw
from .errors import BacklogUnavailableError, ParkedMessageTooLargeError, PartlyParkedError
from .names import path_key
from .options import timeout_seconds
from .pair import Landing, Refused, Rested, Stranded
from .receipt import Place, Rest, SendReceipt
from .rotation import Choice
from .sdk import is_smaller

STANDARD_BATCH = 256 * 1024
"""Bytes in a batch where no link can be asked: the Standard tier's limit."""

OneMessage = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]


class SenderSurface:
    """A sender for one entity of the primary, a queue or a topic."""

    def __init__(self, core: Core, entity_name: str, namespace: str) -> None:
        self.entity_name = entity_name
        self._key = path_key(entity_name)
        budget = core.options.operation_timeout.total_seconds()
        with core.exclusive():
            self._health, self._straight = core.pair.straight(entity_name, budget)
        self.fully_qualified_namespace = namespace
        self._core = core
        self._choice = Choice()  # P-7: each sender picks its own
        self._is_closed = False
        self._name = f"SBSender-{uuid.uuid4()}"  # as the SDK makes it

    @property
    def client_identifier(self) -> str:
        """What tells this sender from others, as the SDK's has it."""
        return self._name

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def _check_open(self) -> None:
        if self._is_closed or self._core.is_closed:
            if self._core.bond.fault is not None:
                raise self._core.closed_error()
            raise ValueError("the sender is closed; get another from an open paired client")

    def _straightly(self, message: object) -> tuple[Message, str] | None:
        """What may go to the primary without a flow, and its message id; None for what takes the flow.

        Every message of a quiet day goes this way: it is short on purpose. Raises as :func:`prepare`.
        """
        core = self._core
        if not (self._health.is_calm and isinstance(message, ServiceBusMessage)):
            return None
        if core.is_spooling(self.entity_name):
            return None
        outgoing: Message = message
        inner = message.raw_amqp_message
        message_id = checked_id(inner)
        if message_id is None:
            outgoing = inner = raw(prepare(message))
            message_id = message_id_of(inner)
        headroom = core.headroom
        if headroom is not None and not is_smaller(inner, headroom.roomy):
            return None  # perhaps it could not be parked: the flow looks (P-22)
        return outgoing, message_id

    def _straight_seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self._straight
        core = self._core
        return core.pair.straight(self.entity_name, timeout_seconds(timeout, core.options))[1]

    def _told(self, receipt: SendReceipt) -> SendReceipt:
        """The receipt, shown to whoever wants to see each."""
        if self._core.on_receipt is not None:
            self._core.on_receipt(self.entity_name, receipt)
        return receipt

    def _rested(self, landing: Landing, cargo: Cargo) -> Rested:
        """Raises the caller's error if not all of the messages rest somewhere."""
        if isinstance(landing, Rested):
            return landing
        error = _error(self.entity_name, landing)
        if self._core.bond.fault is not None:  # whatever ended the call, the fault did
            wrapped = self._core.closed_error()
            wrapped.__cause__ = error
            error = wrapped
        if cargo.parked:
            unaccepted = cargo.message_ids()[cargo.parked :]
            raise PartlyParkedError(self.entity_name, cargo.places(), unaccepted, error) from error
        raise error


def receipt(landing: Rested, cargo: Cargo) -> SendReceipt:
    """Where the messages of one call rest."""
    rests = Rest.PRIMARY if landing.backlog is None else Rest.BACKLOG
    if landing.is_spooled:
        rests = Rest.SPOOL
    ids, places = cargo.message_ids(), cargo.places()
    if landing.is_spooled and places:
        places += (Place(Rest.SPOOL, None, ids[cargo.parked :]),)
    return SendReceipt(rests, landing.backlog, ids, landing.is_ambiguous, places if len(places) > 1 else ())


def empty_batch(max_size_in_bytes: int | None, limit: int) -> PairedMessageBatch:
    """Raises ValueError when the size exceeds the limit."""
    if max_size_in_bytes is not None and max_size_in_bytes > limit:
        raise ValueError(f"max_size_in_bytes must be at most {limit}, not {max_size_in_bytes}")
    return PairedMessageBatch(max_size_in_bytes or limit)


def _error(path: str, landing: Refused | Stranded) -> Exception:
    if isinstance(landing, Stranded):
        stranded = landing.spool_error or BacklogUnavailableError(path, landing.causes)
        stranded.__cause__ = landing.causes[0] if landing.causes else None
        return stranded
    if landing.is_parked and landing.is_too_large:
        too_large = ParkedMessageTooLargeError(path, landing.error)
        too_large.__cause__ = landing.error
        return too_large
    return landing.error
