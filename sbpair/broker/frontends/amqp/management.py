"""The $management node of an entity: checks rights, credits and faults, and runs the requested operation.

An unknown operation is refused with ``amqp:not-implemented`` and its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.performatives import TransactionalState
from sbpair.pair.amqp.types import Symbol

from ...auth import Right
from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.quotas import ADMINISTRATION_COST, MESSAGE_COST
from ...errors import BrokerError, InvalidArgumentError, NotAllowedError, OperationNotImplementedError
from ...faults import Lose, Operation, RefusingEffect, Withhold
from ..address import management_of
from ..refusals import tracked
from . import management_operations
from .management_call import NAMES, ManagementCall, body_of
from .node import ConnectionContext
from .request_response import NodeResponse, RequestHandler, State, status

_VENDOR = "com.microsoft:"


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """An operation of the node.

    The fields say how to run it, the right it requires, whether it sends (and is subject to the faults of sends),
    whether it may be part of a transaction, and its cost in credits, to which its messages add.
    """

    run: Callable[[ManagementCall], NodeResponse]
    right: Right = Right.LISTEN
    is_send: bool = False
    is_transactional: bool = False
    credits: int = MESSAGE_COST


OPERATIONS: dict[str, ManagementOperation] = {
    "peek-message": ManagementOperation(management_operations.peek),
    "schedule-message": ManagementOperation(
        management_operations.schedule, Right.SEND, is_send=True, is_transactional=True, credits=0
    ),  # its messages cost the same as over a link
    "cancel-scheduled-message": ManagementOperation(management_operations.cancel_scheduled, Right.SEND),
    "receive-by-sequence-number": ManagementOperation(management_operations.receive_by_sequence_number),
    "renew-lock": ManagementOperation(management_operations.renew_lock, is_transactional=True),
    "update-disposition": ManagementOperation(
        management_operations.update_disposition, is_transactional=True
    ),
    "batch-delete-messages": ManagementOperation(management_operations.batch_delete),
    "get-message-sessions": ManagementOperation(management_operations.list_sessions),
    "get-session-state": ManagementOperation(management_operations.get_state),
    "set-session-state": ManagementOperation(management_operations.set_state),
    "renew-session-lock": ManagementOperation(management_operations.renew_session_lock),
    "add-rule": ManagementOperation(management_operations.add, credits=ADMINISTRATION_COST),
    "remove-rule": ManagementOperation(management_operations.remove, credits=ADMINISTRATION_COST),
    "enumerate-rules": ManagementOperation(
        management_operations.enumerate_rules, credits=ADMINISTRATION_COST
    ),
}


def manage(
    connection: ConnectionContext, queue: Queue | None, request: Message, state: State, now: ClockReading
) -> NodeResponse | None:
    """Answer one request on the $management node of ``queue``; None when a fault withholds the answer."""
    assert queue is not None  # noqa: S101 - only $cbs is a node without an entity
    frontend = connection.frontend
    frontend.namespace.management_requested()
    try:
        operation = _operation(request)
        connection.claims.require(management_of(queue.path), (operation.right,), now.wall)
        frontend.namespace.credits.check(now.entity)
        frontend.namespace.credits.charge(operation.credits, now.entity)
        fault = frontend.apply_fault(
            Operation.SCHEDULE if operation.is_send else Operation.MANAGE, queue.path, now
        )
        if isinstance(fault, Lose):
            return None
        if isinstance(fault, RefusingEffect):
            return _failure(500, fault.condition, fault.description, frontend.tracker(queue.path), now)
        transaction = None
        if isinstance(state, TransactionalState):
            transaction = connection.links.transaction(state.txn_id)
            if not operation.is_transactional:
                raise NotAllowedError(
                    f"{_name(request)} cannot be part of a transaction: send it outside of one."
                )
        answer = operation.run(ManagementCall(connection, queue, body_of(request), now.entity, transaction))
        return None if isinstance(fault, Withhold) else answer
    except BrokerError as error:
        connection.links.refused(state, error)
        frontend.rejections.note(now.entity, management_of(queue.path), error.condition, str(error))
        text = error.text_at(frontend.host)
        return _failure(error.status, error.condition, text, frontend.tracker(queue.path), now)


def manage_unclaimed(address: str) -> RequestHandler:
    """Return the operation of a $management link that was attached before the client's first claim.

    Claims, and the existence of the entity, are checked at each request: a client without rights cannot find out
    whether it exists.
    """
    path = address.rpartition("/")[0]

    def operation(
        connection: ConnectionContext, _: Queue | None, request: Message, state: State, now: ClockReading
    ) -> NodeResponse | None:
        frontend = connection.frontend
        try:
            connection.claims.require(address, (Right.LISTEN, Right.SEND), now.wall)
            queue = frontend.namespace.queue(path)
        except BrokerError as error:
            frontend.rejections.note(now.entity, address, error.condition, str(error))
            text = error.text_at(frontend.host)
            return _failure(error.status, error.condition, text, frontend.tracker(path), now)
        return manage(connection, queue, request, state, now)

    return operation


def _failure(code: int, condition: str, text: str, tracker: str, now: ClockReading) -> NodeResponse:
    properties = status(code, tracked(text, tracker, now.entity), names=NAMES)
    return NodeResponse({**properties, "errorCondition": Symbol(condition)}, {})


def _name(request: Message) -> str:
    name = request.application_properties.get("operation")
    if not isinstance(name, str):
        raise InvalidArgumentError("The request has no property operation.")
    return name


def _operation(request: Message) -> ManagementOperation:
    name = _name(request)
    operation = OPERATIONS.get(name.removeprefix(_VENDOR)) if name.startswith(_VENDOR) else None
    if operation is None:
        raise OperationNotImplementedError(
            f"The management operation {name!r:.100} is not implemented by this broker."
        )
    return operation
