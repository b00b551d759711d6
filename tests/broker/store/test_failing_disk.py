"""A full or failing disk: nothing is acknowledged that was not stored (F-89)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError

from sbpair.broker import Broker
from sbpair.broker.entities import QueueDescription, StoredMessage
from sbpair.broker.errors import BrokerError, StoreFailedError
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import ClientError
from tests.broker.store.kept import NOON, SMALL, Kept, contents
from tests.waiting import PATIENCE


def fill_up(kept: Kept) -> None:
    """Make SQLite report a full disk when it needs another page."""
    connection = kept.store.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.mark.spec("F-89")
def test_a_full_disk_releases_the_reserve_and_keeps_accepted_messages(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.commit()
    assert kept.store.has_room()
    give_up = kept.store.directory.release_reserve

    def room_again() -> bool:
        kept.store.connection.execute("PRAGMA max_page_count = 1000000")
        return give_up()

    monkeypatch.setattr(kept.store.directory, "release_reserve", room_again)
    monkeypatch.setattr(kept.store.directory, "_free", lambda: 0)
    fill_up(kept)
    queue.enqueue_all([StoredMessage(bare=b"x" * 3000) for _ in range(10)], NOON)
    kept.store.commit()
    assert not (kept.path / "reserve").exists()
    assert not kept.store.has_room()
    queue.complete(queue.receive(NOON).lock_token, NOON)  # messages can still be settled
    kept.store.commit()
    monkeypatch.undo()
    assert kept.store.has_room()  # with free space, the reserve is allocated again
    assert (kept.path / "reserve").exists()
    kept.reopen()
    assert kept.namespace.queue("orders").counts(NOON).active == 9


@pytest.mark.spec("F-89")
def test_a_failed_commit_is_not_retried_and_keeps_earlier_commits(kept: Kept, tmp_path: Path) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue(StoredMessage(bare=b"first"), NOON)
    kept.store.commit()
    committed = contents(kept.namespace, NOON)
    kept.store.directory.release_reserve()
    fill_up(kept)
    queue.enqueue_all([StoredMessage(bare=b"x" * 3000) for _ in range(10)], NOON)
    with pytest.raises(StoreFailedError, match="Nothing unwritten was acknowledged"):
        kept.store.commit()
    kept.store.connection.execute("PRAGMA max_page_count = 1000000")
    with pytest.raises(StoreFailedError):
        kept.store.commit()
    assert kept.store.has_pending_changes  # answers are held forever
    kept.reopen()
    assert contents(kept.namespace, NOON) == committed


@pytest.mark.spec("F-89")
def test_a_change_that_cannot_be_encoded_is_a_failed_commit(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.commit()
    monkeypatch.setattr(kept.store, "_parts", None)  # fails with an error that is not SQLite's
    queue.enqueue(StoredMessage(bare=b"first"), NOON)
    with pytest.raises(StoreFailedError):
        kept.store.commit()
    monkeypatch.undo()
    assert kept.store.has_pending_changes  # answers are held forever
    with pytest.raises(StoreFailedError):
        kept.store.commit()


@pytest.mark.spec("F-89")
def test_a_full_disk_refuses_sends_and_continues_receives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbpair.broker.store.directory import DataDirectory

    with Broker({"contoso": 0}, data=tmp_path / "data") as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("before"))
                monkeypatch.setattr(DataDirectory, "has_room", lambda *_: False)
                with pytest.raises(
                    ServiceBusQuotaExceededError, match="disk that this namespace is kept on is full"
                ):
                    sender.send_messages(ServiceBusMessage("refused"))
                monkeypatch.undo()
                sender.send_messages(ServiceBusMessage("after"))
            with client.get_queue_receiver("orders") as receiver:
                found = []
                for _ in range(2):
                    (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
                    receiver.complete_message(message)
                    found.append(str(message))
        assert found == ["before", "after"]
        assert contoso.counts("orders").total == 0


@pytest.mark.slow
@pytest.mark.spec("F-89", "G-26")
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_broker_stops_answering_after_a_failed_sync(tmp_path: Path) -> None:
    """strace makes every fdatasync after the first 39 fail with EIO."""
    broker = ["broker", "--namespace", "contoso:0", "--queue", "contoso/orders", "--json"]
    command = [sys.executable, "-m", "sbpair", *broker, "--data", str(tmp_path / "data")]
    inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=40+"]
    process = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", os.devnull, *inject, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        (namespace,) = json.loads(process.stdout.readline())["namespaces"]
        acknowledged = asyncio.run(send_until_it_ends(namespace["connection_string"]))
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 5, said
    assert "could not be written" in said
    assert 0 < acknowledged < 40
    with Broker({"contoso": 0}, data=tmp_path / "data") as again:
        found = again.namespace("contoso").counts("orders").active
    assert acknowledged <= found <= acknowledged + 1  # the send in progress may have been stored


async def send_until_it_ends(connection_string: str) -> int:
    """Send until the connection ends; return how many sends were accepted."""
    connection = await connect(parse(connection_string))
    sender = await connection.open_sender("orders")
    accepted = 0
    try:
        with suppress(ClientError):
            async with asyncio.timeout(PATIENCE):
                while isinstance(await sender.send(Message(body=DataBody((b"x",))).encode()), Accepted):
                    accepted += 1
    finally:
        await connection.close()
    return accepted


@pytest.mark.spec("R-42")
def test_a_disk_full_of_messages_accepts_new_ones_after_removals(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue_all([StoredMessage(bare=b"x" * 3000) for _ in range(100)], NOON)
    kept.store.commit()
    assert kept.store.directory.release_reserve()
    free = [SMALL]  # the space of the reserve: not enough to allocate another
    monkeypatch.setattr(kept.store.directory, "_free", lambda: free[0])
    assert not kept.store.has_room()
    for _ in range(100):
        queue.receive_and_delete(NOON)
    kept.store.commit()
    assert kept.store.has_room()  # within the file
    pages = kept.store.connection.execute("PRAGMA page_count").fetchone()
    queue.enqueue_all([StoredMessage(bare=b"x" * 3000) for _ in range(60)], NOON)
    kept.store.commit()
    assert kept.store.connection.execute("PRAGMA page_count").fetchone() == pages
    free[0] = 0
    assert not kept.store.has_room()  # no space for the write-ahead log


@pytest.mark.spec("F-89")
def test_callbacks_are_refused_by_a_namespace_of_a_failed_broker() -> None:
    said: list[str] = []

    def counts(_: BrokerError) -> None:
        with pytest.raises(BrokerError) as refused:
            broker.namespace("contoso").counts("orders")
        said.append(str(refused.value))

    with Broker({"contoso": 0}, on_failure=counts) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        broker._in_loop(lambda: broker._failed(BrokerError("the disk is gone")))
    assert said == ["A callback of the broker cannot use its namespaces: use them in another thread."]
    assert contoso.counts("orders").active == 0  # after the end, any thread may
