"""The order of a session through failover, drain and recovery, with both clients."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair import BacklogUnavailableError, MixedSessionsError, PairedServiceBusClient, SendReceipt, StoredIn
from sbpair.broker.errors import EntityNotFoundError
from sbpair.broker.faults import Lose, RejectWith, Withhold
from sbpair.events import BacklogsCreated, EntityRecovered, FenceOpened, FenceUnproved
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.syphon import Syphon, SyphonOptions
from tests.children import exit_code_of
from tests.pair.runtimes import runtime_of
from tests.pair.syphon.pair import running
from tests.waiting import PATIENCE, until, wait_until

from .conftest import AsyncPairing, Either, Pairing, options_of

BACKLOGS = 2
ORDERED = [f"contoso/x-servicebus-transfer/ordered/{index}" for index in range(BACKLOGS)]


def numbered(number: int, session: str | None = "s") -> ServiceBusMessage:
    return ServiceBusMessage(str(number), message_id=str(number), session_id=session)


def ordered_client(either: Either, **options: object) -> PairedServiceBusClient:
    return either.client(**{"ordering": "session", "backlogs": BACKLOGS, "timeout": 60.0} | options)  # type: ignore[arg-type]


@pytest.fixture
def sessions(either: Either) -> str:
    """Create a queue on the primary that requires sessions."""
    either.primary.create_queue("sessions", requires_session=True)
    return "sessions"


def syphon_of(either: Either, **options: object) -> Syphon:
    settings = SyphonOptions(
        backlog_queue_count=BACKLOGS,
        primary_namespace_name="contoso",
        ordering="session",
        **options,  # type: ignore[arg-type]
    )
    ends = either.primary.connection_string, either.secondary.connection_string
    return Syphon.from_connection_strings(*ends, options=settings)


def parked(either: Either) -> list[list[str]]:
    """Return the ids of the messages in each ordered backlog queue."""
    found = []
    for name in ORDERED:
        try:
            found.append(either.secondary.message_ids(name))
        except EntityNotFoundError:
            found.append([])
    return found


async def send_all(either: Either, sender: object, numbers: Iterable[int]) -> list[SendReceipt]:
    return [await either.send(sender, numbered(number)) for number in numbers]


async def send_until_home(either: Either, sender: object, number: int) -> int:
    """Send messages one by one until one goes to the primary; return its number."""
    async with asyncio.timeout(60):
        while (await either.send(sender, numbered(number))).stored_in is not StoredIn.PRIMARY:
            number += 1
            await asyncio.sleep(0.01)
    return number


def in_order(last: int) -> list[str]:
    return [str(number) for number in range(1, last + 1)]


@pytest.mark.spec("O-2", "O-4")
async def test_a_session_is_parked_in_one_ordered_queue_until_that_is_empty(
    either: Either, sessions: str
) -> None:
    sender = ordered_client(either).get_queue_sender(sessions)
    assert (await either.send(sender, numbered(1))).stored_in is StoredIn.PRIMARY
    either.primary.take_down("refuse")
    receipts = await send_all(either, sender, (2, 3))
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    receipts += await send_all(either, sender, (4,))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert len({receipt.backlog for receipt in receipts}) == 1
    assert sorted(parked(either)) == [[], ["2", "3", "4"]]
    assert (await either.send(sender, numbered(1, "other"))).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("O-1", "O-4", "O-6", "O-7")
async def test_a_session_arrives_in_order_through_failover_drain_and_return(
    either: Either, sessions: str
) -> None:
    sender = ordered_client(either).get_queue_sender(sessions)
    await send_all(either, sender, (1, 2))
    either.primary.take_down("refuse")
    await send_all(either, sender, (3, 4, 5))
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    async with running(syphon_of(either)):
        last = await send_until_home(either, sender, 6)
    assert either.primary.message_ids(sessions) == in_order(last)
    assert any(isinstance(event, FenceOpened) for event in either.told)
    message = await asyncio.to_thread(third_of, either, sessions)
    assert message == ("3", "s", b"3", {})


def third_of(either: Either, queue: str) -> tuple[object, ...]:
    """Receive the third message of session "s", the first that was parked."""
    with (
        ServiceBusClient.from_connection_string(either.primary.connection_string) as plain,
        plain.get_queue_receiver(queue, session_id="s") as receiver,
    ):
        third = receiver.peek_messages(3)[2]
        return third.message_id, third.session_id, b"".join(third.body), third.application_properties or {}


@pytest.mark.slow
@pytest.mark.spec("O-4")
async def test_a_client_that_starts_parks_until_the_ordered_backlogs_were_seen_empty(
    either: Either, sessions: str
) -> None:
    first = ordered_client(either)
    either.primary.take_down("refuse")
    await send_all(either, first.get_queue_sender(sessions), (1, 2))
    await either.done(first.close())
    either.primary.bring_up()
    sender = ordered_client(either).get_queue_sender(sessions)
    assert (await either.send(sender, numbered(3))).stored_in is StoredIn.BACKLOG
    assert (await either.send(sender, numbered(1, "other"))).stored_in is StoredIn.PRIMARY
    async with running(syphon_of(either)):
        last = await send_until_home(either, sender, 4)
    ids = either.primary.message_ids(sessions)
    ids.remove("1")  # the message of the other session
    assert ids == in_order(last)


@pytest.mark.spec("O-3")
async def test_sends_of_a_session_follow_each_other_in_the_order_of_the_calls(
    either: Either, sessions: str
) -> None:
    sender = ordered_client(either).get_queue_sender(sessions)
    if not either.is_asyncio:
        await send_all(either, sender, range(1, 51))
    else:
        await asyncio.gather(*(either.send(sender, numbered(number)) for number in range(1, 51)))
    assert either.primary.message_ids(sessions) == in_order(50)


@pytest.mark.spec("O-3")
async def test_one_call_with_messages_of_several_sessions_is_refused(either: Either, sessions: str) -> None:
    sender = ordered_client(either).get_queue_sender(sessions)
    for mixed in ([numbered(1), numbered(2, "t")], [numbered(1), numbered(2, None)]):
        with pytest.raises(MixedSessionsError, match="several sessions"):
            await either.send(sender, mixed)
    await either.send(sender, [numbered(1), numbered(2)])
    assert either.primary.message_ids(sessions) == ["1", "2"]


@pytest.mark.spec("O-1")
async def test_messages_without_a_session_are_parked_as_ever(either: Either) -> None:
    sender = ordered_client(either).get_queue_sender("orders")
    assert (await either.send(sender, numbered(1, None))).stored_in is StoredIn.PRIMARY
    either.primary.take_down("refuse")
    receipt = await either.send(sender, numbered(2, None))
    assert receipt.backlog is not None
    assert receipt.backlog < BACKLOGS
    assert sum(either.parked()) == 1


@pytest.mark.spec("O-4")
async def test_without_peek_rights_a_session_stays_parked_and_an_event_says_so(
    either: Either, sessions: str
) -> None:
    sender_only = either.secondary.add_policy("sender", rights=("Send",))
    either.ways = either.ways[0], sender_only
    await make_backlogs(either)
    sender = ordered_client(either, assume_backlogs_exist=True).get_queue_sender(sessions)
    assert (await either.send(sender, numbered(1))).stored_in is StoredIn.BACKLOG
    unproved = await either.heard(FenceUnproved)
    assert isinstance(unproved, FenceUnproved)


async def make_backlogs(either: Either) -> None:
    for name in ORDERED:
        either.secondary.create_queue(name, requires_session=True)


@pytest.mark.spec("O-5")
async def test_a_session_does_not_change_its_queue_when_that_fails(either: Either, sessions: str) -> None:
    sender = ordered_client(either).get_queue_sender(sessions)
    assert (await either.send(sender, numbered(1))).stored_in is StoredIn.PRIMARY
    either.primary.take_down("refuse")
    receipt = await either.send(sender, numbered(2))
    assert receipt.backlog is not None
    broken = RejectWith("amqp:internal-error")
    with (
        either.secondary.fault(ORDERED[receipt.backlog - BACKLOGS], broken),
        pytest.raises(BacklogUnavailableError),
    ):
        await either.send(sender, numbered(3))
    assert (await either.send(sender, numbered(4))).backlog == receipt.backlog
    assert sorted(parked(either)) == [[], ["2", "4"]]


@pytest.mark.slow
@pytest.mark.spec("O-8")
async def test_an_unknown_outcome_closes_its_connection_before_the_next_message(
    aio_pairing: AsyncPairing,
) -> None:
    """A second send on the same link ends with it, well before its own deadline."""
    aio_pairing.primary.create_queue("sessions", requires_session=True)
    client = aio_pairing.client_of(
        aio_pairing.primary.connection_string,
        aio_pairing.secondary.connection_string,
        options=options_of(interval=60, timeout=60, ordering="session", suspect_policy="raise"),
        retry=RetryPolicy(),
    )
    sender = client.get_queue_sender("sessions")
    await sender.send_messages(numbered(1))
    with aio_pairing.primary.fault("sessions", Withhold(), times=2) as fault:
        other = asyncio.ensure_future(sender.send_messages(numbered(1, "other")))
        while not fault.hits:
            await asyncio.sleep(0.01)
        with pytest.raises(ServiceBusError):
            await sender.send_messages(numbered(2), timeout=5.0)
        async with asyncio.timeout(30):
            receipt = await other
    assert receipt.ambiguous
    assert receipt.stored_in is StoredIn.PRIMARY


@pytest.mark.spec("O-4", "F-21")
async def test_a_parked_send_that_is_cancelled_does_not_keep_its_session_fenced(
    aio_pairing: AsyncPairing,
) -> None:
    aio_pairing.primary.create_queue("sessions", requires_session=True)
    client = aio_pairing.client(timeout=60.0, ordering="session")
    sender = client.get_queue_sender("sessions")
    client.hold("sessions")
    with aio_pairing.secondary.fault(None, Lose(), operation="send", times=1) as fault:
        cancelled = asyncio.create_task(sender.send_messages(numbered(1)))  # it keeps its traceback
        await until(lambda: fault.hits)
        cancelled.cancel()
        await asyncio.wait((cancelled,))
    client.mark_path_healthy("sessions")
    assert (await sender.send_messages(numbered(2))).stored_in is StoredIn.PRIMARY
    assert cancelled.cancelled()


@pytest.mark.spec("O-4")
def test_a_parked_send_that_is_interrupted_does_not_keep_its_session_fenced(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    pairing.primary.create_queue("sessions", requires_session=True)
    client = pairing.client(timeout=60.0, ordering="session")
    sender = client.get_queue_sender("sessions")
    client.hold("sessions")
    with monkeypatch.context() as patched:
        patched.setattr("sbpair.pair.pairing.blocking.runtime._send", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            sender.send_messages(numbered(1))
    client.mark_path_healthy("sessions")
    assert sender.send_messages(numbered(2)).stored_in is StoredIn.PRIMARY
    assert kept.tb is not None


@pytest.mark.spec("O-5")
async def test_the_spool_keeps_the_order_of_a_session_past_the_fence(
    either: Either, sessions: str, tmp_path: Path
) -> None:
    client = ordered_client(either, spool=tmp_path / "spool")
    sender = client.get_queue_sender(sessions)
    await send_all(either, sender, (1,))
    either.primary.take_down("refuse")
    await send_all(either, sender, (2, 3))
    either.secondary.take_down("refuse")
    spooled = await send_all(either, sender, (4, 5))
    assert {receipt.stored_in for receipt in spooled} == {StoredIn.SPOOL}
    either.secondary.bring_up()
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    async with running(syphon_of(either)):
        last = await send_until_home(either, sender, 6)
        await either.until(lambda: not client.count_spooled())
    firsts = list(dict.fromkeys(either.primary.message_ids(sessions)))
    assert firsts == in_order(last)


@pytest.mark.spec("O-3")
async def test_a_send_is_reported_before_the_next_of_its_session_begins(
    either: Either, sessions: str
) -> None:
    """A journal therefore lists the sends of a session in order, whichever threads made them."""
    sender = ordered_client(either).get_queue_sender(sessions)
    for given in (
        numbered(1),
        [numbered(2), numbered(3)],
        ServiceBusMessage("4", session_id="s").raw_amqp_message,
    ):
        await either.send(sender, given)
    free = []
    runtime_of(sender).on_receipt = lambda path, receipt, messages: free.append(not len(sender._turns))
    for given in (
        numbered(5),
        [numbered(6), numbered(7)],
        ServiceBusMessage("8", session_id="s").raw_amqp_message,
    ):
        await either.send(sender, given)

    assert free == [False, False, False]


@pytest.mark.spec("O-3", "F-19")
def test_a_forked_child_does_not_wait_for_a_send_of_its_parent(pairing: Pairing) -> None:
    pairing.primary.create_queue("sessions", requires_session=True)
    client = pairing.client(interval=60, timeout=60, ordering="session", suspect_policy="raise")
    pairing.wait_for(BacklogsCreated)  # no background thread is busy during the fork
    sender = client.get_queue_sender("sessions")
    sender.send_messages(numbered(1))
    ended: list[Exception] = []

    def work() -> None:
        try:
            sender.send_messages(numbered(2))
        except Exception as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    with pairing.primary.fault("sessions", Withhold(), times=1) as fault:
        worker.start()
        wait_until(lambda: fault.hits)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                stored_in = sender.send_messages(numbered(3), timeout=PATIENCE / 3).stored_in
                is_shared = client.get_queue_sender("sessions")._turns is sender._turns
                status = 0 if stored_in is StoredIn.PRIMARY and is_shared else 2
            except OperationTimeoutError:
                status = 3
            finally:
                os._exit(status)
        assert exit_code_of(child) == 0
    assert worker.is_alive()
    client.close()
    worker.join(PATIENCE)
    assert len(ended) == 1
    assert "3" in pairing.primary.message_ids("sessions")
