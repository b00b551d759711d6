"""A send returns by its deadline under every fault that makes the SDK hang or fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair import BacklogUnavailableError, EntityState, StoredIn
from sbpair.broker.faults import AnswerModified, AnswerReleased, Effect, RejectWith, TwoFieldError, Withhold
from tests.pair.outage.conftest import Either
from tests.stopwatch import Stopwatch

OVERRUN, OVERRUN_OF_ASYNCIO = 1.5, 0.5  # seconds after the deadline that a sender may take


def overrun(either: Either) -> float:
    return OVERRUN_OF_ASYNCIO if either.is_asyncio else OVERRUN


@contextmanager
def an_outage(pairing, kind: str) -> Iterator[None]:
    pairing.primary.take_down(kind)
    try:
        yield
    finally:
        pairing.primary.bring_up()


TROUBLE: dict[str, Callable[..., object]] = {
    "refused port": lambda pairing: an_outage(pairing, "refuse"),
    "reset": lambda pairing: an_outage(pairing, "reset"),
    "silent peer": lambda pairing: an_outage(pairing, "silent"),
    "withheld ack": lambda pairing: pairing.primary.fault("orders", Withhold()),
    "released": lambda pairing: pairing.primary.fault("orders", AnswerReleased()),
    "modified": lambda pairing: pairing.primary.fault("orders", AnswerModified()),
    "2-field error": lambda pairing: pairing.primary.fault("orders", TwoFieldError()),
    "internal error": lambda pairing: pairing.primary.fault("orders", RejectWith("amqp:internal-error")),
}


@pytest.mark.slow
@pytest.mark.spec("G-18", "P-3", "F-23", "F-24", "F-25")
@pytest.mark.parametrize("is_open", [False, True], ids=["cold link", "open link"])
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_a_send_that_cannot_end_is_ended_at_its_deadline_and_raised(
    either: Either, trouble: str, is_open: bool
) -> None:
    client = either.client(interval=60, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    if is_open:
        await either.send(sender, ServiceBusMessage("before"), timeout=60)
    with TROUBLE[trouble](either):
        with Stopwatch() as watch, pytest.raises(ServiceBusError):
            await either.send(sender, ServiceBusMessage("lost"), timeout=5)
        assert watch.seconds < 5 + overrun(either)
    assert client.state_of("orders") is EntityState.SUSPECT


@pytest.mark.slow
@pytest.mark.spec("G-18", "P-3", "F-25")
@pytest.mark.parametrize("is_open", [False, True], ids=["cold link", "open link"])
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_with_an_interval_of_zero_the_hanging_message_is_parked_by_its_deadline(
    either: Either, parks_early: None, trouble: str, is_open: bool
) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    if is_open:
        await either.send(sender, ServiceBusMessage("before"), timeout=60)
    with TROUBLE[trouble](either):
        with Stopwatch() as watch:
            receipt = await either.send(sender, ServiceBusMessage("parked"), timeout=60)
        assert watch.seconds < 60 + overrun(either)
        assert receipt.stored_in is StoredIn.BACKLOG
        assert 1 <= sum(either.parked()) <= 1 + receipt.ambiguous  # a backlog may answer too late


@pytest.mark.spec("G-18", "F-25")
def test_many_hanging_sends_leave_no_thread_behind(pairing) -> None:
    sender = pairing.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    with an_outage(pairing, "silent"):
        for _ in range(10):
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("lost"), timeout=0.05)


@pytest.mark.spec("A-1", "G-18", "F-25")
def test_many_sends_to_a_silent_primary_are_parked_and_leave_no_thread_behind(pairing) -> None:
    client = pairing.client(interval=60, attempt_timeout=timedelta(seconds=0.5))
    sender = client.get_queue_sender("orders")
    with an_outage(pairing, "silent"):
        stored = {sender.send_messages(ServiceBusMessage("parked")).stored_in for _ in range(10)}
    assert stored == {StoredIn.BACKLOG}


@pytest.mark.slow
@pytest.mark.spec("G-7")
@pytest.mark.parametrize(
    ("fault", "is_ambiguous"), [(Withhold(), True), (RejectWith("amqp:internal-error"), False)], ids=str
)
async def test_the_receipt_says_whether_a_copy_may_be_on_the_primary(
    either: Either, parks_early: None, fault: Effect, is_ambiguous: bool
) -> None:
    sender = either.client(interval=0, ping=60).get_queue_sender("orders")
    with either.primary.fault("orders", fault):
        receipt = await either.send(sender, ServiceBusMessage("which"), timeout=60)
    assert receipt.stored_in is StoredIn.BACKLOG
    assert receipt.ambiguous is is_ambiguous


@pytest.mark.slow
@pytest.mark.spec("G-19", "F-35")
async def test_with_both_namespaces_silent_the_send_ends_in_time_and_names_every_cause(
    either: Either, parks_early: None
) -> None:
    sender = either.client(interval=0, ping=60).get_queue_sender("orders")
    either.primary.take_down("silent")
    either.secondary.take_down("silent")
    with Stopwatch() as watch, pytest.raises(BacklogUnavailableError) as raised:
        await either.send(sender, ServiceBusMessage("nowhere"), timeout=5)
    assert watch.seconds < 5 + overrun(either)
    assert len(raised.value.causes) >= 2
    assert raised.value.__cause__ is raised.value.causes[0]
    either.primary.bring_up()
    either.secondary.bring_up()


@pytest.mark.spec("F-33")
async def test_a_primary_that_was_restarted_between_two_sends_is_not_suspected(either: Either) -> None:
    client = either.client(interval=0)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("one"))
    either.primary.take_down("refuse")
    either.primary.bring_up()
    receipt = await either.send(sender, ServiceBusMessage("two"))
    assert receipt.stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-2")
def test_the_error_of_a_first_failure_is_the_sdks_own(pairing) -> None:
    sender = pairing.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    with an_outage(pairing, "refuse"), pytest.raises(ServiceBusConnectionError):
        sender.send_messages(ServiceBusMessage("lost"))


@pytest.mark.slow
@pytest.mark.spec("R-166")
def test_a_start_against_a_silent_primary_waits_a_second_for_its_link(pairing) -> None:
    client = pairing.client(interval=60)
    sender = client.get_queue_sender("orders")
    with an_outage(pairing, "silent"):
        with Stopwatch() as watch:
            sender.__enter__()
        assert watch.seconds < 1 + OVERRUN
