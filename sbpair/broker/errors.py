"""The errors with which the broker refuses requests, and their AMQP and HTTP forms.

Every class carries the AMQP ``condition`` its links answer with, the HTTP ``status`` and the
``sub_code`` of its Atom errors. A new refusal is a new class here, never a string elsewhere.

    BrokerError
    ├── EntityNotFoundError             404  40400  amqp:not-found
    │   └── TargetNotFoundError         404  40400  amqp:not-found
    ├── EntityAlreadyExistsError        409  40900  com.microsoft:entity-already-exists
    ├── OperationInProgressError        409  40901  amqp:internal-error
    ├── EntityDisabledError             403  40300  com.microsoft:entity-disabled
    ├── InvalidDescriptionError         400  40000  com.microsoft:argument-error
    │   ├── InvalidRuleError            400  40000  com.microsoft:argument-error
    │   │   └── InvalidRuleNameError    400  40000  com.microsoft:argument-error
    │   ├── InvalidNameError            400  40000  com.microsoft:argument-error
    │   ├── FieldOutOfRangeError        400  40000  com.microsoft:argument-error
    │   ├── FixedAtCreationError        400  40000  com.microsoft:argument-error
    │   ├── ForwardingSessionsError     400  40000  com.microsoft:argument-error
    │   ├── MessageSizeNotOfferedError  400  40000  com.microsoft:argument-error
    │   ├── UnsupportedElementError     400  40000  com.microsoft:argument-error
    │   └── NotSupportedError           400  40000  amqp:not-implemented
    ├── InvalidArgumentError            400  40000  com.microsoft:argument-error
    │   └── InvalidPageError            400  40000  (administration API only)
    ├── OutOfRangeError                 400  40000  com.microsoft:argument-out-of-range
    │   └── StateTooLargeError          400  40000  com.microsoft:argument-out-of-range
    ├── MalformedMessageError           400  40000  amqp:decode-error
    ├── NotAllowedError                 400  40000  amqp:not-allowed
    │   ├── ReceivedFromTopicError      400  40000  amqp:not-found
    │   ├── SessionRequiredError        400  40000  amqp:not-allowed
    │   │   └── SessionIdMissingError   400  40000  amqp:not-allowed
    │   └── ForwardingEntityError       400  40000  amqp:not-allowed
    ├── OperationNotImplementedError    501  50100  amqp:not-implemented
    ├── UnauthorizedError               401  40100  amqp:unauthorized-access
    │   ├── ClaimRequiredError          401  40100  amqp:unauthorized-access
    │   ├── TargetTokenError            401  40100  (administration API only)
    │   ├── TokenRefusedError           401  40100  (administration API only)
    │   ├── ManageRequiredError         401  40100  (administration API only)
    │   └── OperationUnauthorizedError  401  40100  (administration API only)
    ├── HopsExceededError               (no client ever sees it: the message is dead-lettered)
    ├── QuotaExceededError              403  40302  amqp:resource-limit-exceeded
    ├── MessageTooLargeError            400  40000  amqp:link:message-size-exceeded
    ├── HeaderTooLargeError             400  40000  amqp:link:message-size-exceeded
    ├── PropertyTooLargeError           400  40000  amqp:internal-error
    ├── NoSuchMessageError              404  40400  com.microsoft:message-not-found
    ├── LockLostError                   410  41000  com.microsoft:message-lock-lost
    ├── SessionLostError                410  41000  com.microsoft:session-lock-lost
    ├── SessionLockedError              409  40900  com.microsoft:session-cannot-be-locked
    ├── RequestTimeoutError             408  40800  com.microsoft:timeout
    ├── UnknownTransactionError         404  40400  amqp:transaction:unknown-id
    ├── TransactionRolledBackError      409  40900  amqp:transaction:rollback
    ├── TooManyTransactionsError        403  40302  amqp:resource-limit-exceeded
    ├── ReroutingError                  408  40800  com.microsoft:timeout
    ├── PartitionUnavailableError       503  50300  com.microsoft:partition-not-available
    ├── ServerBusyError                 503  50009  com.microsoft:server-busy
    ├── AdministrationBusyError         429  50004  com.microsoft:server-busy
    ├── TooManyConnectionsError         403  40302  amqp:resource-limit-exceeded
    ├── TooManyEntitiesError            403  40300  amqp:resource-limit-exceeded
    ├── StoreFullError                  403  40302  amqp:resource-limit-exceeded
    ├── StoreError                      (no client ever sees it: the broker did not start)
    │   ├── StoreInUseError
    │   ├── StoreDamagedError
    │   └── StoreFailedError            (no client ever sees it: the broker has stopped)
    ├── PortUnavailableError            (no client ever sees it: the broker did not start)
    └── EndpointUnavailableError        (no client ever sees it: the dashboard or fault endpoint did not start)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from sbpair.pair.amqp.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    DECODE_ERROR,
    ENTITY_ALREADY_EXISTS,
    ENTITY_DISABLED,
    INTERNAL_ERROR,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PARTITION_NOT_AVAILABLE,
    RESOURCE_LIMIT_EXCEEDED,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    TIMEOUT,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN_ID,
    UNAUTHORIZED_ACCESS,
)
from sbpair.pair.ground.entity_settings import FORWARD_TO, SESSIONS, element_name

_MORE = " To know more visit https://aka.ms/sbResourceMgrExceptions. "
_OF_SUBSCRIPTIONS = re.compile("/subscriptions/", re.IGNORECASE)
_LOW_BITS = 2**48 - 1  # the service shows a number without its partition


class BrokerError(Exception):
    """Base of all errors with which the broker refuses a request."""

    condition: ClassVar[str] = INTERNAL_ERROR
    status: ClassVar[int] = 500
    sub_code: ClassVar[int] = 50000

    def text_at(self, host: str) -> str:
        """Return the text for clients of the namespace at ``host``."""
        return str(self)


class EntityNotFoundError(BrokerError):
    """No entity has this path."""

    condition = NOT_FOUND
    status, sub_code = 404, 40400

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' could not be found.")
        self.path = path

    def text_at(self, host: str) -> str:
        """Return the service's text, which names the entity by its address, a subscription by its topic's."""
        parts = _OF_SUBSCRIPTIONS.split(self.path, maxsplit=1)
        name = (
            f"sb://{host}/{self.path}"
            if len(parts) == 1
            else f"{host.partition('.')[0]}:Topic:{parts[0]}|{parts[1]}"
        )
        return f"The messaging entity '{name}' could not be found.{_MORE}".rstrip()


class TargetNotFoundError(EntityNotFoundError):
    """The forwarding target of an entity does not exist; the text names both."""

    def __init__(self, path: str, source: str, field: str) -> None:
        super().__init__(path)
        self.args = (
            f"The messaging entity '{path}', {field} of '{source}', could not be found: create it first.",
        )

    def text_at(self, host: str) -> str:
        """Return the text itself."""
        return str(self)


class EntityAlreadyExistsError(BrokerError):
    """An entity with this path exists; paths are compared without regard to case."""

    condition = ENTITY_ALREADY_EXISTS
    status, sub_code = 409, 40900

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' already exists.")
        self.path = path


class OperationInProgressError(BrokerError):
    """Another change of the same entity is under way; raised by a fault only, since changes take no time here."""

    status, sub_code = 409, 40901

    def __init__(self) -> None:
        super().__init__("Another conflicting operation is in progress.")


class EntityDisabledError(BrokerError):
    """The entity's status forbids the operation."""

    condition = ENTITY_DISABLED
    status, sub_code = 403, 40300

    def __init__(self, path: str, status: str) -> None:
        super().__init__(f"The messaging entity '{path}' is currently disabled: its status is {status}.")
        self.path = path


class InvalidDescriptionError(BrokerError):
    """A field of an entity's description, or its path, is out of range; the text names it."""

    condition = ARGUMENT_ERROR
    status, sub_code = 400, 40000


class InvalidNameError(InvalidDescriptionError):
    """An entity, subscription or rule cannot have this name; the text says why."""


class FieldOutOfRangeError(InvalidDescriptionError):
    """A field of a description is outside of its range.

    ``field`` is its name in the configuration, ``told`` the range in the text for clients of the administration API,
    ``value`` the value as they write it.
    """

    def __init__(self, field: str, value: object, expected: str, told: str, written: str) -> None:
        unit = "milliseconds, " if written != str(value) else ""
        super().__init__(f"{field} is {value!r}: {unit}{expected}.")
        self._told = f"{told}\r\nParameter name: {element_name(field)}\r\nActual value was {written}."

    def text_at(self, host: str) -> str:
        """Return the service's text, which names the XML element."""
        return self._told


class FixedAtCreationError(InvalidDescriptionError):
    """An update would change a setting that is fixed when an entity is created."""


class ForwardingSessionsError(InvalidDescriptionError):
    """An entity that requires sessions cannot forward."""

    def __init__(self) -> None:
        super().__init__(
            f"{FORWARD_TO.name} is set, and {SESSIONS.name}: an entity with sessions cannot forward."
        )


class MessageSizeNotOfferedError(InvalidDescriptionError):
    """A maximum message size was requested for an entity of another tier than Premium."""


class UnsupportedElementError(InvalidDescriptionError):
    """A description has an element that its api-version does not know."""

    def __init__(self, kind: str, version: str) -> None:
        super().__init__(
            f"The entity description of type '{kind}' has unsupported properties for api-version '{version}' in the "
            "request. Try including the correct api-version query string in the request."
        )


class InvalidRuleError(InvalidDescriptionError):
    """A rule's name, filter or action is invalid; the text says where."""


class InvalidRuleNameError(InvalidRuleError):
    """A rule cannot have this name."""


class NotSupportedError(InvalidDescriptionError):
    """A Service Bus feature that this broker does not support yet was requested."""

    condition = NOT_IMPLEMENTED

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not supported by this broker yet: create the entity without it.")
        self.feature = feature


class InvalidArgumentError(BrokerError):
    """An argument of an operation is missing or has the wrong type."""

    condition = ARGUMENT_ERROR
    status, sub_code = 400, 40000


class InvalidPageError(InvalidArgumentError):
    """The requested page of a list does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Parameter '{name}' should be non-negative integer.\r\nParameter name: {name}.")


class OutOfRangeError(BrokerError):
    """An argument of an operation is outside its range."""

    condition = ARGUMENT_OUT_OF_RANGE
    status, sub_code = 400, 40000


class StateTooLargeError(OutOfRangeError):
    """A session's state is larger than a message of the entity may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The session state has {size} bytes: at most {limit} are allowed.")


class MalformedMessageError(BrokerError):
    """The bytes of a message are not valid AMQP sections."""

    condition = DECODE_ERROR
    status, sub_code = 400, 40000


class NotAllowedError(BrokerError):
    """The operation does not apply to this kind of entity or link."""

    condition = NOT_ALLOWED
    status, sub_code = 400, 40000


class SessionRequiredError(NotAllowedError):
    """A message without a session id, or a receiver without a session, on an entity that requires sessions."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The entity '{path}' requires sessions: a message sent to it needs a session id, "
            "and messages are received from it under the lock of a session."
        )


class SessionIdMissingError(SessionRequiredError):
    """A message without a session id was sent to an entity that requires sessions."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.args = (
            "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
            "support enabled can only receive messages that have the SessionId set to a valid value.",
        )


class ForwardingEntityError(NotAllowedError):
    """A receiver was attached to an entity that forwards its messages."""

    def __init__(self, path: str, target: str) -> None:
        super().__init__(
            f"Cannot create a message receiver on an entity with auto-forwarding enabled: '{path}' forwards "
            f"to '{target}', receive there."
        )
        self.path = path
        self.target = target


class ReceivedFromTopicError(NotAllowedError):
    """A receiver was attached to a topic: messages are received from its subscriptions."""

    condition = NOT_FOUND

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Messages cannot be received from the topic '{path}': receive from its subscriptions."
        )
        self.path = path

    def text_at(self, host: str) -> str:
        """Return the service's text, which reports a missing entity."""
        return f"The messaging entity '{host.partition('.')[0]}:topic:{self.path}' could not be found.{_MORE}"


class HopsExceededError(BrokerError):
    """A message was forwarded the maximum number of times and would be forwarded again."""

    def __init__(self, target: str, limit: int) -> None:
        super().__init__(
            f"The message was forwarded {limit} times, the maximum: it is not forwarded to '{target}'."
        )


class OperationNotImplementedError(BrokerError):
    """This broker does not implement the operation."""

    condition = NOT_IMPLEMENTED
    status, sub_code = 501, 50100


class UnauthorizedError(BrokerError):
    """No valid claim of this connection covers the operation."""

    condition = UNAUTHORIZED_ACCESS
    status, sub_code = 401, 40100


class ClaimRequiredError(UnauthorizedError):
    """No claim of this connection grants the right on the entity."""

    def __init__(self, path: str, rights: str) -> None:
        super().__init__(f"Unauthorized access. '{rights}' claim(s) are required to perform this operation.")
        self.path = path

    def text_at(self, host: str) -> str:
        """Return the service's text, which names the resource."""
        return f"{self} Resource: 'sb://{host}/{self.path}'."


class TargetTokenError(UnauthorizedError):
    """An entity would forward to one for which the request proves no right to manage."""


class TokenRefusedError(UnauthorizedError):
    """A request has no token, or one that is not accepted; only the dashboard and the log say why."""


class TokenEndedError(TokenRefusedError):
    """A request has a token that ended; its text is what the service says of it."""


class ManageRequiredError(UnauthorizedError):
    """A request to the administration API by a caller who may send or receive, but not manage."""

    def __init__(self, method: str) -> None:
        action = {"PUT": "EntityWrite", "DELETE": "EntityDelete"}.get(method)
        super().__init__(
            "Manage,EntityRead claims required for this operation."
            if action is None
            else f"Authorization failed for specified action: Manage,{action}."
        )


class OperationUnauthorizedError(UnauthorizedError):
    """An unauthorized request for a subscription or its rules, for which the service has a different text."""

    def __init__(self, operation: str, endpoint: str) -> None:
        super().__init__(f"Unauthorized access for '{operation}' operation on endpoint '{endpoint}'.")


class QuotaExceededError(BrokerError):
    """The entity is full."""

    condition = RESOURCE_LIMIT_EXCEEDED
    status, sub_code = 403, 40302

    def __init__(self, path: str, size: int, quota: int) -> None:
        super().__init__(
            f"The maximum entity size of '{path}' has been reached or exceeded: "
            f"{size} bytes are held and the quota is {quota} bytes."
        )
        self.path, self._size, self._quota = path, size, quota

    def text_at(self, host: str) -> str:
        """Return the service's text."""
        return (
            "The maximum entity size has been reached or exceeded for Queue: "
            f"'{host.partition('.')[0].upper()}:QUEUE:{self.path.upper()}'. Size of entity in bytes:{self._size}, Max "
            f"entity size in bytes: {self._quota}. For more information please see "
            "https://aka.ms/ServiceBusExceptions .  QuotaType: EntitySize"
        )


class MessageTooLargeError(BrokerError):
    """A message, or a batch, exceeds the entity's limit."""

    condition = MESSAGE_SIZE_EXCEEDED
    status, sub_code = 400, 40000

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"The received message (delivery-id:0, size:{size} bytes) exceeds the limit "
            f"({limit} bytes) currently allowed on the link."
        )


class HeaderTooLargeError(BrokerError):
    """A message's properties, or one of them, exceed their limit."""

    condition = MESSAGE_SIZE_EXCEEDED
    status, sub_code = 400, 40000

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"The size quota for this stream has been exceeded: {what} has {size} bytes, "
            f"at most {limit} are allowed."
        )


class PropertyTooLargeError(BrokerError):
    """One property of a message exceeds its limit; the service answers with its most general error."""

    condition = INTERNAL_ERROR
    status, sub_code = 400, 40000

    def __init__(self, key: str, size: int, limit: int) -> None:
        super().__init__(f"The property {key} of the message has {size} bytes, at most {limit} are allowed.")

    def text_at(self, host: str) -> str:
        """Return the service's text, which does not say why."""
        return (
            "The service was unable to process the request; please retry the operation. For more information on "
            "exception types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101"
        )


class NoSuchMessageError(BrokerError):
    """No message of this entity has this sequence number in the requested state."""

    condition = MESSAGE_NOT_FOUND
    status, sub_code = 404, 40400

    def __init__(self, *sequence_numbers: int) -> None:
        shown = ", ".join(str(number & _LOW_BITS) for number in sequence_numbers[:100])
        super().__init__(f"Messages not found. Missing sequence numbers: {shown}.")
        self.sequence_numbers = sequence_numbers


class LockLostError(BrokerError):
    """The lock is not held: it expired or its message was settled."""

    condition = MESSAGE_LOCK_LOST
    status, sub_code = 410, 41000

    def __init__(self) -> None:
        super().__init__(
            "The lock supplied is invalid. Either the lock expired, or the message has already been "
            "removed from the queue, or was received by a different receiver instance."
        )


class SessionLostError(BrokerError):
    """The lock of the session is not held: it expired or its link was closed."""

    condition = SESSION_LOCK_LOST
    status, sub_code = 410, 41000

    def __init__(self) -> None:
        super().__init__("The session lock has expired on the MessageSession. Accept a new MessageSession.")


class SessionLockedError(BrokerError):
    """Another receiver holds the session."""

    condition = SESSION_CANNOT_BE_LOCKED
    status, sub_code = 409, 40900

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
        )
        self.session_id = session_id


class RequestTimeoutError(BrokerError):
    """The operation did not complete within the client's timeout."""

    condition = TIMEOUT
    status, sub_code = 408, 40800

    def __init__(self, seconds: float) -> None:
        whole, rest = divmod(max(0, round(seconds * 1000)), 1000)
        span = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}" + (f".{rest:03}" if rest else "")
        super().__init__(
            f"The operation did not complete within the allotted timeout of {span}. The time allotted to this "
            "operation may have been a portion of a longer timeout. For more information on exception types and "
            "proper exception handling, please refer to https://aka.ms/ServiceBusExceptions ."
        )


class UnknownTransactionError(BrokerError):
    """No open transaction of this connection has this id (AMQP 4.5.9)."""

    condition = TRANSACTION_UNKNOWN_ID
    status, sub_code = 404, 40400

    def __init__(self, txn_id: bytes) -> None:
        super().__init__(
            f"There is no transaction {txn_id.hex()[:64]}: declare one, and use it on its connection."
        )


class TransactionRolledBackError(BrokerError):
    """The transaction was rolled back; none of its operations took effect."""

    condition = TRANSACTION_ROLLBACK
    status, sub_code = 409, 40900

    def __init__(self, reason: str) -> None:
        super().__init__(f"The transaction was rolled back. {reason}")


class TooManyTransactionsError(BrokerError):
    """A controller has too many open transactions."""

    condition = RESOURCE_LIMIT_EXCEEDED
    status, sub_code = 403, 40302

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} transactions of this link are open: commit or roll back some of them first."
        )


class ReroutingError(BrokerError):
    """A message without a key waits for another partition until ``at``, ms of entity time.

    Callers that can wait send it again then; others report a timeout.
    """

    condition = TIMEOUT
    status, sub_code = 408, 40800

    def __init__(self, path: str, at: int) -> None:
        super().__init__(f"A message is being moved to another partition of '{path}': send it again.")
        self.at = at


class PartitionUnavailableError(BrokerError):
    """The requested partition is down; the others are not."""

    condition = PARTITION_NOT_AVAILABLE
    status, sub_code = 503, 50300

    def __init__(self, path: str, index: int) -> None:
        super().__init__(f"Partition {index} of the entity '{path}' is not available: try again later.")
        self.path = path
        self.index = index


class ServerBusyError(BrokerError):
    """The entity or the namespace is throttled."""

    condition = SERVER_BUSY
    status, sub_code = 503, 50009

    def __init__(self) -> None:
        super().__init__(
            "The request was terminated because the entity is being throttled. Error code : 50009. "
            "Please wait 2 seconds and try again."
        )

    def text_at(self, host: str) -> str:
        """Return the service's text, which names the namespace."""
        return busy_text(host.partition(".")[0])


def busy_text(namespace: str) -> str:
    """Return the service's error text for a throttled namespace."""
    return (
        f"The request was terminated because the namespace {namespace} is being throttled. Error code : 50009. "
        "Please wait 2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions"
    )


class AdministrationBusyError(BrokerError):
    """The administration of the namespace is throttled."""

    condition = SERVER_BUSY
    status, sub_code = 429, 50004

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"The request was terminated because the namespace {namespace} is being throttled. "
            "Please wait 2 seconds and try again."
        )


class TooManyConnectionsError(BrokerError):
    """The namespace, or an entity, has the maximum number of clients."""

    condition = RESOURCE_LIMIT_EXCEEDED
    status, sub_code = 403, 40302

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"There are {limit} {what} already: no more are allowed at once. Close one first.")


class TooManyEntitiesError(BrokerError):
    """The namespace has the maximum number of entities of this kind."""

    condition = RESOURCE_LIMIT_EXCEEDED
    status, sub_code = 403, 40300

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"The namespace has {limit} {what} already: no more are allowed. Delete one first.")


class PortUnavailableError(BrokerError):
    """A namespace's port could not be opened; the text names both."""

    def __init__(self, namespace: str, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"Namespace '{namespace}' cannot listen on {host}:{port}: {reason}. Port 0 takes a free one."
        )
        self.namespace = namespace
        self.port = port


class EndpointUnavailableError(BrokerError):
    """The dashboard or the fault endpoint could not be served; the text names it and the address."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        super().__init__(f"The {what} cannot be served on {host}:{port}: {reason}.")
        self.port = port


class StoreFullError(BrokerError):
    """The disk of the namespace is full; stored messages can still be received."""

    condition = RESOURCE_LIMIT_EXCEEDED
    status, sub_code = 403, 40302

    def __init__(self) -> None:
        super().__init__(
            "The disk that this namespace is kept on is full: receive messages, or free some room on it."
        )


class StoreError(BrokerError):
    """A namespace cannot be stored on disk as requested; the text names the file and the next step."""


class StoreInUseError(StoreError):
    """Another broker uses the data directory."""

    def __init__(self, path: Path, owner: str) -> None:
        who = f"process {owner}" if owner.isdigit() else "another process"
        super().__init__(f"The data directory {path} is in use by {who}: one broker owns it at a time.")


class StoreDamagedError(StoreError):
    """A file does not contain what was written to it. Nothing in it was changed."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"The file {path} is damaged: {what}. Nothing in it was changed: put a copy in its place, with "
            "the files beside it, or move them all away and start empty."
        )


class StoreFailedError(StoreError):
    """A commit failed: none of its changes were acknowledged, and the broker stops."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The file {path} could not be written ({why}): the broker has stopped. "
            "Nothing unwritten was acknowledged; start it again when the disk works."
        )
