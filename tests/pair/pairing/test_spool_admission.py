"""What an entity is known to refuse."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair import ParkedMessageTooLargeError
from sbpair.pair.envelope.copies import raw
from sbpair.pair.pairing.request.headroom import SMALLEST_LIMIT, Headroom, encoded_size
from sbpair.pair.pairing.request.request import prepare
from sbpair.pair.pairing.spool.admission import REMEMBERED, Admission

pytestmark = pytest.mark.spec("A-8")

NO_SESSION = ServiceBusError("The SessionId was not set on a message", condition="amqp:not-allowed")


def check(admission: Admission, message: ServiceBusMessage, now: float = 0.0) -> None:
    prepared = prepare(message, "orders")
    admission.check("orders", prepared, encoded_size(raw(prepared)), None, now)


def admission(*, refuses_unparkable: bool = False) -> Admission:
    return Admission(Headroom(), refuses_unparkable=refuses_unparkable)


def test_the_size_limit_is_the_one_the_link_announced() -> None:
    of_premium = admission()
    assert of_premium.is_in_doubt("orders", SMALLEST_LIMIT + 1)
    assert not of_premium.is_in_doubt("orders", SMALLEST_LIMIT)
    with pytest.raises(MessageSizeExceededError, match="size limit is 262144"):
        check(of_premium, ServiceBusMessage(bytes(300_000)))
    of_premium.linked("Orders", None)
    of_premium.linked("Orders", 1_048_576)
    assert not of_premium.is_in_doubt("orders", SMALLEST_LIMIT + 1)
    check(of_premium, ServiceBusMessage(bytes(300_000)))
    with pytest.raises(MessageSizeExceededError, match="size limit is 1048576"):
        check(of_premium, ServiceBusMessage(bytes(1_048_576)))


def test_application_properties_have_a_separate_limit() -> None:
    of_premium = admission()
    of_premium.linked("orders", 1_048_576)
    with pytest.raises(MessageSizeExceededError, match="without its body"):
        check(
            of_premium,
            ServiceBusMessage("x", application_properties={str(n): "x" * 30_000 for n in range(3)}),
        )


def test_an_unparkable_message_is_refused_where_so_configured() -> None:
    nearly = ServiceBusMessage(bytes(SMALLEST_LIMIT - 100))
    check(admission(), nearly)
    with pytest.raises(ParkedMessageTooLargeError):
        check(admission(refuses_unparkable=True), nearly)


def test_a_session_is_required_for_a_minute_after_a_refusal_for_its_absence() -> None:
    known = admission()
    known.refused("Orders", prepare(ServiceBusMessage("x"), "orders"), NO_SESSION, 100.0)
    with pytest.raises(ServiceBusError, match="without a session id a moment ago"):
        check(known, ServiceBusMessage("x"), 100.0 + REMEMBERED - 1)
    check(known, ServiceBusMessage("x", session_id="s"), 101.0)
    check(known, ServiceBusMessage("x"), 100.0 + REMEMBERED)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (ServiceBusMessage("x", session_id="s"), NO_SESSION),
        (ServiceBusMessage("x"), ServiceBusError("not that", condition="amqp:not-allowed")),
        (ServiceBusMessage("x"), ServiceBusError("a session", condition="com.microsoft:argument-error")),
    ],
)
def test_other_refusals_say_nothing_about_the_next_message(
    message: ServiceBusMessage, error: ServiceBusError
) -> None:
    known = admission()
    known.refused("orders", prepare(message, "orders"), error, 100.0)
    check(known, ServiceBusMessage("x"), 101.0)
