"""$management of an entity: which operation does a request name, who may ask for it, and what is answered?

An operation the broker does not have is refused with ``amqp:not-implemented`` and its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....amqp.message import Message
from ....amqp.performatives import TransactionalState
from ....amqp.types import Symbol
from ...auth import Right
from ...entities.credits import OF_A_MESSAGE, OF_ADMINISTRATION
from ...entities.entity import Entity
from ...errors import BrokerError, InvalidArgument, NotAllowed, NotImplementedHere
from ...faults import Lose, Refusal, Withhold
from ...faults import Operation as Struck
from ..address import management_of
from ..moment import Moment
from ..wording import tracked
from . import message_operations, rule_requests, session_operations
from .host import LinkHost
from .management_call import NAMES, ManagementCall, body_of
from .request_node import Answer, State, status

_VENDOR = "com.microsoft:"


@dataclass(frozen=True, slots=True)
class Operation:
    """What an operation does, the right it takes, whether it sends (then a fault of sends strikes it),
    whether it may be part of a transaction, and what asking costs; each message in it costs more (3.9)."""

    run: Callable[[ManagementCall], Answer]
    right: Right = Right.LISTEN
    is_send: bool = False
    is_transactional: bool = False
    credits: int = OF_A_MESSAGE


OPERATIONS: dict[str, Operation] = {
    "peek-message": Operation(message_operations.peek),
    "schedule-message": Operation(
        message_operations.schedule, Right.SEND, is_send=True, is_transactional=True, credits=0
    ),  # its messages cost what those of a link do
    "cancel-scheduled-message": Operation(message_operations.cancel_scheduled, Right.SEND),
    "receive-by-sequence-number": Operation(message_operations.receive_by_sequence_number),
    "renew-lock": Operation(message_operations.renew_lock, is_transactional=True),
    "update-disposition": Operation(message_operations.update_disposition, is_transactional=True),
    "batch-delete-messages": Operation(message_operations.batch_delete),
    "get-message-sessions": Operation(session_operations.list_sessions),
    "get-session-state": Operation(session_operations.get_state),
    "set-session-state": Operation(session_operations.set_state),
    "renew-session-lock": Operation(session_operations.renew_session_lock),
    "add-rule": Operation(rule_requests.add, credits=OF_ADMINISTRATION),
    "remove-rule": Operation(rule_requests.remove, credits=OF_ADMINISTRATION),
    "enumerate-rules": Operation(rule_requests.enumerate_rules, credits=OF_ADMINISTRATION),
}


def manage(
    connection: LinkHost, queue: Entity | None, request: Message, state: State, moment: Moment
) -> Answer | None:
    """Answer one request on the $management node of ``queue``; None where a fault withholds the answer."""
    assert queue is not None  # noqa: S101 - only $cbs is a node without an entity
    face = connection.face
    face.namespace.management_requested()
    try:
        operation = _operation(request)
        connection.claims.require(management_of(queue.path), (operation.right,), moment.wall)
        face.namespace.credits.check(moment.entity)
        face.namespace.credits.charge(operation.credits, moment.entity)
        fault = face.strike(Struck.SCHEDULE if operation.is_send else Struck.MANAGE, queue.path, moment)
        if isinstance(fault, Lose):
            return None
        if isinstance(fault, Refusal):
            return _failure(500, fault.condition, fault.description, face.tracker(queue.path), moment)
        transaction = None
        if isinstance(state, TransactionalState):
            transaction = connection.transaction(state.txn_id)
            if not operation.is_transactional:
                raise NotAllowed(
                    f"{_name(request)} cannot be part of a transaction: ask for it outside of any."
                )
        answer = operation.run(
            ManagementCall(connection, queue, body_of(request), moment.entity, transaction)
        )
        return None if isinstance(fault, Withhold) else answer
    except BrokerError as error:
        connection.refused(state, error)
        face.rejections.note(moment.entity, management_of(queue.path), error.condition, str(error))
        return _failure(error.status, error.condition, str(error), face.tracker(queue.path), moment)


def _failure(code: int, condition: str, text: str, tracker: str, moment: Moment) -> Answer:
    properties = status(code, tracked(text, tracker, moment.entity), names=NAMES)
    return Answer({**properties, "errorCondition": Symbol(condition)}, {})


def _name(request: Message) -> str:
    name = request.application_properties.get("operation")
    if not isinstance(name, str):
        raise InvalidArgument("The request has no property operation.")
    return name


def _operation(request: Message) -> Operation:
    name = _name(request)
    operation = OPERATIONS.get(name.removeprefix(_VENDOR)) if name.startswith(_VENDOR) else None
    if operation is None:
        raise NotImplementedHere(f"The management operation {name!r:.100} is not implemented by this broker.")
    return operation
