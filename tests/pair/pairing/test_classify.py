"""The classification of every error class and condition that the SDK knows."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import socket
import ssl
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.servicebus import exceptions as sdk_errors
from azure.servicebus._common import constants
from azure.servicebus._pyamqp import error as amqp_errors
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from sbpair import Failure, PairedNamespaceOptions
from sbpair.events import ClassifierFailed
from sbpair.pair.auth.credential import (
    CredentialRefusedError,
    TokenUnavailableError,
    classify_credential_error,
)
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.request.classify import BY_CLASS, BY_CONDITION, Phase, classify, overrule
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.base_runtime import BaseRuntime

U, BUSY, CONF, FULL, CALLER = (
    Failure.UNAVAILABLE,
    Failure.BUSY,
    Failure.CONFIGURATION,
    Failure.FULL,
    Failure.CALLER,
)
SDK_CLASSES = [
    kind
    for _, kind in inspect.getmembers(sdk_errors, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == sdk_errors.__name__
]
SDK_CONDITIONS = sorted(
    {condition.value.decode() for condition in amqp_errors.ErrorCondition}
    | {value.decode() for name, value in vars(constants).items() if name.startswith("ERROR_CODE_")}
)


def raised_for(condition: str) -> Exception:
    """Return the SDK's error for a message rejected with this condition."""
    inner = amqp_errors.MessageException(condition.encode(), description="told by the test")
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert isinstance(error, Exception)
    return error


def refused_token(status: int, custom_endpoint: str | None = None) -> Exception:
    """Return the SDK's error for this status of $cbs."""
    inner = amqp_errors.TokenAuthFailure(status, b"told by the test")
    error = PyamqpTransport.create_servicebus_exception(
        logging.getLogger("test"), inner, custom_endpoint_address=custom_endpoint
    )
    assert isinstance(error, Exception)
    return error


def not_found(kind: type[amqp_errors.AMQPException]) -> Exception:
    """Return the SDK's error for a connection or link that ends with this condition."""
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), kind(b"amqp:not-found"))
    assert isinstance(error, Exception)
    return error


def broken_connection(cause: Exception) -> Exception:
    inner = amqp_errors.AMQPConnectionError(amqp_errors.ErrorCondition.SocketError, error=cause)
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert isinstance(error, Exception)
    return error


@pytest.mark.spec("P-3")
@pytest.mark.parametrize("kind", SDK_CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_class_of_the_sdk_is_judged(kind: type[Exception]) -> None:
    assert kind in BY_CLASS or kind is sdk_errors.ServiceBusError


@pytest.mark.spec("P-3")
def test_every_condition_the_sdk_knows_is_judged() -> None:
    assert set(SDK_CONDITIONS) <= set(BY_CONDITION)
    assert len(SDK_CONDITIONS) > 35


@pytest.mark.spec("P-3")
@pytest.mark.parametrize("condition", sorted(BY_CONDITION))
def test_class_and_condition_of_a_rejection_agree(condition: str) -> None:
    assert classify(raised_for(condition)).failure is BY_CONDITION[condition][0]


REJECTED = {
    "com.microsoft:server-busy": BUSY,
    "com.microsoft:timeout": U,
    "amqp:internal-error": U,
    "com.microsoft:operation-cancelled": U,
    "com.microsoft:container-close": U,
    "com.microsoft:something-new": U,
    "amqp:link:detach-forced": U,
    "amqp:connection:forced": U,
    "com.microsoft:entity-disabled": CONF,
    "com.microsoft:auth-failed": CONF,
    "amqp:not-found": CONF,
    "amqp:unauthorized-access": CONF,
    "amqp:resource-limit-exceeded": FULL,
    "amqp:link:message-size-exceeded": CALLER,
    "amqp:not-allowed": CALLER,
    "amqp:decode-error": CALLER,
    "com.microsoft:argument-error": CALLER,
}


@pytest.mark.spec("P-3", "F-40", "F-42", "F-43", "F-44")
@pytest.mark.parametrize(("condition", "failure"), REJECTED.items())
def test_a_rejected_message_is_judged_by_its_condition(condition: str, failure: Failure) -> None:
    assert classify(raised_for(condition)).failure is failure


@pytest.mark.spec("F-41")
@pytest.mark.parametrize("custom_endpoint", [None, "sb://gateway:5671"])
@pytest.mark.parametrize(
    ("status", "failure"), [(400, CONF), (401, CONF), (403, CONF), (404, CONF), (500, U), (503, U), (0, U)]
)
def test_a_refused_token_is_judged_by_its_status_whatever_class_the_sdk_uses(
    status: int, failure: Failure, custom_endpoint: str | None
) -> None:
    classification = classify(refused_token(status, custom_endpoint), Phase.OPENING)
    assert classification.failure is failure
    assert classification.is_missing == (status == 404)


@pytest.mark.spec("P-50")
@pytest.mark.parametrize(
    ("status", "is_of_namespace"), [(401, True), (403, True), (404, False), (503, False)]
)
def test_a_refused_token_speaks_for_the_whole_namespace_unless_an_entity_is_missing(
    status: int, is_of_namespace: bool
) -> None:
    assert classify(refused_token(status), Phase.OPENING).is_of_namespace is is_of_namespace


@pytest.mark.spec("P-50")
@pytest.mark.parametrize(
    ("error", "is_of_namespace"),
    [
        (broken_connection(ssl.SSLCertVerificationError(1, "self-signed certificate")), True),
        (sdk_errors.ServiceBusError("x", error=ClientAuthenticationError("wrong secret")), True),
        (sdk_errors.ServiceBusAuthenticationError(message="x"), True),
        (not_found(amqp_errors.AMQPConnectionError), True),
        (not_found(amqp_errors.AMQPLinkError), False),
        (sdk_errors.ServiceBusAuthorizationError(message="x"), False),
        (sdk_errors.MessagingEntityDisabledError(message="x"), False),
        (broken_connection(ConnectionRefusedError(111, "refused")), False),
        (ServiceRequestError("no route to the token endpoint"), False),
    ],
)
def test_an_error_of_one_entity_or_an_outage_is_not_attributed_to_the_namespace(
    error: Exception, is_of_namespace: bool
) -> None:
    assert classify(error, Phase.OPENING).is_of_namespace is is_of_namespace


@pytest.mark.spec("F-23", "F-24", "F-31", "F-32")
@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        (ConnectionRefusedError(111, "refused"), U),
        (ConnectionResetError(104, "reset"), U),
        (TimeoutError("timed out"), U),
        (socket.gaierror(-2, "Name or service not known"), U),
        (ssl.SSLError(1, "wrong version number"), U),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), CONF),
    ],
)
def test_a_broken_connection_is_judged_by_its_cause(cause: Exception, failure: Failure) -> None:
    assert classify(broken_connection(cause), Phase.OPENING).failure is failure
    assert classify(cause, Phase.OPENING).failure is failure


@pytest.mark.spec("P-3", "F-41")
@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        (ServiceRequestError("no route to the token endpoint"), U),
        (ClientAuthenticationError("wrong secret"), CONF),
    ],
)
def test_an_error_wrapped_by_the_sdk_is_judged_by_its_inner_error(cause: Exception, failure: Failure) -> None:
    wrapped = sdk_errors.ServiceBusError(f"Handler failed: {cause}.", error=cause)
    assert classify(wrapped).failure is failure


@pytest.mark.spec("P-3")
def test_an_unreadable_answer_while_opening_is_never_the_messages_fault() -> None:
    garbage = sdk_errors.ServiceBusError("Handler failed", error=TypeError("'NoneType' is not subscriptable"))
    assert classify(garbage, Phase.OPENING).failure is U


PYTHON_ERRORS = [
    ValueError("Value supplied for int invalid"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    TypeError("'NoneType' object is not subscriptable"),
    AttributeError("'NoneType' object has no attribute 'send_message'"),
    KeyError("rejected"),
    IndexError("list index out of range"),
    OverflowError("too large"),
    struct.error("unpack requires a buffer of 4 bytes"),
    RuntimeError("whatever the SDK comes up with"),
]


@pytest.mark.spec("R-4")
@pytest.mark.parametrize("error", PYTHON_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_an_error_without_a_condition_after_encoding_is_an_ambiguous_outage(
    error: Exception, is_wrapped: bool
) -> None:
    raised = sdk_errors.ServiceBusError(f"Handler failed: {error}.", error=error) if is_wrapped else error
    classification = classify(raised, Phase.SENDING)
    assert (classification.failure, classification.is_ambiguous) == (U, True)
    assert classification.is_link_in_doubt  # worth a fresh link: the SDK's handler may have died while idle
    while_opening = classify(raised, Phase.OPENING)
    assert (while_opening.failure, while_opening.is_ambiguous) == (U, False)


@pytest.mark.spec("R-4")
@pytest.mark.parametrize("error", PYTHON_ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_while_encoding_is_the_callers_and_nothing_was_sent(error: Exception) -> None:
    classification = classify(error, Phase.ENCODING)
    assert (classification.failure, classification.is_ambiguous, classification.is_local) == (
        CALLER,
        False,
        True,
    )


@pytest.mark.spec("R-4", "G-7")
@pytest.mark.parametrize(
    ("inner", "is_ambiguous"),
    [
        (amqp_errors.MessageSendFailed(amqp_errors.ErrorCondition.InternalError), False),
        (amqp_errors.MessageException(b"com.microsoft:container-close"), False),
        (amqp_errors.AMQPLinkError(b"amqp:internal-error"), True),
        (amqp_errors.AMQPLinkError(b"amqp:link:detach-forced"), True),
        (amqp_errors.AMQPConnectionError(b"amqp:connection:forced"), True),
        (
            amqp_errors.MessageException(amqp_errors.ErrorCondition.ClientError, description="not running"),
            True,
        ),
        (amqp_errors.MessageSendFailed(amqp_errors.ErrorCondition.UnknownError), True),
    ],
)
def test_only_the_services_rejection_of_the_message_proves_it_was_not_stored(
    inner: Exception, is_ambiguous: bool
) -> None:
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert isinstance(error, Exception)
    classification = classify(error, Phase.SENDING)
    assert (classification.failure, classification.is_ambiguous) == (U, is_ambiguous)


@pytest.mark.spec("P-3")
@pytest.mark.parametrize("condition", ["amqp:not-allowed", "amqp:invalid-field"])
def test_a_link_refused_with_a_description_is_no_outage(condition: str) -> None:
    assert classify(raised_for(condition), Phase.OPENING).failure is CONF


@pytest.mark.spec("G-7")
def test_a_send_is_ambiguous_if_its_answer_was_lost_and_not_if_it_was_refused() -> None:
    assert classify(sdk_errors.OperationTimeoutError()).is_ambiguous
    assert classify(broken_connection(ConnectionResetError())).is_ambiguous
    assert not classify(broken_connection(ConnectionResetError()), Phase.OPENING).is_ambiguous
    assert not classify(raised_for("amqp:internal-error")).is_ambiguous


@pytest.mark.spec("F-33")
def test_a_timeout_is_not_tried_again_but_a_lost_connection_is() -> None:
    assert classify(broken_connection(ConnectionResetError())).is_link_in_doubt
    assert not classify(sdk_errors.OperationTimeoutError()).is_link_in_doubt


@pytest.mark.spec("P-22")
def test_a_message_too_large_is_known_by_class_and_by_condition() -> None:
    assert classify(sdk_errors.MessageSizeExceededError()).is_too_large
    assert classify(raised_for("amqp:link:message-size-exceeded")).is_too_large


@pytest.mark.spec("P-3")
def test_an_administration_error_is_judged_by_its_status() -> None:
    error = HttpResponseError("told by the test")
    for status, failure in ((503, U), (403, CONF), (400, CONF)):
        error.status_code = status
        assert classify(error).failure is failure


@pytest.mark.spec("F-40")
def test_a_busy_service_may_name_the_pause_in_its_text() -> None:
    inner = amqp_errors.MessageException(
        b"com.microsoft:server-busy",
        description="Throttled, code 50009. Please wait 14 seconds and try again.",
    )
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert classify(error).retry_after == 14.0
    assert classify(raised_for("com.microsoft:server-busy")).retry_after is None


RENEW_TOKEN = (
    "The link '5dbc9b1c' is force detached. Code: RenewToken. Details: Unauthorized access. 'Send' claim(s) are "
    "required to perform this operation. Resource: 'sb://contoso.servicebus.windows.net/orders'.. TrackingId:ab_G5S2"
)
IDLE = "The link 'G0S1:100206360:5dbc' is force detached. Code: publisher(link2731). Details: Idle timeout: 00:10:00."


@pytest.mark.spec("W-4", "F-41")
@pytest.mark.parametrize("condition", [b"amqp:link:detach-forced", b"amqp:unauthorized-access"])
def test_end_of_a_token_is_a_configuration_error(condition: bytes) -> None:
    inner = amqp_errors.AMQPLinkError(condition, description=RENEW_TOKEN)
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert classify(error).failure is CONF


@pytest.mark.spec("W-4")
def test_idle_link_is_no_end_of_a_token() -> None:
    inner = amqp_errors.AMQPLinkError(b"amqp:link:detach-forced", description=IDLE)
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert classify(error).failure is U


BUSY = (  # a throttled namespace answers with these two in turn
    (
        b"com.microsoft:server-busy",
        "The request was terminated because the namespace contoso is being throttled. Error code : 50009. Please wait "
        "2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions TrackingId:ab",
        Failure.BUSY,
    ),
    (
        b"amqp:internal-error",
        "The service was unable to process the request; please retry the operation. Reference:ab, TrackingId:ab_G9_B2",
        U,
    ),
)


@pytest.mark.spec("W-4")
@pytest.mark.parametrize(("condition", "text", "failure"), BUSY)
def test_recorded_answers_of_a_throttled_namespace(condition: bytes, text: str, failure: Failure) -> None:
    inner = amqp_errors.MessageException(condition, description=text)
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert classify(error).failure is failure
    assert classify(error).retry_after == (2.0 if failure is Failure.BUSY else None)


@pytest.mark.spec("P-3")
def test_an_exception_being_handled_by_the_application_is_not_taken_for_the_cause() -> None:
    handled = FileNotFoundError("the application's own")
    handled.__context__ = ssl.SSLCertVerificationError(1, "and what came before it")
    error = sdk_errors.ServiceBusConnectionError(message="the connection failed")
    error.__context__ = handled
    assert classify(error, handled=handled).failure is U
    assert classify(error).failure is CONF  # unknown to be the application's, it would be the cause


@pytest.mark.spec("P-3", "F-41")
def test_a_certificate_error_handled_by_the_sdk_when_it_gave_up_is_the_cause() -> None:
    """The SDK raises without `from`, so only ``__context__`` has the cause."""
    error = sdk_errors.ServiceBusConnectionError(message="the connection failed")
    error.__context__ = amqp_errors.AMQPConnectionError(amqp_errors.ErrorCondition.SocketError)
    error.__context__.__context__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    classification = classify(error, Phase.OPENING)
    assert (classification.failure, classification.is_of_namespace) == (CONF, True)


@pytest.mark.spec("P-3")
def test_an_overridden_classification_keeps_ambiguity_and_link_state() -> None:
    table = classify(broken_connection(ConnectionResetError()))
    other = overrule(table, CALLER)
    assert (other.failure, other.is_ambiguous, other.is_link_in_doubt) == (CALLER, True, False)
    assert "classifier" in other.why
    assert overrule(table, U) is table


@pytest.mark.spec("P-3")
def test_a_failing_classifier_is_logged_and_the_table_decides(core_with: Callable[..., BaseRuntime]) -> None:
    error = sdk_errors.MessageSizeExceededError()

    def broken(error: Exception) -> Failure | None:
        raise RuntimeError("a bug of the application")

    told: list[object] = []
    core = core_with(classifier=broken)
    core.dispatcher.subscribe(told.append)
    assert core.failures.classify(error, Phase.SENDING).failure is CALLER
    core = core_with(classifier=lambda error: "nonsense")
    core.dispatcher.subscribe(told.append)
    assert core.failures.classify(error, Phase.SENDING).failure is CALLER
    assert [type(event) for event in told] == [ClassifierFailed, ClassifierFailed]
    assert "a bug of the application" in told[0].cause  # type: ignore[attr-defined]
    assert core_with(classifier=lambda error: None).failures.classify(error, Phase.SENDING).failure is CALLER
    assert core_with(classifier=lambda error: U).failures.classify(error, Phase.SENDING).failure is U


@pytest.mark.spec("Q-16")
def test_a_timeout_shorter_than_a_partition_reassignment_is_warned_of(
    core_with: Callable[..., BaseRuntime], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="sbpair")
    core_with(operation_timeout=timedelta(seconds=15.1))
    assert not caplog.records
    core_with(operation_timeout=timedelta(seconds=15))
    assert "operation_timeout" in caplog.text


@pytest.fixture
def core_with() -> Callable[..., BaseRuntime]:
    """Create the core that both clients share, with these options."""

    def make(**options: object) -> BaseRuntime:
        def unused() -> Any:
            raise AssertionError("no administration is needed here")

        settings = PairedNamespaceOptions(**options)  # type: ignore[arg-type]
        sides = (SdkNamespace(role, f"{role}.example", SdkSettings()) for role in Side)
        return BaseRuntime(*sides, "contoso", settings, unused, None)

    return make


@pytest.mark.spec("R-66")
def test_errors_that_are_each_others_context_are_judged_all_the_same() -> None:
    error = sdk_errors.ServiceBusConnectionError(message="lost")
    cause = ssl.SSLCertVerificationError("expired")
    error.__context__, cause.__context__ = cause, error
    assert classify(error).failure is CONF
    handled, other = ValueError("one"), ValueError("two")
    handled.__context__, other.__context__ = other, handled
    lost = sdk_errors.ServiceBusConnectionError(message="lost")
    lost.__context__ = handled
    assert classify(lost, Phase.SENDING, handled).failure is U


@pytest.mark.spec("R-66", "R-80")
@pytest.mark.parametrize(
    ("status", "failure", "why"),
    [
        (0, U, "the service answered with status 0"),
        (399, U, "the service answered with status 399"),
        (400, CONF, "the request was refused with status 400"),
        (401, CONF, "the credential was refused with status 401"),
        (404, CONF, "the entity does not exist"),
        (408, U, "the service answered with status 408"),
        (409, U, "the service answered with status 409"),
        (429, U, "the service answered with status 429"),
        (499, CONF, "the request was refused with status 499"),
        (500, U, "the service answered with status 500"),
        (503, U, "the service answered with status 503"),
    ],
)
def test_each_http_status_has_its_class_and_text(status: int, failure: Failure, why: str) -> None:
    error = HttpResponseError(message="told by the test")
    error.status_code = status or None
    judged = classify(error)
    assert (judged.failure, judged.why) == (failure, why)
    if status:
        judged = classify(refused_token(status))
        assert (judged.failure, judged.why) == (failure, why.replace("request", "credential"))
        assert judged.is_missing is (status == 404)
        assert judged.is_of_namespace is (status in (401, 403))


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    "kind",
    [kind for kind in BY_CLASS if not issubclass(kind, (sdk_errors.ServiceBusError, HttpResponseError))],
    ids=lambda kind: kind.__name__,
)
def test_a_nested_error_is_judged_by_its_class_however_it_is_wrapped(
    kind: type[BaseException],
) -> None:
    inner = kind.__new__(kind)
    for carry in ("__cause__", "__context__", "inner_exception", "inner_error"):
        outer = sdk_errors.ServiceBusError("told by the test")
        setattr(outer, carry, inner)
        assert classify(outer, Phase.SENDING).failure is BY_CLASS[kind][0], carry


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("condition", sorted(BY_CONDITION))
def test_the_meaning_of_a_condition_depends_on_the_operation(condition: str, phase: Phase) -> None:
    error = raised_for(condition)
    judged = classify(error, phase)
    of_sending = classify(error, Phase.SENDING)
    if phase is Phase.ENCODING:
        assert (judged.failure, judged.is_local) == (CALLER, True)
        assert judged.why == "the message cannot be encoded"
        return
    assert not judged.is_local
    if phase is Phase.OPENING:
        assert judged.failure is not CALLER
        assert not judged.is_ambiguous
        assert not judged.is_link_in_doubt
    else:
        is_timeout = isinstance(error, sdk_errors.OperationTimeoutError)
        assert judged.is_link_in_doubt is (judged.failure in (U, CONF) and not is_timeout)
    assert judged.is_missing is (condition in ("amqp:not-found", "amqp:resource-deleted"))
    assert judged.is_too_large is of_sending.is_too_large is (condition == "amqp:link:message-size-exceeded")
    assert judged.retry_after is None


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("failure", list(Failure))
def test_a_classifier_replaces_the_class_and_its_consequences(failure: Failure) -> None:
    judged = classify(raised_for("com.microsoft:server-busy"))
    lost = classify(sdk_errors.ServiceBusConnectionError(message="lost"))
    again = overrule(lost, failure)
    if failure is lost.failure:
        assert again is lost
        return
    assert again.failure is failure
    assert again.why == f"the classifier says {failure.value}: {lost.why}"
    assert again.is_link_in_doubt is (failure is CONF)
    assert again.is_ambiguous is lost.is_ambiguous
    assert overrule(judged, failure).retry_after is None


class CredentialUnavailableError(ClientAuthenticationError):
    """As that of azure-identity, which is optional."""


def answered(status: int, text: str = "x") -> ClientAuthenticationError:
    error = ClientAuthenticationError(text)
    error.status_code = status
    return error


@pytest.mark.spec("H-30")
@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (CredentialUnavailableError("no managed identity endpoint answered"), True),
        (answered(503), True),
        (answered(429), True),
        (answered(400, "AADSTS90033: a transient error has occurred"), True),
        (answered(401, "AADSTS7000215: invalid client secret"), False),
        (answered(400, "AADSTS700016: no such application"), False),
        (ClientAuthenticationError("wrong secret"), False),
    ],
)
def test_an_unavailable_credential_is_an_outage_and_a_wrong_one_a_refusal(
    error: ClientAuthenticationError, passes: bool
) -> None:
    wrapped = sdk_errors.ServiceBusAuthenticationError(message="x", error=error)
    for each in (error, wrapped):
        found = classify(each, Phase.OPENING)
        assert found.failure is (Failure.UNAVAILABLE if passes else Failure.CONFIGURATION)
        assert found.is_of_namespace is not passes
    assert isinstance(
        classify_credential_error(error), TokenUnavailableError if passes else CredentialRefusedError
    )


@pytest.mark.spec("R-108")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_shortage_of_this_machine_is_no_evidence_about_the_service(number: int) -> None:
    error = sdk_errors.ServiceBusConnectionError(message="failed")
    error.__cause__ = OSError(number, "no more")
    judged = classify(error)
    assert (judged.is_own, judged.is_shortage) == (True, True)
    error.__cause__ = OSError(errno.ECONNREFUSED, "refused")
    judged = classify(error)
    assert (judged.is_own, judged.is_shortage) == (False, False)


@pytest.mark.spec("R-108")
def test_a_name_that_is_not_resolved_for_want_of_a_descriptor_is_no_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = sdk_errors.ServiceBusConnectionError(message="failed")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    assert not classify(error).is_own

    def no_more(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", no_more)
    assert classify(error).is_own
