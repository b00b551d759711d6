"""With `spool_policy="always"` a send returns when its messages are on disk, and the client sends them from there."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair import (
    BacklogUnavailableError,
    ParkedMessageTooLargeError,
    ReservedPropertyError,
    SpoolFullError,
    StoredIn,
)
from sbpair.events import MessageParked, SpooledMessageRefused
from sbpair.pair.pairing.spool import file, writer
from sbpair.pair.pairing.spool.store import Spool
from tests.pair.outage.conftest import Either
from tests.pair.runtimes import runtime_of

ALWAYS = {"spool_policy": "always", "assume_backlogs_exist": True}


@pytest.fixture
def spool(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


@pytest.fixture(autouse=True)
def backlogs(either: Either) -> None:
    for index in range(2):
        either.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")


def both_down(either: Either) -> None:
    either.primary.take_down("refuse")
    either.secondary.take_down("refuse")


@pytest.mark.spec("A-8")
async def test_every_message_is_accepted_on_disk_and_sent_in_order(either: Either, spool: str) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    for n in range(60):
        receipt = await either.send(sender, ServiceBusMessage(str(n), message_id=f"m-{n}"))
        assert (receipt.stored_in, receipt.message_ids) == (StoredIn.SPOOL, (f"m-{n}",))
    await either.until(lambda: client.count_spooled() == 0)
    assert await either.bodies() == [str(n).encode() for n in range(60)]


@pytest.mark.spec("A-8")
async def test_during_a_primary_outage_spooled_messages_go_to_a_backlog_queue_in_order(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, backlogs=1, **ALWAYS)
    sender = client.get_queue_sender("orders")
    either.primary.take_down("refuse")
    for n in range(30):
        await either.send(sender, ServiceBusMessage(str(n)))
    await either.until(lambda: client.count_spooled() == 0)
    parked = [event for event in either.told if isinstance(event, MessageParked)]
    assert sum(event.count for event in parked) == 30
    assert either.parked(1) == [30]


@pytest.mark.spec("A-8", "A-7")
async def test_an_outage_of_both_sides_raises_nothing_and_messages_leave_on_recovery(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, ping=60, **ALWAYS)
    sender = client.get_queue_sender("orders")
    both_down(either)
    for n in range(300):
        await either.send(sender, ServiceBusMessage(str(n)))
    await either.until(lambda: client.state_of("orders").value == "failed over")
    assert client.count_spooled("orders") == 300
    either.primary.bring_up()  # the next ping would be a minute away
    await either.until(lambda: client.count_spooled() == 0)
    assert await either.bodies() == [str(n).encode() for n in range(300)]
    either.secondary.bring_up()


@pytest.mark.spec("A-8")
async def test_a_message_the_entity_would_refuse_is_refused_at_once_and_not_stored(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("small"))
    await either.until(lambda: client.count_spooled() == 0)
    both_down(either)
    for wrong, kind in (
        (ServiceBusMessage(bytes(300_000)), MessageSizeExceededError),
        (ServiceBusMessage("x", application_properties={"p": "x" * 70_000}), MessageSizeExceededError),
        (ServiceBusMessage("x", application_properties={"n": 2**40}), ServiceBusError),
        (ServiceBusMessage("x", application_properties={"x-ms-path": "y"}), ReservedPropertyError),
        (AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": "i" * 129}), ServiceBusError),
        (AmqpAnnotatedMessage(data_body=b"x", properties={"group_id": "s" * 129}), ServiceBusError),
    ):
        with pytest.raises(kind):
            await either.send(sender, wrong)
    assert client.count_spooled() == 0
    await either.send(sender, ServiceBusMessage("good"))
    assert client.count_spooled() == 1
    either.primary.bring_up()
    await either.until(lambda: client.count_spooled() == 0)
    assert not any(isinstance(event, SpooledMessageRefused) for event in either.told)
    either.secondary.bring_up()


@pytest.mark.spec("A-8")
async def test_a_large_message_is_judged_by_the_entity_while_the_limit_is_unknown(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    with pytest.raises(MessageSizeExceededError):
        await either.send(sender, ServiceBusMessage(bytes(300_000)))
    assert client.count_spooled() == 0


@pytest.mark.spec("A-8", "P-22")
async def test_a_message_too_large_to_park_is_refused_at_once_where_so_configured(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, headroom="refuse", **ALWAYS)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("small"))
    await either.until(lambda: client.count_spooled() == 0)
    with pytest.raises(ParkedMessageTooLargeError):
        await either.send(sender, ServiceBusMessage(bytes(256 * 1024 - 100)))
    assert client.count_spooled() == 0


@pytest.mark.spec("A-8")
async def test_the_first_refused_message_shows_that_an_entity_requires_sessions(
    either: Either, spool: str
) -> None:
    either.primary.create_queue("sessions", requires_session=True)
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("sessions")
    await either.send(
        sender,
        [
            ServiceBusMessage(str(n), session_id=None if n == 7 else f"s{n % 3}", message_id=f"m-{n}")
            for n in range(20)
        ],
    )
    refused = await either.heard(SpooledMessageRefused)
    assert (refused.path, refused.message_id) == ("sessions", "m-7")
    with pytest.raises(ServiceBusError, match="refused a message without a session id"):
        await either.send(sender, ServiceBusMessage("x"))
    await either.until(lambda: client.count_spooled() == 0)
    await either.send(sender, ServiceBusMessage("x", session_id="s0"))
    await either.until(lambda: either.primary.counts("sessions").active == 20)


@pytest.mark.spec("A-8")
async def test_with_a_full_spool_a_send_goes_directly_unless_older_messages_wait(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, spool_max_messages=2, **ALWAYS)
    sender = client.get_queue_sender("orders")
    direct = await either.send(sender, [ServiceBusMessage(str(n)) for n in range(3)])
    assert direct.stored_in is StoredIn.PRIMARY
    both_down(either)
    for n in range(2):
        await either.send(sender, ServiceBusMessage(f"kept {n}"))
    with pytest.raises(SpoolFullError):
        await either.send(sender, ServiceBusMessage("no room"))
    either.primary.bring_up()
    await either.until(lambda: client.count_spooled() == 0)
    assert await either.bodies() == [b"0", b"1", b"2", b"kept 0", b"kept 1"]
    either.secondary.bring_up()


@pytest.mark.spec("A-8")
async def test_a_scheduled_message_gets_its_number_and_can_be_cancelled(either: Either, spool: str) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    at = datetime.now(UTC) + timedelta(hours=1)
    numbers = await either.done(sender.schedule_messages(ServiceBusMessage("later"), at))
    assert isinstance(numbers, list)
    assert numbers[0] > 0
    await either.done(sender.cancel_scheduled_messages(numbers))
    assert either.primary.counts("orders").scheduled == 0


@pytest.mark.spec("A-8")
async def test_a_closing_client_sends_its_accepted_messages(either: Either, spool: str) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    for n in range(20):
        await either.send(sender, ServiceBusMessage(str(n)))
    await either.done(client.close())
    assert len(await either.bodies()) == 20


@pytest.mark.spec("A-8", "G-1")
async def test_a_client_closing_during_an_outage_of_both_sides_keeps_accepted_messages_on_disk(
    either: Either, spool: str
) -> None:
    client = either.client(spool=spool, **ALWAYS)
    sender = client.get_queue_sender("orders")
    both_down(either)
    for n in range(20):
        await either.send(sender, ServiceBusMessage(str(n)))
    await either.done(client.close())
    left = Spool(spool, primary=None)
    assert left.waiting("orders") == 20
    left.close()
    either.primary.bring_up()
    either.secondary.bring_up()


@pytest.mark.spec("R-161")
@pytest.mark.parametrize("policy", ["last_resort", "always"])
async def test_a_client_starts_with_a_full_disk_and_spools_once_there_is_room(
    either: Either,
    spool: str,
    policy: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real, is_full = os.open, True

    def no_room(path: str | Path, *given: int, **named: int | None) -> int:
        if is_full and str(path).startswith(spool):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *given, **named)

    monkeypatch.setattr(file.os, "open", no_room)
    monkeypatch.setattr(writer, "REOPEN", 0.05)
    client = either.client(spool=spool, spool_policy=policy, assume_backlogs_exist=True)
    assert [
        record.levelname for record in caplog.records if "without room in its spool" in record.message
    ] == ["ERROR"]
    sender = client.get_queue_sender("orders")
    assert (await either.send(sender, ServiceBusMessage("up"))).stored_in is StoredIn.PRIMARY
    both_down(either)
    with pytest.raises((BacklogUnavailableError, ServiceBusError), match="No space left"):
        await either.send(sender, ServiceBusMessage("x"))
    is_full = False
    await either.until(lambda: runtime_of(client).spool.takes_messages() is True)
    assert (await either.send(sender, ServiceBusMessage("kept"))).stored_in is StoredIn.SPOOL
    either.primary.bring_up()
    await either.until(lambda: client.count_spooled() == 0)
    assert await either.bodies() == [b"up", b"kept"]
    either.secondary.bring_up()
