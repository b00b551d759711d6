"""What may a broker refuse, and by which names do AMQP and HTTP know the refusal?

Every class carries the AMQP ``condition`` its links answer with, the HTTP ``status`` and the
``sub_code`` its ATOM face answers with. A new refusal is a new class here, never a string elsewhere.

    BrokerError
    ├── EntityNotFound         404  40400  amqp:not-found
    │   └── TargetNotFound     404  40400  amqp:not-found
    ├── EntityAlreadyExists    409  40900  com.microsoft:entity-already-exists
    ├── OperationInProgress    409  40901  amqp:internal-error
    ├── EntityDisabled         403  40300  com.microsoft:entity-disabled
    ├── InvalidDescription     400  40000  com.microsoft:argument-error
    │   ├── InvalidRule        400  40000  com.microsoft:argument-error
    │   └── NotSupported       400  40000  amqp:not-implemented
    ├── InvalidArgument        400  40000  com.microsoft:argument-error
    ├── OutOfRange             400  40000  com.microsoft:argument-out-of-range
    │   └── StateTooLarge      400  40000  com.microsoft:argument-out-of-range
    ├── MalformedMessage       400  40000  amqp:decode-error
    ├── NotAllowed             400  40000  amqp:not-allowed
    │   ├── SessionRequired    400  40000  amqp:not-allowed
    │   └── ForwardsOn         400  40000  amqp:not-allowed
    ├── NotImplementedHere     501  50100  amqp:not-implemented
    ├── Unauthorized           401  40100  amqp:unauthorized-access
    ├── HopsExceeded           (no client ever sees it: the message is dead-lettered)
    ├── QuotaExceeded          403  40302  amqp:resource-limit-exceeded
    ├── MessageTooLarge        400  40000  amqp:link:message-size-exceeded
    ├── HeaderTooLarge         400  40000  amqp:link:message-size-exceeded
    ├── MessageNotFound        404  40400  com.microsoft:message-not-found
    ├── LockLost               410  41000  com.microsoft:message-lock-lost
    ├── SessionLockLost        410  41000  com.microsoft:session-lock-lost
    ├── SessionCannotBeLocked  409  40900  com.microsoft:session-cannot-be-locked
    ├── OperationTimedOut      408  40800  com.microsoft:timeout
    ├── UnknownTransaction     404  40400  amqp:transaction:unknown-id
    ├── TransactionRolledBack  409  40900  amqp:transaction:rollback
    ├── TooManyTransactions    403  40302  amqp:resource-limit-exceeded
    ├── Rerouting              408  40800  com.microsoft:timeout
    ├── PartitionUnavailable   503  50300  com.microsoft:partition-not-available
    ├── ServerBusy             503  50009  com.microsoft:server-busy
    ├── AdministrationBusy     429  50004  com.microsoft:server-busy
    ├── TooManyConnections     403  40302  amqp:resource-limit-exceeded
    ├── TooManyEntities        403  40300  amqp:resource-limit-exceeded
    ├── StoreFull              403  40302  amqp:resource-limit-exceeded
    ├── StoreError             (no client ever sees it: the broker did not start)
    │   ├── StoreInUse
    │   ├── StoreDamaged
    │   └── StoreFailed        (no client ever sees it: the broker has stopped)
    ├── PortUnavailable        (no client ever sees it: the broker did not start)
    └── DoorUnavailable        (likewise: the page or the faults)
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

_LOW_BITS = 2**48 - 1  # the service shows a number without its partition


class BrokerError(Exception):
    """The broker refuses, and says why: base of all of the broker's errors."""

    condition: ClassVar[str] = "amqp:internal-error"
    status: ClassVar[int] = 500
    sub_code: ClassVar[int] = 50000


class EntityNotFound(BrokerError):
    """No entity has this path."""

    condition = "amqp:not-found"
    status, sub_code = 404, 40400

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' could not be found.")
        self.path = path


class TargetNotFound(EntityNotFound):
    """An entity was to forward to one that is not there; the text names both."""

    def __init__(self, path: str, source: str, field: str) -> None:
        super().__init__(path)
        self.args = (
            f"The messaging entity '{path}', {field} of '{source}', could not be found: create it first.",
        )


class EntityAlreadyExists(BrokerError):
    """An entity of this path is there already; paths are compared without regard to case."""

    condition = "com.microsoft:entity-already-exists"
    status, sub_code = 409, 40900

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' already exists.")
        self.path = path


class OperationInProgress(BrokerError):
    """Another change of the same entity is under way; here, by a fault alone: each takes no time at all."""

    status, sub_code = 409, 40901

    def __init__(self) -> None:
        super().__init__("Another conflicting operation is in progress.")


class EntityDisabled(BrokerError):
    """The entity's status forbids what was asked."""

    condition = "com.microsoft:entity-disabled"
    status, sub_code = 403, 40300

    def __init__(self, path: str, status: str) -> None:
        super().__init__(f"The messaging entity '{path}' is currently disabled: its status is {status}.")
        self.path = path


class InvalidDescription(BrokerError):
    """A field of an entity's description, or its path, is out of its range; the text names it."""

    condition = "com.microsoft:argument-error"
    status, sub_code = 400, 40000


class InvalidRule(InvalidDescription):
    """A rule's name, filter or action cannot be read, or says what none may; the text says where (3.8)."""


class NotSupported(InvalidDescription):
    """A feature of Service Bus that this broker does not have yet was asked for by name."""

    condition = "amqp:not-implemented"

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not supported by this broker yet: create the entity without it.")
        self.feature = feature


class InvalidArgument(BrokerError):
    """An argument of an operation has a wrong type or is missing."""

    condition = "com.microsoft:argument-error"
    status, sub_code = 400, 40000


class OutOfRange(BrokerError):
    """An argument of an operation is outside its range."""

    condition = "com.microsoft:argument-out-of-range"
    status, sub_code = 400, 40000


class StateTooLarge(OutOfRange):
    """A session's state is larger than a message of the entity may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The session state has {size} bytes: at most {limit} are allowed.")


class MalformedMessage(BrokerError):
    """The bytes of a message do not read as AMQP sections (3.2)."""

    condition = "amqp:decode-error"
    status, sub_code = 400, 40000


class NotAllowed(BrokerError):
    """The operation exists, but not on this kind of entity or link."""

    condition = "amqp:not-allowed"
    status, sub_code = 400, 40000


class SessionRequired(NotAllowed):
    """An entity that requires sessions was sent a message without one, or asked for one outside of any."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The entity '{path}' requires sessions: a message sent to it needs a session id, "
            "and messages are received from it under the lock of a session."
        )


class ForwardsOn(NotAllowed):
    """A receiver was asked for on an entity whose messages go on to another one."""

    def __init__(self, path: str, target: str) -> None:
        super().__init__(
            f"Cannot create a message receiver on an entity with auto-forwarding enabled: '{path}' forwards "
            f"to '{target}', receive there."
        )
        self.path = path
        self.target = target


class HopsExceeded(BrokerError):
    """A message was forwarded as often as it may be, and was to go on again."""

    def __init__(self, target: str, most: int) -> None:
        super().__init__(
            f"The message was forwarded {most} times, the most allowed: it does not go on to '{target}'."
        )


class NotImplementedHere(BrokerError):
    """An operation this broker does not have."""

    condition = "amqp:not-implemented"
    status, sub_code = 501, 50100


class Unauthorized(BrokerError):
    """No valid claim of this connection covers what was asked."""

    condition = "amqp:unauthorized-access"
    status, sub_code = 401, 40100


class QuotaExceeded(BrokerError):
    """The entity is full."""

    condition = "amqp:resource-limit-exceeded"
    status, sub_code = 403, 40302

    def __init__(self, path: str, size: int, quota: int) -> None:
        super().__init__(
            f"The maximum entity size of '{path}' has been reached or exceeded: "
            f"{size} bytes are held and the quota is {quota} bytes."
        )
        self.path = path


class MessageTooLarge(BrokerError):
    """A message, or a batch, is larger than the entity takes."""

    condition = "amqp:link:message-size-exceeded"
    status, sub_code = 400, 40000

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"The received message (delivery-id:0, size:{size} bytes) exceeds the limit "
            f"({limit} bytes) currently allowed on the link."
        )


class HeaderTooLarge(BrokerError):
    """A message's properties, or one of them, are larger than they may be (3.9)."""

    condition = "amqp:link:message-size-exceeded"
    status, sub_code = 400, 40000

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"The size quota for this stream has been exceeded: {what} has {size} bytes, "
            f"at most {limit} are allowed."
        )


class MessageNotFound(BrokerError):
    """No message of this entity has this sequence number in the state that was asked for."""

    condition = "com.microsoft:message-not-found"
    status, sub_code = 404, 40400

    def __init__(self, *sequence_numbers: int) -> None:
        shown = ", ".join(str(number & _LOW_BITS) for number in sequence_numbers[:100])
        super().__init__(f"Messages not found. Missing sequence numbers: {shown}.")
        self.sequence_numbers = sequence_numbers


class LockLost(BrokerError):
    """The lock is not, or no longer, held: it lapsed or its message was settled."""

    condition = "com.microsoft:message-lock-lost"
    status, sub_code = 410, 41000

    def __init__(self) -> None:
        super().__init__(
            "The lock supplied is invalid. Either the lock expired, or the message has already been "
            "removed from the queue, or was received by a different receiver instance."
        )


class SessionLockLost(BrokerError):
    """The lock of the session is not, or no longer, held: it lapsed, or its link was closed."""

    condition = "com.microsoft:session-lock-lost"
    status, sub_code = 410, 41000

    def __init__(self) -> None:
        super().__init__("The session lock has expired on the MessageSession. Accept a new MessageSession.")


class SessionCannotBeLocked(BrokerError):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status, sub_code = 409, 40900

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
        )
        self.session_id = session_id


class OperationTimedOut(BrokerError):
    """What was asked for did not come within the time the client gave it."""

    condition = "com.microsoft:timeout"
    status, sub_code = 408, 40800

    def __init__(self, seconds: float) -> None:
        whole, rest = divmod(max(0, round(seconds * 1000)), 1000)
        span = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}" + (f".{rest:03}" if rest else "")
        super().__init__(f"The operation did not complete within the allotted timeout of {span}.")


class UnknownTransaction(BrokerError):
    """No transaction of this connection has the id: it was never declared, or it is over (4.5.9)."""

    condition = "amqp:transaction:unknown-id"
    status, sub_code = 404, 40400

    def __init__(self, txn_id: bytes) -> None:
        super().__init__(
            f"There is no transaction {txn_id.hex()[:64]}: declare one, and use it on its connection."
        )


class TransactionRolledBack(BrokerError):
    """Nothing of the transaction was done."""

    condition = "amqp:transaction:rollback"
    status, sub_code = 409, 40900

    def __init__(self, reason: str) -> None:
        super().__init__(f"The transaction was rolled back. {reason}")


class TooManyTransactions(BrokerError):
    """A controller has declared more transactions than it has ended."""

    condition = "amqp:resource-limit-exceeded"
    status, sub_code = 403, 40302

    def __init__(self, most: int) -> None:
        super().__init__(
            f"{most} transactions of this link are open: commit or roll back some of them first."
        )


class Rerouting(BrokerError):
    """A message without a key is on its way to another partition until ``at``, ms of entity time (Q-16).

    Who can wait sends it again then; who can not, answers that it took too long.
    """

    condition = "com.microsoft:timeout"
    status, sub_code = 408, 40800

    def __init__(self, path: str, at: int) -> None:
        super().__init__(f"A message is being moved to another partition of '{path}': send it again.")
        self.at = at


class PartitionUnavailable(BrokerError):
    """The partition that is asked for, and no other, is down (Q-4)."""

    condition = "com.microsoft:partition-not-available"
    status, sub_code = 503, 50300

    def __init__(self, path: str, index: int) -> None:
        super().__init__(f"Partition {index} of the entity '{path}' is not available: try again later.")
        self.path = path
        self.index = index


class ServerBusy(BrokerError):
    """What is asked for is throttled."""

    condition = "com.microsoft:server-busy"
    status, sub_code = 503, 50009

    def __init__(self) -> None:
        super().__init__(
            "The request was terminated because the entity is being throttled. Error code: 50009. "
            "Please wait 2 seconds and try again."
        )


class AdministrationBusy(BrokerError):
    """The administration of the namespace is throttled."""

    condition = "com.microsoft:server-busy"
    status, sub_code = 429, 50004

    def __init__(self, namespace: str) -> None:
        super().__init__(
            f"The request was terminated because the namespace {namespace} is being throttled. "
            "Please wait 2 seconds and try again."
        )


class TooManyConnections(BrokerError):
    """The namespace, or an entity, serves as many clients at once as it may."""

    condition = "amqp:resource-limit-exceeded"
    status, sub_code = 403, 40302

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"There are {most} {what} already: no more are allowed at once. Close one first.")


class TooManyEntities(BrokerError):
    """The namespace has as many entities of a kind as it may."""

    condition = "amqp:resource-limit-exceeded"
    status, sub_code = 403, 40300

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"The namespace has {most} {what} already: no more are allowed. Delete one first.")


class PortUnavailable(BrokerError):
    """A namespace's port could not be opened; the text names both."""

    def __init__(self, namespace: str, host: str, port: int, reason: str) -> None:
        super().__init__(f"Namespace '{namespace}' cannot listen on {host}:{port}: {reason}.")
        self.namespace = namespace
        self.port = port


class DoorUnavailable(BrokerError):
    """What is served beside the namespaces could not be; the text names it and where."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        super().__init__(f"The {what} cannot be served on {host}:{port}: {reason}.")
        self.port = port


class StoreFull(BrokerError):
    """There is no room left on the disk that the namespace is kept on: what is there can be received."""

    condition = "amqp:resource-limit-exceeded"
    status, sub_code = 403, 40302

    def __init__(self) -> None:
        super().__init__(
            "The disk that this namespace is kept on is full: receive messages, or free some room on it."
        )


class StoreError(BrokerError):
    """A namespace cannot be kept on disk as it was asked to be; the text names the file and what to do."""


class StoreInUse(StoreError):
    """Another broker has the data directory."""

    def __init__(self, path: Path, owner: str) -> None:
        who = f"process {owner}" if owner.isdigit() else "another process"
        super().__init__(f"The data directory {path} is in use by {who}: one broker owns it at a time.")


class StoreDamaged(StoreError):
    """What is on the disk is not what was written. Nothing of it was changed."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"The file {path} is damaged: {what}. Nothing in it was changed: put a copy in its place, "
            "or move it away and begin anew."
        )


class StoreFailed(StoreError):
    """A commit has failed: what it held was answered to nobody, and the broker answers nothing more."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The file {path} could not be written ({why}): the broker has stopped. "
            "Nothing unwritten was acknowledged; start it again when the disk is well."
        )
