"""Options that decide about a failing send: busy, full, classified and probed, with both clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import (
    BacklogUnavailableError,
    EntityState,
    Failure,
    ParkedMessageTooLargeError,
    PartlyParkedError,
    StoredIn,
)
from sbpair.broker.faults import RejectWith
from sbpair.events import (
    BacklogWithdrawn,
    ClassifierFailed,
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    HeadroomShort,
    LinkProbed,
    MessageParked,
    PairingEvent,
    PingSent,
    SendRaised,
)
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.request.headroom import encoded_size
from sbpair.pair.pairing.request.request import SendRequest
from tests.pair.runtimes import runtime_of


@pytest.mark.spec("F-40", "P-3")
@pytest.mark.parametrize("policy", ["redirect", "raise"])
async def test_a_primary_that_stays_busy_is_left_where_so_configured(either, policy: str) -> None:
    client = either.client(
        interval=0, ping=60, failover_on_busy_after=timedelta(seconds=0.3), suspect_policy=policy
    )
    sender, receipt = client.get_queue_sender("orders"), None
    with either.primary.fault("orders", RejectWith("com.microsoft:server-busy")):
        started = time.monotonic()
        while client.state_of("orders") is not EntityState.FAILED_OVER:
            assert time.monotonic() - started < 60
            try:
                receipt = await either.send(sender, ServiceBusMessage("x"), timeout=5)
            except ServiceBusServerBusyError:
                assert policy == "raise"
    assert receipt.stored_in is StoredIn.BACKLOG
    assert time.monotonic() - started >= 0.3
    assert (await either.heard(EntityFailedOver)).cause == "the service is busy"


@pytest.mark.spec("F-44")
async def test_a_full_primary_spills_where_so_configured_and_stays_healthy(either) -> None:
    client = either.client(interval=0, spill_on_quota=True)
    sender = client.get_queue_sender("orders")
    with either.primary.fault("orders", RejectWith("amqp:resource-limit-exceeded")):
        assert (await either.send(sender, ServiceBusMessage("spilled"))).stored_in is StoredIn.BACKLOG
    assert client.state_of("orders") is EntityState.HEALTHY
    assert (await either.send(sender, ServiceBusMessage("straight"))).stored_in is StoredIn.PRIMARY
    assert client.pings_sent == 0
    assert sum(either.parked()) == 1


@pytest.mark.spec("P-3")
async def test_a_custom_classifier_overrides_the_table(either) -> None:
    asked: list[Exception] = []

    def classifier(error: Exception) -> Failure | None:
        asked.append(error)
        return Failure.UNAVAILABLE if isinstance(error, ServiceBusAuthenticationError) else None

    client = either.client(interval=0, ping=60, classifier=classifier)
    receipt = await either.send(client.get_queue_sender("not-there"), ServiceBusMessage("x"))
    assert receipt.stored_in is StoredIn.BACKLOG
    assert client.state_of("not-there") is EntityState.FAILED_OVER
    assert isinstance(asked[0], ServiceBusAuthenticationError)


@pytest.mark.spec("P-3")
async def test_a_raising_classifier_is_logged_and_affects_no_send(either) -> None:
    def classifier(error: Exception) -> Failure | None:
        raise LookupError("a bug of the application")

    client = either.client(interval=0, ping=60, classifier=classifier)
    either.primary.take_down("refuse")
    receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert receipt.stored_in is StoredIn.BACKLOG
    assert "a bug of the application" in (await either.heard(ClassifierFailed)).cause


@pytest.mark.spec("P-30", "P-33", "P-34")
async def test_a_link_that_opens_brings_the_entity_home_without_a_message(either) -> None:
    client = either.client(interval=0, ping=1, probe="link")
    sender = client.get_queue_sender("orders")
    either.primary.take_down("refuse")
    assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
    await either.heard(LinkProbed)
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    assert (await either.send(sender, ServiceBusMessage("home"))).stored_in is StoredIn.PRIMARY
    assert client.pings_sent == 0
    assert not [event for event in either.told if isinstance(event, PingSent)]
    assert await either.bodies() == [b"home"]


@pytest.mark.spec("P-3", "G-12")
async def test_an_exception_the_application_is_handling_does_not_affect_the_classification(either) -> None:
    sender = either.client(interval=0, ping=60).get_queue_sender("orders")
    assert (await either.send(sender, ServiceBusMessage("straight"))).stored_in is StoredIn.PRIMARY
    with either.primary.fault("orders", RejectWith("amqp:internal-error", "no")):
        try:
            {}["not there"]
        except KeyError:
            receipt = await either.send(sender, ServiceBusMessage("from a handler"))
    assert receipt.stored_in is StoredIn.BACKLOG


def many(count: int, size: int = 40_000) -> list[ServiceBusMessage]:
    """Create messages of which at most six fit in a batch."""
    return [ServiceBusMessage("x" * size, message_id=str(number)) for number in range(count)]


@contextmanager
def failing_after_the_first_piece(either, backlog: int) -> Iterator[None]:
    """Let a backlog queue refuse all but the first piece of a split batch."""
    path, real = f"contoso/x-servicebus-transfer/{backlog}", SendRequest.chunks

    with ExitStack() as fault:

        def chunks(self: SendRequest, maker: object, number: int) -> Iterator[object]:
            for count, piece in enumerate(real(self, maker, number)):  # type: ignore[arg-type]
                if count == 1 and number == backlog:
                    fault.enter_context(either.secondary.fault(path, RejectWith("amqp:internal-error")))
                yield piece

        with patch.object(SendRequest, "chunks", chunks):
            yield


@pytest.mark.spec("F-80", "P-22", "P-5")
async def test_a_list_split_over_two_backlogs_keeps_its_order_and_the_receipt_names_them(
    either,
) -> None:
    client = either.client(interval=0, ping=60)
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    own = (await either.send(sender, ServiceBusMessage("first"))).backlog  # this picks the backlog
    with failing_after_the_first_piece(either, own):
        receipt = await either.send(sender, many(9))
    assert receipt.stored_in is StoredIn.BACKLOG
    assert [place.backlog for place in receipt.locations] == [own, 1 - own]
    assert [number for place in receipt.locations for number in place.message_ids] == list(
        receipt.message_ids
    )
    told = [event for event in either.told if isinstance(event, MessageParked)][1:]
    assert [(event.backlog, event.count) for event in told] == [
        (place.backlog, len(place.message_ids)) for place in receipt.locations
    ]
    assert sum(either.parked()) == 10


@pytest.mark.spec("F-80", "P-22")
@pytest.mark.parametrize("is_batch", [False, True])
async def test_the_error_of_a_partly_parked_call_says_where_each_message_is(either, is_batch: bool) -> None:
    client = either.client(interval=0, ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    batch = await either.done(sender.create_message_batch())
    client.hold("orders")
    messages = many(6, 43_600) if is_batch else many(9)
    for message in messages if is_batch else ():
        batch.add_message(message)
    assert (await either.send(sender, ServiceBusMessage("first"))).backlog == 0
    with (
        failing_after_the_first_piece(either, 0),
        pytest.raises(PartlyParkedError, match="were not accepted") as caught,
    ):
        await either.send(sender, batch if is_batch else messages)
    (place,) = caught.value.locations
    assert place.backlog == 0
    assert [*place.message_ids, *caught.value.unaccepted] == [str(number) for number in range(len(messages))]
    assert isinstance(caught.value.__cause__, BacklogUnavailableError)
    assert either.parked(1) == [1 + len(place.message_ids)]


@pytest.mark.spec("F-80", "P-50")
async def test_the_error_of_a_partly_parked_call_whose_side_closed_says_where_each_message_is(
    either,
) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    client.hold("orders")
    own = (await either.send(sender, ServiceBusMessage("first"))).backlog

    def close(event: PairingEvent) -> None:
        if isinstance(event, BacklogWithdrawn):
            assert not runtime_of(client).sides.closed(Side.SECONDARY)  # the primary stays open

    client.on_event(close)
    with failing_after_the_first_piece(either, own), pytest.raises(PartlyParkedError) as caught:
        await either.send(sender, many(9))
    (place,) = caught.value.locations
    assert place.backlog == own
    assert [*place.message_ids, *caught.value.unaccepted] == [str(number) for number in range(9)]
    assert "secondary side of the paired client is closed" in str(caught.value.__cause__)
    (raised,) = [event for event in either.told if isinstance(event, SendRaised)]
    assert list(raised.message_ids) == list(caught.value.unaccepted)


def of_size(size: int) -> ServiceBusMessage:
    """Create a message of exactly ``size`` encoded bytes."""
    rest = encoded_size(ServiceBusMessage("x" * 1000, message_id="m").raw_amqp_message) - 1000
    return ServiceBusMessage("x" * (size - rest), message_id="m")


LIMIT = 256 * 1024


@pytest.mark.spec("P-22", "F-78")
async def test_a_message_too_large_to_park_is_sent_and_reported(either) -> None:
    client = either.client(interval=0, ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    for message in (of_size(LIMIT - 1000), of_size(LIMIT)):
        assert (await either.send(sender, message)).stored_in is StoredIn.PRIMARY
    (short,) = [event for event in either.told if isinstance(event, HeadroomShort)]
    assert (short.path, short.message_id, short.limit) == ("orders", "m", LIMIT)
    assert short.size > LIMIT
    client.hold("orders")
    await either.send(sender, of_size(LIMIT - 1000))
    with pytest.raises(ParkedMessageTooLargeError):  # what was told is true
        await either.send(sender, of_size(LIMIT))


@pytest.mark.spec("P-22", "F-78")
async def test_a_message_that_could_not_be_parked_is_refused_where_the_options_say_so(either) -> None:
    client = either.client(interval=0, ping=60, backlogs=1, headroom="refuse")
    sender = client.get_queue_sender("orders")
    assert (await either.send(sender, of_size(LIMIT - 1000))).stored_in is StoredIn.PRIMARY
    for refused in (of_size(LIMIT), [of_size(LIMIT)]):
        with pytest.raises(ParkedMessageTooLargeError, match=f"smaller limit of the pair is {LIMIT}"):
            await either.send(sender, refused)
    assert client.state_of("orders") is EntityState.HEALTHY
    assert len(await either.bodies()) == 1


@pytest.mark.spec("R-84")
async def test_properties_that_could_not_be_parked_are_refused_where_the_options_say_so(either) -> None:
    client = either.client(interval=0, ping=60, backlogs=1, headroom="refuse")
    sender = client.get_queue_sender("orders")

    def of(size: int) -> ServiceBusMessage:
        return ServiceBusMessage(
            "x", application_properties={"a": "x" * 30_000, "b": "x" * 30_000, "c": "x" * size}
        )

    with pytest.raises(ParkedMessageTooLargeError, match="of which the service accepts 65536"):
        await either.send(sender, of(5455))  # the primary would take it
    assert (await either.send(sender, of(4000))).stored_in is StoredIn.PRIMARY
    client.fail_over("orders")
    assert (await either.send(sender, of(4000))).stored_in is StoredIn.BACKLOG


@pytest.mark.spec("P-22")
async def test_with_headroom_off_no_message_is_checked(either) -> None:
    sender = either.client(interval=0, headroom="off").get_queue_sender("orders")
    assert (await either.send(sender, of_size(LIMIT))).stored_in is StoredIn.PRIMARY
    assert not [event for event in either.told if isinstance(event, HeadroomShort)]


@pytest.mark.spec("P-22")
async def test_a_smaller_limit_of_the_secondary_is_learned_from_the_first_large_message(either) -> None:
    either.secondary.create_queue("contoso/x-servicebus-transfer/0", max_message_size_in_kilobytes=64)
    client = either.client(interval=0, ping=60, backlogs=1, headroom="refuse")
    sender = client.get_queue_sender("orders")

    async def send_until_refused() -> None:
        async with asyncio.timeout(60):
            while (await either.send(sender, of_size(LIMIT - 1000))).stored_in is StoredIn.PRIMARY:
                await asyncio.sleep(0.02)

    with pytest.raises(ParkedMessageTooLargeError):
        await send_until_refused()


@pytest.mark.spec("F-88", "G-12")
@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_wall_clock_jump_neither_hastens_nor_delays_a_failover(either, hours: int) -> None:
    client = either.client(interval=1.5, ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("straight"))
    started, real, real_ns = time.monotonic(), time.time, time.time_ns
    with either.primary.fault("orders", RejectWith("amqp:internal-error")):
        assert (await either.send(sender, ServiceBusMessage("early"))).stored_in is StoredIn.BACKLOG
        assert client.state_of("orders") is EntityState.SUSPECT
        with (
            patch("time.time", lambda: real() + hours * 3600),
            patch("time.time_ns", lambda: real_ns() + hours * 3600 * 10**9),
        ):
            await either.heard(EntityFailedOver)
            assert 1.5 <= time.monotonic() - started < 600  # not an hour, and not at once
        # Back in time: tokens are dated by the wall clock, and must be.
        assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG


@pytest.mark.spec("R-28")
async def test_a_callback_that_fails_an_entity_over_leaves_no_observer_with_an_older_state(either) -> None:
    client = either.client(interval=60, ping=60)
    observed: list[PairingEvent] = []

    def act(event: PairingEvent) -> None:
        if isinstance(event, EntitySuspected):
            client.fail_over("orders")

    client.on_event(act)
    client.on_event(observed.append)
    either.primary.take_down("refuse")
    with suppress(ServiceBusError):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    states = [type(event) for event in observed if isinstance(event, EntitySuspected | EntityFailedOver)]
    assert states == [EntitySuspected, EntityFailedOver]
    assert client.state_of("orders") is EntityState.FAILED_OVER
