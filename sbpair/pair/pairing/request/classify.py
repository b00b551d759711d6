"""Classification of SDK errors into failures.

One table maps exception classes, another the AMQP conditions of a bare ServiceBusError. Errors that the SDK wraps are
classified by their cause: a refused token and an unreachable token service both arrive as authentication errors, a bad
certificate as a connection error. A test covers every class and condition the SDK defines.

A Python type does not determine the cause: a malformed response raises the same TypeError inside the SDK as a message
that cannot be encoded. An error in neither table therefore counts as an unavailable service, unless the phase is
Phase.ENCODING. A classifier in the options overrides the tables.

The SDK's *retryable* flag is ignored, since it is set even for a disabled entity. Performs no I/O, except when a name
was not resolved: it then tries to open a file descriptor, to see whether none is free.
"""

from __future__ import annotations

import socket
import ssl
from enum import Enum

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus import exceptions as sdk_errors

from sbpair.pair.auth.transient import TokenUnavailableError, is_transient
from sbpair.pair.ground.asked_pause import asked_pause
from sbpair.pair.ground.shortage import causes, is_shortage

from ..errors import CaFileError, ParkedMessageTooLargeError
from ..outcome import Classification, Failure
from ..shared.waiting import StillWaitingError
from . import sdk

_U, _B, _CONF, _FULL, _CALL = (
    Failure.UNAVAILABLE,
    Failure.BUSY,
    Failure.CONFIGURATION,
    Failure.FULL,
    Failure.CALLER,
)


class Phase(Enum):
    """The phase of an operation. If there was no response, only an error in phase ENCODING is caused by the message."""

    ENCODING = "encoding the message"
    OPENING = "opening a link"
    SENDING = "sending"


BY_CLASS: dict[type[BaseException], tuple[Failure, str]] = {
    # the SDK's own; a bare ServiceBusError is classified by its condition
    sdk_errors.ServiceBusConnectionError: (_U, "the connection failed"),
    sdk_errors.ServiceBusCommunicationError: (_U, "the service cannot be reached"),
    sdk_errors.OperationTimeoutError: (_U, "the operation timed out"),
    sdk_errors.ServiceBusServerBusyError: (_B, "the service is busy"),
    sdk_errors.ServiceBusAuthenticationError: (_CONF, "the credential was refused"),
    sdk_errors.ServiceBusAuthorizationError: (_CONF, "the credential lacks a right"),
    sdk_errors.MessagingEntityNotFoundError: (_CONF, "the entity does not exist"),
    sdk_errors.MessagingEntityDisabledError: (_CONF, "the entity is disabled"),
    sdk_errors.MessagingEntityAlreadyExistsError: (_CALL, "the entity exists already"),
    sdk_errors.ServiceBusQuotaExceededError: (_FULL, "a quota is used up"),
    sdk_errors.MessageSizeExceededError: (_CALL, "the message is too large"),
    sdk_errors.MessageAlreadySettled: (_CALL, "the message was settled before"),
    sdk_errors.MessageLockLostError: (_CALL, "the lock on the message is lost"),
    sdk_errors.MessageNotFoundError: (_CALL, "there is no such message"),
    sdk_errors.SessionLockLostError: (_CALL, "the lock on the session is lost"),
    sdk_errors.SessionCannotBeLockedError: (_CALL, "the session is locked by another"),
    sdk_errors.AutoLockRenewFailed: (_CALL, "a lock could not be renewed"),
    sdk_errors.AutoLockRenewTimeout: (_CALL, "a lock was renewed for its whole time"),
    StillWaitingError: (_U, "no link was ready in time"),
    ParkedMessageTooLargeError: (_CALL, "the message could not be parked"),
    # other exceptions the SDK lets through
    CaFileError: (_CONF, "the file of authorities cannot be used"),
    ssl.SSLCertVerificationError: (_CONF, "the certificate was refused"),
    ClientAuthenticationError: (_CONF, "the credential was refused"),
    ServiceRequestError: (_U, "the token service cannot be reached"),
    ServiceResponseError: (_U, "the token service did not answer"),
    ImportError: (_CONF, "a package is missing"),
    FileNotFoundError: (_CONF, "a file is missing"),
    OSError: (_U, "the connection failed"),
}

BY_CONDITION: dict[str, tuple[Failure, str]] = {
    # every condition the SDK defines, and more; any other counts as unavailable
    "amqp:internal-error": (_U, "the service failed internally"),
    "amqp:not-found": (_CONF, "the entity does not exist"),
    "amqp:unauthorized-access": (_CONF, "the credential lacks a right"),
    "amqp:decode-error": (_CALL, "the service cannot decode the message"),
    "amqp:resource-limit-exceeded": (_FULL, "a quota is used up"),
    "amqp:not-allowed": (_CALL, "the operation is not allowed"),
    "amqp:invalid-field": (_CALL, "a field is not valid"),
    "amqp:not-implemented": (_CALL, "the service does not implement this"),
    "amqp:resource-locked": (_U, "the entity is locked by another"),
    "amqp:precondition-failed": (_CALL, "a precondition failed"),
    "amqp:resource-deleted": (_CONF, "the entity was deleted"),
    "amqp:illegal-state": (_CALL, "the operation is not legal in this state"),
    "amqp:frame-size-too-small": (_CALL, "the message does not fit a frame"),
    "amqp:connection:forced": (_U, "the service closed the connection"),
    "amqp:connection:framing-error": (_U, "the connection received malformed frames"),
    "amqp:connection:redirect": (_CONF, "the service has moved"),
    "amqp:session:window-violation": (_U, "the session failed"),
    "amqp:session:errant-link": (_U, "the session failed"),
    "amqp:session:handle-in-use": (_U, "the session failed"),
    "amqp:session:unattached-handle": (_U, "the session failed"),
    "amqp:link:detach-forced": (_U, "the service closed the link"),
    "amqp:link:transfer-limit-exceeded": (_U, "the link failed"),
    "amqp:link:message-size-exceeded": (_CALL, "the message is too large"),
    "amqp:link:redirect": (_CONF, "the entity has moved"),
    "amqp:link:stolen": (_U, "the link was taken over"),
    "amqp:client-error": (_U, "the client gave up"),
    "amqp:unknown-error": (_U, "the connection failed"),
    "amqp:vendor-error": (_U, "the service failed"),
    "amqp:socket-error": (_U, "the connection failed"),
    "com.microsoft:server-busy": (_B, "the service is busy"),
    "com.microsoft:timeout": (_U, "the service timed out"),
    "com.microsoft:operation-cancelled": (_U, "the service cancelled the operation"),
    "com.microsoft:container-close": (_U, "the service is moving the entity"),
    "com.microsoft:partition-not-owned": (_U, "the service is moving the entity"),
    "com.microsoft:partition-not-available": (_U, "the service is moving the entity"),
    "com.microsoft:namespace-suspended": (_U, "the namespace is suspended"),
    "com.microsoft:no-matching-subscription": (_U, "the service found no subscription"),
    "com.microsoft:entity-disabled": (_CONF, "the entity is disabled"),
    "com.microsoft:auth-failed": (_CONF, "the credential was refused"),
    "com.microsoft:entity-already-exists": (_CALL, "the entity exists already"),
    "com.microsoft:message-not-found": (_CALL, "there is no such message"),
    "com.microsoft:message-lock-lost": (_CALL, "the lock on the message is lost"),
    "com.microsoft:session-lock-lost": (_CALL, "the lock on the session is lost"),
    "com.microsoft:session-cannot-be-locked": (_CALL, "the session is locked by another"),
    "com.microsoft:argument-error": (_CALL, "an argument is not valid"),
    "com.microsoft:argument-out-of-range": (_CALL, "an argument is out of range"),
    "com.microsoft:precondition-failed": (_CALL, "a precondition failed"),
}

_MISSING = frozenset({"amqp:not-found", "amqp:resource-deleted"})
_REFUSED_LINK = frozenset(
    {
        "amqp:not-allowed",  # a sender for a sub-queue or a subscription
        "amqp:not-implemented",
        "amqp:invalid-field",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    }
)
"""Conditions that refuse a link: the entity cannot be sent to, and waiting does not help."""
_OF_CONTENT = frozenset(
    {
        "amqp:decode-error",
        "amqp:frame-size-too-small",
        "amqp:invalid-field",
        "amqp:link:message-size-exceeded",
        "amqp:not-allowed",  # no session id, where the entity requires one
        "amqp:not-implemented",
        "amqp:precondition-failed",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "com.microsoft:precondition-failed",
    }
)
"""Conditions that refuse a message for its content: a retry would fail too."""
_SIZE = frozenset({"amqp:link:message-size-exceeded"})
_REFUSED_TOKEN = frozenset({401, 403})
_PASSING = frozenset({408, 409, 429})  # 4xx for which a retry may succeed


def classify(
    error: Exception, phase: Phase = Phase.SENDING, handled: BaseException | None = None
) -> Classification:
    """Classify an error the SDK raised in this phase. Never raises.

    ``handled`` is the exception the application was handling when it sent: Python chains it to the error,
    but it is unrelated to the send.
    """
    if phase is Phase.ENCODING:
        return Classification(_CALL, "the message cannot be encoded", is_local=True)
    before = _with_its_chain(handled)
    failure, why = _failure_of(error, before)
    condition = sdk.condition_of(error)
    if phase is Phase.OPENING and failure is _CALL:
        failure, why = _U, "the service answered something unreadable"
        if condition in _REFUSED_LINK:
            failure, why = _CONF, "the entity cannot be sent to"
    is_short = failure is _U and is_shortage((error, *causes(error, before)))
    timed_out = failure is _U and isinstance(error, sdk_errors.OperationTimeoutError)
    return Classification(
        failure,
        why,
        is_missing=failure is _CONF and _is_missing(error, condition),
        is_of_namespace=failure is _CONF and _is_of_namespace(error, condition, before),
        is_of_side=_is_of_side(error, failure, condition),
        is_too_large=isinstance(error, sdk_errors.MessageSizeExceededError) or condition in _SIZE,
        is_ambiguous=phase is Phase.SENDING and failure is _U and (timed_out or not sdk.was_rejected(error)),
        is_own=is_short or isinstance(error, StillWaitingError),
        is_shortage=is_short,
        retry_after=asked_pause(str(error)) if failure is _B else None,
        is_link_in_doubt=phase is Phase.SENDING and failure in (_U, _CONF) and not timed_out,
    )


_OF_CONNECTION = ("amqp:connection", "amqp:socket-error")
"""Conditions of a connection: the service's, and the SDK's for one that cannot be opened."""


def _is_of_side(error: Exception, failure: Failure, condition: str | None) -> bool:
    """Whether every queue of the namespace would fail in the same way: a connection, token, name or busy error."""
    if failure is _B or sdk.token_status_of(error) is not None:
        return True
    if failure is _CONF:
        return _is_of_namespace(error, condition, frozenset())
    is_of_link = condition is not None and not condition.startswith(_OF_CONNECTION)
    return failure is _U and not is_of_link and not isinstance(error, StillWaitingError)


def is_of_name(error: Exception) -> bool:
    """Whether the name of a host was not found."""
    return any(isinstance(each, socket.gaierror) for each in (error, *causes(error)))


def is_about_content(error: Exception) -> bool:
    """Whether the entity refused the message for its content, by a condition or by its size limit."""
    return isinstance(error, sdk_errors.MessageSizeExceededError) or sdk.condition_of(error) in _OF_CONTENT


def overrule(classification: Classification, failure: Failure) -> Classification:
    """Return the classification with its failure replaced by that of the options' classifier.

    The attributes of the message and the link are kept.
    """
    if failure is classification.failure:
        return classification
    return classification._replace(
        failure=failure,
        why=f"the classifier says {failure.value}: {classification.why}",
        is_link_in_doubt=classification.is_link_in_doubt and failure in (_U, _CONF),
        retry_after=None,
    )


def _failure_of(error: Exception, before: frozenset[int]) -> tuple[Failure, str]:
    status = sdk.token_status_of(error)
    if status is not None:  # from $cbs; the SDK wraps it into an authentication or connection error
        return _by_status(status, "credential")
    if _is_without_namespace(error, sdk.condition_of(error)):
        return _CONF, "the namespace does not exist"
    if _is_token_end(error):
        return _CONF, "the token of the link has ended"
    if any(
        isinstance(each, ClientAuthenticationError | TokenUnavailableError) and is_transient(each)
        for each in (error, *causes(error, before))
    ):
        return _U, "the credential is away"
    if isinstance(
        error, (sdk_errors.ServiceBusConnectionError, sdk_errors.ServiceBusAuthenticationError)
    ) or type(error) in (sdk_errors.ServiceBusError, ClientAuthenticationError):
        disguised = _inside(error, before)
        if disguised is not None:
            return disguised
    if type(error) is sdk_errors.ServiceBusError:
        return BY_CONDITION.get(sdk.condition_of(error) or "", (_U, "the service failed in an unknown way"))
    if isinstance(error, HttpResponseError) and not isinstance(error, ClientAuthenticationError):
        return _by_status(error.status_code or 0)
    return _by_class(error) or (_U, "the service failed in an unknown way")


def _by_class(error: BaseException) -> tuple[Failure, str] | None:
    known = (BY_CLASS[base] for base in type(error).__mro__ if base in BY_CLASS)
    return next(known, None)


def _by_status(status: int, what: str = "request") -> tuple[Failure, str]:
    if status == 404:
        return _CONF, "the entity does not exist"
    if 400 <= status < 500 and status not in _PASSING:
        refused = "credential" if status in _REFUSED_TOKEN else what
        return _CONF, f"the {refused} was refused with status {status}"
    return _U, f"the service answered with status {status}"


def _inside(error: Exception, before: frozenset[int]) -> tuple[Failure, str] | None:
    """Return the class of the certificate, token service, socket or encoding error wrapped into this one, or None."""
    chain = list(causes(error, before))
    for inner in chain:
        if isinstance(inner, HttpResponseError) and not isinstance(inner, ClientAuthenticationError):
            return _by_status(inner.status_code or 0)
        known = _by_class(inner)
        if known is not None and not isinstance(inner, ClientAuthenticationError):
            return known
    return next((known for inner in chain if (known := _by_class(inner))), None)


def _with_its_chain(handled: BaseException | None) -> frozenset[int]:
    seen: set[int] = set()
    while handled is not None and id(handled) not in seen:
        seen.add(id(handled))
        handled = handled.__context__
    return frozenset(seen)


def _is_of_namespace(error: Exception, condition: str | None, before: frozenset[int]) -> bool:
    """Whether the whole namespace, not just one entity, refuses this client, which changes the state of its side."""
    status = sdk.token_status_of(error)
    if status is not None:
        return status in _REFUSED_TOKEN
    if condition in _MISSING:
        return _is_without_namespace(error, condition)
    inner = (error, *causes(error, before))
    return isinstance(error, sdk_errors.ServiceBusAuthenticationError) or any(
        isinstance(each, (ssl.SSLCertVerificationError, ClientAuthenticationError)) for each in inner
    )


def _is_without_namespace(error: Exception, condition: str | None) -> bool:
    """Whether the service ended the connection because the namespace is missing, rather than a link's entity."""
    return condition in _MISSING and sdk.ended_connection(error)


_OF_TOKEN_ENDS = frozenset({"amqp:link:detach-forced", "amqp:unauthorized-access"})
TOKEN_ENDS = "Code: RenewToken."  # noqa: S105 - no password
"""Part of the text when a link's token ends; the condition alone is the same for an idle link."""


def _is_token_end(error: Exception) -> bool:
    return TOKEN_ENDS in str(error) and sdk.condition_of(error) in (None, *_OF_TOKEN_ENDS)


def _is_missing(error: Exception, condition: str | None) -> bool:
    return not _is_without_namespace(error, condition) and (
        isinstance(error, sdk_errors.MessagingEntityNotFoundError)
        or condition in _MISSING
        or sdk.token_status_of(error) == 404
    )
