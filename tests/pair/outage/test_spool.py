"""Both namespaces are down: messages wait in the spool and are delivered in order once one is back."""

from __future__ import annotations

import os
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair import (
    BacklogUnavailableError,
    EntityState,
    PairedServiceBusClient,
    SpoolError,
    SpoolFullError,
    StoredIn,
)
from sbpair.broker.faults import RejectWith
from sbpair.broker.testing.ledger import Ledger
from sbpair.events import (
    BacklogsCreated,
    EntityRecovered,
    MessageSpooled,
    PairingEvent,
    SendRaised,
    SpooledMessageRefused,
    SpoolReplayed,
)
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.pairing.shared.threads import Workers
from sbpair.pair.pairing.shared.waiting import StillWaitingError
from sbpair.pair.pairing.spool.store import Spool
from tests.children import exit_code_of
from tests.pair.outage.conftest import Either
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch
from tests.waiting import PATIENCE, wait_until

OVERRUN = 1.5  # seconds after the deadline that the blocking sender may take


@pytest.fixture
def spool(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def take_down(pairing) -> None:
    pairing.wait_for(BacklogsCreated)
    pairing.primary.take_down("refuse")
    pairing.secondary.take_down("refuse")


def emptied(client) -> None:
    """Wait until the spool is empty."""
    wait_until(lambda: client.count_spooled() == 0)


@pytest.mark.spec("G-1", "F-35")
def test_messages_refused_by_both_sides_are_spooled_and_come_home_in_order(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=1, spool=spool)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    take_down(pairing)
    receipt = sender.send_messages(ServiceBusMessage("0", message_id="m-0"))
    assert (receipt.stored_in, receipt.backlog, receipt.message_ids) == (StoredIn.SPOOL, None, ("m-0",))
    for n in range(1, 100):
        assert sender.send_messages(ServiceBusMessage(str(n))).stored_in is StoredIn.SPOOL
    assert client.count_spooled("ORDERS") == client.count_spooled() == 100
    pairing.primary.bring_up()
    emptied(client)
    assert sender.send_messages(ServiceBusMessage("after")).stored_in is StoredIn.PRIMARY
    expected = ["before", *map(str, range(100)), "after"]
    assert pairing.bodies(pairing.primary, "orders") == [text.encode() for text in expected]
    assert sum(event.count for event in pairing.told if isinstance(event, MessageSpooled)) == 100
    replayed = [event for event in pairing.told if isinstance(event, SpoolReplayed)]
    assert sum(event.count for event in replayed) == 100
    assert (replayed[-1].path, replayed[-1].backlog, replayed[-1].left) == ("orders", None, 0)
    pairing.secondary.bring_up()


@pytest.mark.spec("G-1")
def test_without_a_spool_a_send_refused_by_both_sides_raises(pairing) -> None:
    sender = pairing.client(interval=0).get_queue_sender("orders")
    take_down(pairing)
    with pytest.raises(BacklogUnavailableError):
        sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.spec("P-2")
@pytest.mark.parametrize("policy", ["redirect", "raise"])
def test_with_a_spool_a_healthy_primary_gets_everything_and_the_policy_decides_the_first_failure(
    pairing, spool, policy: str
) -> None:
    client = pairing.client(interval=60, spool=spool, suspect_policy=policy)
    sender = client.get_queue_sender("orders")
    assert sender.send_messages(ServiceBusMessage("one")).stored_in is StoredIn.PRIMARY
    assert (
        sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")]).stored_in
        is StoredIn.PRIMARY
    )
    take_down(pairing)
    if policy == "redirect":
        assert sender.send_messages(ServiceBusMessage("spooled")).stored_in is StoredIn.SPOOL
        assert client.count_spooled() == 1
        return
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(ServiceBusMessage("raised"))
    assert client.count_spooled() == 0


@pytest.mark.spec("P-5")
def test_when_only_a_backlog_is_back_the_spool_is_parked_there_in_order(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=60, backlogs=1, spool=spool)
    take_down(pairing)
    sender = client.get_queue_sender("orders")
    for n in range(80):
        sender.send_messages(ServiceBusMessage(str(n)))
    pairing.secondary.bring_up()
    emptied(client)
    assert sender.send_messages(ServiceBusMessage("80")).stored_in is StoredIn.BACKLOG
    bodies = pairing.bodies(pairing.secondary, "contoso/x-servicebus-transfer/0")
    assert bodies == [str(n).encode() for n in range(81)]
    assert client.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.slow
def test_newer_messages_queue_behind_spooled_ones_though_the_primary_is_back(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=1, spool=spool)
    sender = client.get_queue_sender("orders")
    take_down(pairing)
    sender.send_messages(ServiceBusMessage("0"))
    with pairing.primary.fault("orders", RejectWith("com.microsoft:entity-disabled")):
        pairing.primary.bring_up()
        client.mark_path_healthy("orders")
        assert sender.send_messages(ServiceBusMessage("1")).stored_in is StoredIn.SPOOL
        assert (
            sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")]).stored_in is StoredIn.SPOOL
        )
        pairing.primary.create_queue("invoices")
        assert (
            client.get_queue_sender("invoices").send_messages(ServiceBusMessage("x")).stored_in
            is StoredIn.PRIMARY
        )
        assert (
            client.count_spooled("orders") == 4
        )  # the secondary is down: a replay may have begun to park there
    emptied(client)
    assert sender.send_messages(ServiceBusMessage("4")).stored_in is StoredIn.PRIMARY
    assert pairing.bodies(pairing.primary, "orders") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.spec("G-1", "G-5")
def test_the_next_client_replays_the_remaining_spool_before_any_send(pairing, spool) -> None:
    with pairing.client(interval=0, ping=60, spool=spool) as client:
        take_down(pairing)
        client.get_queue_sender("Orders").send_messages(
            [ServiceBusMessage(str(n), message_id=f"m-{n}", subject="s") for n in range(5)]
        )
    pairing.primary.bring_up()
    pairing.secondary.bring_up()
    emptied(pairing.client(interval=0, ping=60, spool=spool))
    with (
        ServiceBusClient.from_connection_string(pairing.primary.connection_string) as receiving,
        receiving.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
    ):
        messages = receiver.receive_messages(5, max_wait_time=30)
        while len(messages) < 5:
            messages += receiver.receive_messages(5, max_wait_time=30)
    assert [(m.message_id, m.subject) for m in messages] == [(f"m-{n}", "s") for n in range(5)]


@pytest.mark.spec("F-35")
def test_a_full_spool_raises_an_error_with_the_first_cause_and_accepts_nothing(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=60, spool=spool, spool_max_messages=3)
    sender = client.get_queue_sender("orders")
    take_down(pairing)
    sender.send_messages([ServiceBusMessage("0"), ServiceBusMessage("1")])
    with pytest.raises(SpoolFullError, match=r"holds 2 of . messages"):
        sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
    other = client.get_queue_sender("invoices")
    with pytest.raises(SpoolFullError) as raised:
        other.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
    assert isinstance(raised.value.__cause__, ServiceBusConnectionError)
    assert client.count_spooled() == 2
    pairing.primary.bring_up()
    client.mark_path_healthy("orders")
    emptied(client)
    assert pairing.bodies(pairing.primary, "orders") == [b"0", b"1"]


def test_a_second_client_on_one_spool_is_refused_until_the_first_closes(pairing, spool) -> None:
    first = pairing.client(spool=spool)
    with pytest.raises(SpoolError, match=f"in use by process {os.getpid()}"):
        pairing.client(spool=spool)
    first.close()
    pairing.client(spool=spool)


@pytest.mark.spec("P-22")
def test_a_message_no_broker_accepts_is_set_aside_and_the_others_continue(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=1, spool=spool)
    sender = client.get_queue_sender("orders")
    take_down(pairing)
    for n in range(3):
        sender.send_messages(ServiceBusMessage(str(n)))
    sender.send_messages(ServiceBusMessage(bytes(300 * 1024), message_id="huge"))
    for n in range(3, 6):
        sender.send_messages(ServiceBusMessage(str(n)))
    pairing.primary.bring_up()  # the primary only: with a backlog available, what waits would be parked there
    emptied(client)
    refused = pairing.wait_for(SpooledMessageRefused)
    assert (refused.path, refused.message_id) == ("orders", "huge")
    assert "MessageSizeExceededError" in refused.cause
    assert pairing.bodies(pairing.primary, "orders") == [str(n).encode() for n in range(6)]
    pairing.secondary.bring_up()


def test_a_message_that_cannot_be_encoded_is_refused_by_the_spool_too(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=60, spool=spool)
    sender = client.get_queue_sender("orders")
    take_down(pairing)
    sender.send_messages(ServiceBusMessage("first"))
    with pytest.raises(ServiceBusError, match="cannot be encoded"):
        sender.send_messages(ServiceBusMessage("x", application_properties={"n": 2**40}))
    assert client.count_spooled() == 1


@pytest.mark.spec("G-18", "F-35")
def test_with_both_sides_silent_a_message_is_spooled_by_its_deadline(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=60, spool=spool, assume_backlogs_exist=True)
    sender = client.get_queue_sender("orders")
    pairing.primary.take_down("silent")
    pairing.secondary.take_down("silent")
    with Stopwatch() as watch:
        receipt = sender.send_messages(ServiceBusMessage("x"), timeout=2)
    assert watch.seconds < 2 + OVERRUN
    assert receipt.stored_in is StoredIn.SPOOL
    pairing.primary.bring_up()
    pairing.secondary.bring_up()


@pytest.mark.spec("F-19")
def test_a_forked_child_leaves_the_spool_to_its_parent(pairing, spool) -> None:
    client = pairing.client(interval=0, ping=60, timeout=3, spool=spool)
    sender = client.get_queue_sender("orders")
    take_down(pairing)
    sender.send_messages(ServiceBusMessage("parent"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sender.send_messages(ServiceBusMessage("child"))
        except BacklogUnavailableError:
            status = 0
        finally:
            os._exit(status)
    assert exit_code_of(child) == 0
    assert sender.send_messages(ServiceBusMessage("parent again")).stored_in is StoredIn.SPOOL
    assert client.count_spooled() == 2


@pytest.mark.slow
@pytest.mark.spec("G-1", "G-2", "G-3", "F-35")
def test_cutting_both_sides_under_load_loses_nothing_and_keeps_every_senders_order(pairing, spool) -> None:
    pairing.primary.create_queue("invoices")
    client = pairing.client(interval=0, ping=1, backlogs=1, spool=spool)
    ledger, stop = Ledger(), threading.Event()
    stored_in: dict[int, StoredIn] = {}

    def work(number: int) -> None:
        entity, n = ("orders", "invoices")[number % 2], 0
        with client.get_queue_sender(entity) as sender:
            while not stop.is_set():
                key = f"{number}:{n:06}"
                ledger.attempted(key)
                stored_in[number] = sender.send_messages(ServiceBusMessage(key, message_id=key)).stored_in
                ledger.acknowledged(key)
                n += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(stored_in) == len(threads))
    for spooled in (100, 200):
        take_down(pairing)
        wait_until(lambda spooled=spooled: count_of(pairing.told) >= spooled)  # under load for a while
        pairing.primary.bring_up()
        wait_until(
            lambda: set(stored_in.values()) == {StoredIn.PRIMARY}
        )  # caught up although no sender paused
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    emptied(client)
    pairing.secondary.bring_up()
    bodies = [
        body.decode() for name in ("orders", "invoices") for body in pairing.bodies(pairing.primary, name)
    ]
    parked = [body.decode() for body in pairing.bodies(pairing.secondary, "contoso/x-servicebus-transfer/0")]
    ledger.received_all(bodies + parked)
    report = ledger.check()
    assert report.is_conserved, report
    assert count_of(pairing.told) >= 200
    for number in range(4):
        firsts = list(dict.fromkeys(body for body in bodies if body.startswith(f"{number}:")))
        assert firsts == sorted(firsts)
    assert sum(pairing.parked(1)) == 0  # the secondary was down whenever the primary was down


def count_of(told: list[PairingEvent]) -> int:
    """Count the receipts of spooled messages."""
    return sum(event.count for event in list(told) if isinstance(event, MessageSpooled))


class StalledDisk:
    """Make spool writes wait until ``answers`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, real = threading.Event(), Spool._transact

        def transact(*given: object) -> None:
            assert self.answers.wait(PATIENCE)
            real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(Spool, "_transact", transact)


async def with_both_down(either: Either, spool: str) -> tuple[Any, Any]:
    """Create a client and a sender of "orders", and take both sides down once its backlogs exist."""
    client = either.client(interval=0, ping=1, spool=spool)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("first"))
    await either.heard(BacklogsCreated)
    either.primary.take_down("refuse")
    either.secondary.take_down("refuse")
    return client, sender


@pytest.mark.slow
@pytest.mark.spec("G-18", "G-7", "F-89")
async def test_a_stalled_disk_delays_no_send_and_its_late_writes_come_home(
    either: Either, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = StalledDisk(monkeypatch)
    _, sender = await with_both_down(either, spool)
    with Stopwatch() as watch, pytest.raises(SpoolError, match="may be in it nevertheless"):
        await either.send(sender, ServiceBusMessage("x", message_id="m"), timeout=5)
    assert watch.seconds < 5 + OVERRUN
    assert (await either.heard(SendRaised)).ambiguous
    disk.answers.set()
    either.secondary.bring_up()
    either.primary.bring_up()
    assert (await either.heard(SpoolReplayed)).message_ids == ("m",)


@pytest.mark.spec("G-18", "G-7")
async def test_a_message_is_spooled_while_every_other_thread_of_its_client_hangs(
    either: Either, spool: str
) -> None:
    client, sender = await with_both_down(either, spool)
    answers = threading.Event()
    try:
        with suppress(StillWaitingError):
            while True:
                workers_of(client).start("hangs", lambda: answers.wait(PATIENCE))
        receipt = await either.send(sender, ServiceBusMessage("x"))
        assert receipt.stored_in is StoredIn.SPOOL
    finally:
        answers.set()


def workers_of(client: PairedServiceBusClient) -> Workers:
    """The threads that pings and replays of a client run on."""
    runtime = runtime_of(client)
    return runtime._threads._workers if hasattr(runtime, "_threads") else runtime._workers


@pytest.mark.slow
@pytest.mark.spec("G-18", "G-7")
async def test_a_client_closes_while_its_spool_disk_stalls_and_the_file_is_freed_later(
    either: Either, spool: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = StalledDisk(monkeypatch)
    client, sender = await with_both_down(either, spool)
    with pytest.raises(SpoolError, match="may be in it nevertheless"):
        await either.send(sender, ServiceBusMessage("x", message_id="m"), timeout=5)
    await either.done(client.close())
    assert not disk.answers.is_set()
    assert f"the spool {spool} stays in use until it does" in caplog.text
    with pytest.raises(SpoolError, match="in use"):
        Spool(spool, primary=None)
    disk.answers.set()
    await either.until(lambda: is_free(spool))
    with closing(Spool(spool, primary=None)) as left:
        assert left.waiting("orders") == 1


def is_free(spool: str) -> bool:
    """Whether no process uses a spool."""
    try:
        Spool(spool, primary=None).close()
    except SpoolError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.spec("G-18", "G-7")
async def test_late_disk_writes_after_the_recovery_come_home_without_another_send(
    either: Either, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = StalledDisk(monkeypatch)
    _, sender = await with_both_down(either, spool)
    with pytest.raises(SpoolError, match="may be in it nevertheless"):
        await either.send(sender, ServiceBusMessage("x", message_id="m"), timeout=5)
    either.secondary.bring_up()
    either.primary.bring_up()
    await either.heard(EntityRecovered)
    disk.answers.set()
    assert (await either.heard(SpoolReplayed)).message_ids == ("m",)


@pytest.mark.slow
@pytest.mark.spec("A-7", "G-18")
async def test_a_session_waits_for_a_write_that_its_disk_has_not_ended_and_keeps_its_order(
    either: Either, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = StalledDisk(monkeypatch)
    either.primary.create_queue("sessions", requires_session=True)
    for index in range(2):
        either.secondary.create_queue(ordered_backlog_name("contoso", index), requires_session=True)
    client = either.client(interval=0, ping=60, spool=spool, ordering="session", assume_backlogs_exist=True)
    sender = client.get_queue_sender("sessions")

    async def send(number: int, timeout: float = 60.0) -> StoredIn:
        message = ServiceBusMessage("x", message_id=str(number), session_id="s")
        return (await either.send(sender, message, timeout=timeout)).stored_in

    await send(0)
    either.primary.take_down("refuse")
    either.secondary.take_down("refuse")
    with pytest.raises(SpoolError, match="may be in it nevertheless"):
        await send(1, timeout=2.0)
    either.primary.bring_up()
    either.secondary.bring_up()
    client.mark_path_healthy("sessions")
    answering = threading.Timer(0.5, disk.answers.set)
    answering.start()
    assert await send(2) is StoredIn.SPOOL
    answering.join()
    await either.until(lambda: client.count_spooled() == 0)
    assert either.primary.message_ids("sessions") == ["0", "1", "2"]
