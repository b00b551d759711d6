"""Which error means what? Every class and every condition the SDK knows is judged."""

from __future__ import annotations

import inspect
import logging
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

from sbpair import ClassifierFailed, Failure, PairedNamespaceOptions
from sbpair.pairing.address import SdkSettings, Side
from sbpair.pairing.bond import Role
from sbpair.pairing.core import Core
from sbpair.pairing.outcome import BY_CLASS, BY_CONDITION, Phase, judge, overruled

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
    """What the SDK raises when a message is rejected with this condition."""
    inner = amqp_errors.MessageException(condition.encode(), description="told by the test")
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert isinstance(error, Exception)
    return error


def refused_token(status: int, custom_endpoint: str | None = None) -> Exception:
    """What the SDK raises when $cbs answers with this status."""
    inner = amqp_errors.TokenAuthFailure(status, b"told by the test")
    error = PyamqpTransport.create_servicebus_exception(
        logging.getLogger("test"), inner, custom_endpoint_address=custom_endpoint
    )
    assert isinstance(error, Exception)
    return error


def not_found(kind: type[amqp_errors.AMQPException]) -> Exception:
    """What the SDK raises when a connection, or a link, is ended with this condition."""
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
def test_class_and_condition_agree_on_what_a_rejection_means(condition: str) -> None:
    assert judge(raised_for(condition)).failure is BY_CONDITION[condition][0]


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
    assert judge(raised_for(condition)).failure is failure


@pytest.mark.spec("F-41")
@pytest.mark.parametrize("custom_endpoint", [None, "sb://gateway:5671"])
@pytest.mark.parametrize(
    ("status", "failure"), [(400, CONF), (401, CONF), (403, CONF), (404, CONF), (500, U), (503, U), (0, U)]
)
def test_a_refused_token_is_judged_by_its_status_whatever_the_sdk_dresses_it_as(
    status: int, failure: Failure, custom_endpoint: str | None
) -> None:
    judgement = judge(refused_token(status, custom_endpoint), Phase.OPENING)
    assert judgement.failure is failure
    assert judgement.is_missing == (status == 404)


@pytest.mark.spec("P-50")
@pytest.mark.parametrize(
    ("status", "is_of_namespace"), [(401, True), (403, True), (404, False), (503, False)]
)
def test_a_refused_token_speaks_for_the_whole_namespace_unless_an_entity_is_missing(
    status: int, is_of_namespace: bool
) -> None:
    assert judge(refused_token(status), Phase.OPENING).is_of_namespace is is_of_namespace


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
def test_what_one_entity_or_an_outage_says_is_not_said_of_the_namespace(
    error: Exception, is_of_namespace: bool
) -> None:
    assert judge(error, Phase.OPENING).is_of_namespace is is_of_namespace


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
def test_a_broken_connection_is_judged_by_what_broke_it(cause: Exception, failure: Failure) -> None:
    assert judge(broken_connection(cause), Phase.OPENING).failure is failure
    assert judge(cause, Phase.OPENING).failure is failure


@pytest.mark.spec("P-3", "F-41")
@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        (ServiceRequestError("no route to the token endpoint"), U),
        (ClientAuthenticationError("wrong secret"), CONF),
        (ValueError("Value supplied for int invalid"), CALLER),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), CALLER),
        (struct.error("required argument is not an integer"), CALLER),
        (OverflowError("too large"), CALLER),
    ],
)
def test_what_the_sdk_wraps_unseen_is_judged_by_what_is_inside(cause: Exception, failure: Failure) -> None:
    wrapped = sdk_errors.ServiceBusError(f"Handler failed: {cause}.", error=cause)
    assert judge(wrapped).failure is failure


@pytest.mark.spec("P-3")
def test_an_unreadable_answer_while_opening_is_never_the_messages_fault() -> None:
    garbage = sdk_errors.ServiceBusError("Handler failed", error=TypeError("'NoneType' is not subscriptable"))
    assert judge(garbage, Phase.OPENING).failure is U
    assert judge(garbage, Phase.SENDING).failure is CALLER


@pytest.mark.spec("P-3")
@pytest.mark.parametrize("condition", ["amqp:not-allowed", "amqp:invalid-field"])
def test_a_link_that_the_service_refuses_in_words_is_no_outage(condition: str) -> None:
    assert judge(raised_for(condition), Phase.OPENING).failure is CONF


@pytest.mark.spec("G-7")
def test_a_send_is_ambiguous_when_the_answer_was_lost_and_not_when_it_was_refused() -> None:
    assert judge(sdk_errors.OperationTimeoutError()).is_ambiguous
    assert judge(broken_connection(ConnectionResetError())).is_ambiguous
    assert not judge(broken_connection(ConnectionResetError()), Phase.OPENING).is_ambiguous
    assert not judge(raised_for("amqp:internal-error")).is_ambiguous


@pytest.mark.spec("F-33")
def test_a_timeout_is_not_tried_again_but_a_lost_connection_is() -> None:
    assert judge(broken_connection(ConnectionResetError())).is_link_in_doubt
    assert not judge(sdk_errors.OperationTimeoutError()).is_link_in_doubt


@pytest.mark.spec("P-22")
def test_a_message_too_large_is_known_by_class_and_by_condition() -> None:
    assert judge(sdk_errors.MessageSizeExceededError()).is_too_large
    assert judge(raised_for("amqp:link:message-size-exceeded")).is_too_large


@pytest.mark.spec("P-3")
def test_an_administration_error_is_judged_by_its_status() -> None:
    error = HttpResponseError("told by the test")
    for status, failure in ((503, U), (403, CONF), (400, CONF)):
        error.status_code = status
        assert judge(error).failure is failure


@pytest.mark.spec("F-40")
def test_a_busy_service_may_say_in_words_how_long_to_wait() -> None:
    inner = amqp_errors.MessageException(
        b"com.microsoft:server-busy",
        description="Throttled, code 50009. Please wait 14 seconds and try again.",
    )
    error = PyamqpTransport.create_servicebus_exception(logging.getLogger("test"), inner)
    assert judge(error).retry_after == 14.0
    assert judge(raised_for("com.microsoft:server-busy")).retry_after is None


@pytest.mark.spec("P-3")
def test_what_the_application_was_handling_is_not_taken_for_the_cause() -> None:
    handled = KeyError("the application's own")
    handled.__context__ = ValueError("and what came before it")
    error = sdk_errors.ServiceBusConnectionError(message="the connection failed")
    error.__context__ = handled
    assert judge(error, handled=handled).failure is U
    assert judge(error).failure is CALLER  # unknown to be the application's, it would be the cause


@pytest.mark.spec("P-3")
def test_an_overruled_judgement_keeps_what_is_known_of_the_message_and_the_link() -> None:
    table = judge(broken_connection(ConnectionResetError()))
    other = overruled(table, CALLER)
    assert (other.failure, other.is_ambiguous, other.is_link_in_doubt) == (CALLER, True, False)
    assert "classifier" in other.why
    assert overruled(table, U) is table


@pytest.mark.spec("P-3")
def test_a_classifier_that_fails_is_told_and_the_table_judges(core_with: Callable[..., Core]) -> None:
    error = sdk_errors.MessageSizeExceededError()

    def broken(error: Exception) -> Failure | None:
        raise RuntimeError("a bug of the application")

    told: list[object] = []
    core = core_with(classifier=broken)
    core.hub.subscribe(told.append)
    assert core.judge(error, Phase.SENDING).failure is CALLER
    core = core_with(classifier=lambda error: "nonsense")
    core.hub.subscribe(told.append)
    assert core.judge(error, Phase.SENDING).failure is CALLER
    assert [type(event) for event in told] == [ClassifierFailed, ClassifierFailed]
    assert "a bug of the application" in told[0].cause  # type: ignore[attr-defined]
    assert core_with(classifier=lambda error: None).judge(error, Phase.SENDING).failure is CALLER
    assert core_with(classifier=lambda error: U).judge(error, Phase.SENDING).failure is U


@pytest.mark.spec("Q-16")
def test_a_timeout_that_a_reassignment_can_use_up_is_warned_of(
    core_with: Callable[..., Core], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="sbpair")
    core_with(operation_timeout=timedelta(seconds=15.1))
    assert not caplog.records
    core_with(operation_timeout=timedelta(seconds=15))
    assert "operation_timeout" in caplog.text


@pytest.fixture
def core_with() -> Callable[..., Core]:
    """What both skins have in common, with these options."""

    def make(**options: object) -> Core:
        def unused() -> Any:
            raise AssertionError("no administration is needed here")

        settings = PairedNamespaceOptions(**options)  # type: ignore[arg-type]
        sides = (Side(role, f"{role}.example", SdkSettings()) for role in Role)
        return Core(*sides, "contoso", settings, unused, None)

    return make
