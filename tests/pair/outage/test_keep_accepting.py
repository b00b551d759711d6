"""A sender with the default options keeps accepting while its primary is away, silent, busy or half down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
)

from sbpair import (
    BacklogUnavailableError,
    EntityState,
    PairedServiceBusClient,
    PairedServiceBusSender,
    SendReceipt,
    StoredIn,
)
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import RejectWith, Throttle, Withhold
from sbpair.events import BacklogsCreated, EntityFailedOver, EntitySuspected, SendRaised
from tests.pair.outage.conftest import Either
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch
from tests.waiting import PATIENCE

INTERNAL = RejectWith("amqp:internal-error")
LATER = datetime.now(UTC) + timedelta(days=1)


def told(either: Either, *kinds: type) -> list[object]:
    return [event for event in either.told if isinstance(event, kinds)]


async def sent(either: Either, sender: PairedServiceBusSender, count: int) -> list[SendReceipt]:
    """Send so many messages, one after the other."""
    return [await either.send(sender, ServiceBusMessage(str(number))) for number in range(count)]


def places(receipts: list[SendReceipt]) -> list[StoredIn]:
    return [receipt.stored_in for receipt in receipts]


async def ready(either: Either, **options: object) -> PairedServiceBusClient:
    """A client whose backlog queues exist."""
    client = either.client(**{"interval": 60, "ping": 60} | options)  # type: ignore[arg-type]
    if either.is_asyncio:
        runtime_of(client).bind()
    await either.heard(BacklogsCreated)
    return client


# --- a message that the primary does not take is parked


@pytest.mark.spec("A-1", "P-3")
@pytest.mark.parametrize("how", ["refuse", "reset", "silent"])
async def test_every_message_of_the_first_minute_of_an_outage_is_parked_and_comes_home(
    either: Either, how: str
) -> None:
    client = await ready(either, attempt_timeout=timedelta(seconds=1))
    sender = client.get_queue_sender("orders")
    assert places(await sent(either, sender, 3)) == [StoredIn.PRIMARY] * 3
    either.primary.take_down(how)
    receipts = await sent(either, sender, 20)
    assert places(receipts) == [StoredIn.BACKLOG] * 20
    assert client.state_of("orders") is EntityState.SUSPECT
    assert told(either, EntitySuspected)
    assert not told(either, EntityFailedOver, SendRaised)
    either.primary.bring_up()
    await either.done(client.close())
    assert (await either.syphon().drain()).forwarded == 20
    copies = either.primary.counts("orders").active - 23
    assert 0 <= copies <= sum(receipt.ambiguous for receipt in receipts)


@pytest.mark.spec("A-1", "P-3")
@pytest.mark.parametrize("how", ["refuse", "silent"])
async def test_once_the_primary_is_back_messages_go_there_again_without_a_failover(
    either: Either, how: str
) -> None:
    client = await ready(either, attempt_timeout=timedelta(seconds=0.5))
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    either.primary.take_down(how)
    assert places(await sent(either, sender, 1)) == [StoredIn.BACKLOG]
    either.primary.bring_up()
    await until_home(either, sender)
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not told(either, EntityFailedOver, SendRaised)
    assert client.pings_sent == 0


async def until_home(either: Either, sender: PairedServiceBusSender) -> None:
    """Send until the primary takes a message."""
    started = time.monotonic()
    while (await either.send(sender, ServiceBusMessage("x"))).stored_in is not StoredIn.PRIMARY:
        assert time.monotonic() - started < PATIENCE


def disabled(primary: NamespaceControl) -> ServiceBusMessage:
    primary.update_queue("orders", replace(primary.description("orders"), status="Disabled"))
    return ServiceBusMessage("x")


def too_large(primary: NamespaceControl) -> ServiceBusMessage:
    return ServiceBusMessage(bytes(2 * 1024 * 1024))


def deleted(primary: NamespaceControl) -> ServiceBusMessage:
    primary.delete_queue("orders")
    return ServiceBusMessage("x")


@pytest.mark.spec("A-1", "F-42", "F-43")
@pytest.mark.parametrize("is_open", [False, True], ids=["cold link", "open link"])
@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (disabled, MessagingEntityDisabledError),
        (too_large, MessageSizeExceededError),
        (deleted, (MessagingEntityNotFoundError, ServiceBusAuthenticationError)),
    ],
    ids=["disabled", "too large", "not found"],
)
async def test_an_error_that_is_no_outage_is_raised_at_once_and_nothing_is_parked(
    either: Either,
    trouble: Callable[[NamespaceControl], ServiceBusMessage],
    error: type[Exception],
    is_open: bool,
) -> None:
    client = either.client(interval=60, ping=60)
    sender = client.get_queue_sender("orders")
    if is_open:
        await sent(either, sender, 1)
    message = trouble(either.primary)
    with Stopwatch() as watch, pytest.raises(error):
        await either.send(sender, message)
    assert watch.seconds < 1.5
    assert client.state_of("orders") is EntityState.HEALTHY
    assert either.secondary.operations.sends == 0


@pytest.mark.spec("W-5")
@pytest.mark.parametrize("is_down", [False, True], ids=["healthy", "failed over"])
@pytest.mark.parametrize("is_batch", [False, True], ids=["message", "list"])
async def test_a_property_the_service_never_accepts_is_refused_before_sending(
    either: Either, is_down: bool, is_batch: bool
) -> None:
    client = either.client(interval=60, ping=60)
    sender = client.get_queue_sender("orders")
    if is_down:
        either.primary.take_down("refuse")
        client.fail_over("orders")
    for value in ("x" * 32_769, b"x" * 32_769, "\u20ac" * 11_000):
        message = ServiceBusMessage("x", application_properties={"note": value})
        with pytest.raises(MessageSizeExceededError, match="property 'note' has 3"):
            await either.send(sender, [ServiceBusMessage("y"), message] if is_batch else message)
    assert (either.primary.operations.sends, either.secondary.operations.sends) == (0, 0)
    most = ServiceBusMessage("x", application_properties={"note": "x" * 32_700})
    stored = await either.send(sender, most)
    assert stored.stored_in is (StoredIn.BACKLOG if is_down else StoredIn.PRIMARY)


# --- one attempt is bounded


@pytest.mark.slow
@pytest.mark.spec("A-1", "A-2", "B-1")
async def test_the_first_send_to_a_silent_primary_is_parked_within_five_seconds(
    either: Either,
) -> None:
    either.primary.take_down("silent")
    client = await ready(either, timeout=60)
    sender = client.get_queue_sender("orders")
    with Stopwatch() as watch:
        assert places(await sent(either, sender, 1)) == [StoredIn.BACKLOG]
    assert watch.seconds < 5
    with Stopwatch() as watch:
        assert places(await sent(either, sender, 10)) == [StoredIn.BACKLOG] * 10
    assert watch.seconds < 1.5  # one of them asks, over no link that is open
    either.primary.bring_up()


@pytest.mark.slow
@pytest.mark.spec("A-2", "B-1", "B-2")
async def test_an_answer_that_does_not_come_over_an_open_link_is_waited_for_three_seconds(
    either: Either,
) -> None:
    client = await ready(either, timeout=60)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    started = time.monotonic()
    with either.primary.fault("orders", Withhold()), Stopwatch() as watch:
        (receipt,) = await sent(either, sender, 1)
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.BACKLOG, True)
    assert time.monotonic() - started >= 3
    assert watch.seconds < 4


@pytest.mark.spec("A-2", "B-1", "B-2", "G-4", "G-7")
async def test_during_silence_few_messages_become_copies_and_their_receipts_say_so(either: Either) -> None:
    client = await ready(either)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 30)  # it answers fast: half a second is enough
    with either.primary.fault("orders", Withhold()), Stopwatch() as watch:
        receipts = await sent(either, sender, 50)
    assert places(receipts) == [StoredIn.BACKLOG] * 50
    assert sum(either.parked()) == 50  # each once
    copies = either.primary.counts("orders").active - 30
    assert copies == sum(receipt.ambiguous for receipt in receipts)
    assert 1 <= copies <= 2 + watch.seconds  # the first one, and who asks meanwhile
    assert watch.seconds < 5


@pytest.mark.spec("A-2", "P-3", "P-4", "G-12")
async def test_with_the_raising_policy_a_silent_entity_fails_over_one_interval_after_its_first_attempt(
    either: Either,
) -> None:
    client = either.client(
        interval=1,
        ping=60,
        timeout=60,
        suspect_policy="raise",
        slow_after=timedelta(seconds=1),
        attempt_timeout=timedelta(seconds=1),
    )
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    with either.primary.fault("orders", Withhold()):
        started = time.monotonic()
        with Stopwatch() as watch:
            with pytest.raises(OperationTimeoutError):
                await sent(either, sender, 1)
            await either.heard(EntityFailedOver)
        assert time.monotonic() - started >= 2  # the attempt, and the interval
        assert watch.seconds < 4
        assert places(await sent(either, sender, 1)) == [StoredIn.BACKLOG]


# --- where failing is dear, one send at a time asks


@pytest.mark.spec("A-3")
async def test_a_primary_that_rejects_every_message_is_probed_by_few_and_the_others_are_parked(
    either: Either,
) -> None:
    client = await ready(either)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    with either.primary.fault("orders", INTERNAL) as fault, Stopwatch() as watch:
        assert places(await sent(either, sender, 60)) == [StoredIn.BACKLOG] * 60
    assert 6 <= fault.hits <= 8 + watch.seconds  # more than five failed, and then one a second
    await until_home(either, sender)
    assert not told(either, EntityFailedOver, SendRaised)


@pytest.mark.spec("A-3", "B-2")
async def test_a_single_rejection_parks_only_its_message(either: Either) -> None:
    client = await ready(either)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    with either.primary.fault("orders", INTERNAL, times=2):  # over a link that is new, too
        receipts = await sent(either, sender, 20)
    assert places(receipts) == [StoredIn.BACKLOG, *[StoredIn.PRIMARY] * 19]
    assert not any(receipt.ambiguous for receipt in receipts)


# --- busy


@pytest.mark.spec("A-4", "F-40", "H-40")
async def test_a_too_long_busy_pause_parks_the_message_and_never_fails_over(
    either: Either,
) -> None:
    client = await ready(either, interval=0)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    busy = RejectWith("com.microsoft:server-busy", "Please wait 20 seconds and try again.")
    with either.primary.fault("orders", busy) as fault, Stopwatch() as watch:
        assert places(await sent(either, sender, 1)) == [StoredIn.BACKLOG]
    assert fault.hits == 1
    assert watch.seconds < 1
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not told(either, EntitySuspected, EntityFailedOver, SendRaised)


@pytest.mark.spec("A-4", "F-40", "H-40")
async def test_a_busy_primary_is_given_its_pause_and_parked_within_two_thirds_of_the_time(
    either: Either,
) -> None:
    client = await ready(either, interval=0)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    wait = RejectWith("com.microsoft:server-busy", "Please wait 1 seconds and try again.")
    started = time.monotonic()
    with either.primary.fault("orders", wait, times=1):
        assert places(await sent(either, sender, 1)) == [StoredIn.PRIMARY]
    assert time.monotonic() - started >= 1
    with either.primary.fault("orders", wait) as fault, Stopwatch() as watch:
        receipt = await either.send(sender, ServiceBusMessage("parked"), timeout=3)
    assert receipt.stored_in is StoredIn.BACKLOG
    assert fault.hits == 2
    assert watch.seconds < 2.5
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not told(either, EntitySuspected, EntityFailedOver, SendRaised)


@pytest.mark.spec("A-4", "F-40")
async def test_a_busy_primary_is_waited_for_if_the_secondary_cannot_take_the_operation(
    either: Either,
) -> None:
    client = await ready(either)
    sender = client.get_queue_sender("orders")
    await sent(either, sender, 1)
    either.secondary.take_down("refuse")
    with either.primary.fault("orders", Throttle(), times=1):
        receipt = await either.send(sender, ServiceBusMessage("x"), timeout=2.5)
    assert receipt.stored_in is StoredIn.PRIMARY
    either.secondary.bring_up()


# --- B-12: a silent secondary costs a send no time of its own


@pytest.mark.slow
@pytest.mark.spec("B-12", "H-20", "H-24")
@pytest.mark.parametrize("kind", ["single queue", "ordered", "scheduled"])
async def test_sends_of_every_kind_are_raised_at_once_if_the_secondary_is_silent_too(
    either: Either, kind: str
) -> None:
    path = "orders"
    if kind == "ordered":
        path = "sessions"
        either.primary.create_queue(path, requires_session=True)
    client = await ready(either, backlogs=1, ordering="session" if kind == "ordered" else "none")
    sender = client.get_queue_sender(path)
    client.hold(path)
    either.secondary.take_down("silent")

    async def send(timeout: float) -> None:
        message = ServiceBusMessage("x", session_id="s" if kind == "ordered" else None)
        if kind == "scheduled":
            await either.done(sender.schedule_messages(message, LATER, timeout=timeout))
        else:
            await either.send(sender, message, timeout=timeout)

    for _ in range(2):
        with pytest.raises(BacklogUnavailableError):
            await send(1.5)
    with Stopwatch() as watch:
        for _ in range(10):
            with pytest.raises(BacklogUnavailableError):
                await send(10)
    assert watch.seconds < 1.5
    either.secondary.bring_up()
