"""The broker continues while a commit is synced; each answer waits for the commit of its changes (G-26)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities import QueueDescription, StoredMessage
from sbpair.broker.errors import StoreFailedError
from sbpair.broker.store.sqlite import SqliteStore
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from tests.broker.store.kept import NOON, Kept, contents
from tests.waiting import PATIENCE, until

ONE = Message(body=DataBody((b"x",))).encode()


class Gate:
    """A disk whose syncs the test controls: each commit waits here until it may pass."""

    def __init__(self) -> None:
        self.arrived, self.passing = threading.Semaphore(0), threading.Semaphore(0)
        self.is_open = True
        self.failure: sqlite3.Error | None = None

    def pass_(self) -> None:
        if self.is_open:
            return
        self.arrived.release()
        assert self.passing.acquire(timeout=PATIENCE)
        if self.failure is not None:
            raise self.failure

    async def wait(self) -> None:
        """Wait until a commit has arrived."""
        assert await asyncio.to_thread(self.arrived.acquire, timeout=PATIENCE)

    def open(self) -> None:
        self.is_open = True
        self.passing.release(100)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, seal = Gate(), SqliteStore._commit_transaction

    def slowly(store: SqliteStore) -> None:
        gate.pass_()
        seal(store)

    monkeypatch.setattr(SqliteStore, "_commit_transaction", slowly)
    yield gate
    gate.open()


@pytest.fixture
def broker(tmp_path: Path, gate: Gate) -> Iterator[Broker]:
    with Broker({"contoso": 0}, data=tmp_path / "data") as broker:
        broker.namespace("contoso").create_queue("orders")
        yield broker
        gate.open()


@asynccontextmanager
async def connected(broker: Broker, count: int) -> AsyncIterator[list[NamespaceConnection]]:
    text = broker.namespace("contoso").connection_string
    connections = [await connect(parse(text)) for _ in range(count)]
    try:
        yield connections
    finally:
        for each in connections:
            await each.close()


@asynccontextmanager
async def senders(broker: Broker, count: int) -> AsyncIterator[list[Any]]:
    async with connected(broker, count) as connections:
        yield [await each.open_sender("orders") for each in connections]


@pytest.mark.spec("G-26")
async def test_an_answer_waits_for_its_own_commit_and_no_later_one(broker: Broker, gate: Gate) -> None:
    async with senders(broker, 3) as (one, other, third):
        gate.is_open = False
        first = asyncio.create_task(one.send(ONE))
        await gate.wait()
        later = [asyncio.create_task(each.send(ONE)) for each in (other, third)]
        gate.passing.release()
        assert isinstance(await asyncio.wait_for(first, PATIENCE), Accepted)
        await gate.wait()  # both share the next commit, which is not complete
        assert not any(each.done() for each in later)
        gate.open()
        answers = await asyncio.wait_for(asyncio.gather(*later), PATIENCE)
        assert all(isinstance(each, Accepted) for each in answers)


@pytest.mark.spec("G-26")
async def test_a_change_by_a_call_waits_for_the_commit_in_progress(broker: Broker, gate: Gate) -> None:
    async with senders(broker, 1) as (one,):
        gate.is_open = False
        first = asyncio.create_task(one.send(ONE))
        await gate.wait()
        made = asyncio.create_task(asyncio.to_thread(broker.namespace("contoso").create_queue, "invoices"))
        gate.open()
        await asyncio.wait_for(made, PATIENCE)
        assert isinstance(await asyncio.wait_for(first, PATIENCE), Accepted)
    assert broker.namespace("contoso").counts("orders").active == 1


@pytest.mark.spec("R-50")
async def test_a_connection_gets_its_timer_with_its_answers_even_under_continuous_commits(
    broker: Broker, gate: Gate
) -> None:
    server = broker.namespace("contoso").server
    async with connected(broker, 3) as connections:
        one, other, _ = [await each.open_sender("orders") for each in connections]
        watched = list(server.wires.values())[2].client
        await until(lambda: not watched.timers_moved)
        gate.is_open = False
        sends = [asyncio.create_task(one.send(ONE))]
        await gate.wait()
        sends.append(asyncio.create_task(other.send(ONE)))
        await until(lambda: server.is_holding)
        attach = asyncio.create_task(connections[2].open_receiver("orders", lambda event: None))
        await until(lambda: watched.timers_moved)
        gate.passing.release()
        await gate.wait()  # the attach is answered after this commit, and another one follows it
        sends.append(asyncio.create_task(one.send(ONE)))
        await until(lambda: server.is_holding)
        gate.passing.release()
        await gate.wait()
        assert not watched.timers_moved
        gate.open()
        await asyncio.wait_for(asyncio.gather(attach, *sends), PATIENCE)


@pytest.mark.spec("G-26", "F-89")
async def test_a_failed_sync_leaves_its_commit_and_later_ones_unanswered(broker: Broker, gate: Gate) -> None:
    async with senders(broker, 2) as (one, other):
        gate.is_open = False
        first = asyncio.create_task(one.send(ONE))
        await gate.wait()
        second = asyncio.create_task(other.send(ONE))
        gate.failure = sqlite3.OperationalError("disk I/O error")
        gate.failure.sqlite_errorcode = sqlite3.SQLITE_IOERR
        gate.open()
        answers = await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)
        assert answers == [None, None]  # the connection was closed: the outcome is unknown
    assert isinstance(broker.failure, StoreFailedError)


@pytest.mark.spec("G-26")
def test_closing_a_store_completes_the_commit_in_progress_and_writes_later_changes(
    kept: Kept, gate: Gate
) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.begin_commit()
    queue.enqueue(StoredMessage(bare=b"x"), NOON)
    assert kept.store.has_pending_changes
    before = contents(kept.namespace, NOON)
    kept.reopen()
    assert contents(kept.namespace, NOON) == before


@pytest.mark.spec("F-89")
def test_a_full_disk_at_the_sync_releases_the_reserve_and_keeps_accepted_messages(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = kept.namespace.create_queue("orders", QueueDescription(), NOON)
    kept.store.commit()
    queue.enqueue(StoredMessage(bare=b"x"), NOON)
    seal, full = SqliteStore._commit_transaction, [sqlite3.OperationalError("database or disk is full")]
    full[0].sqlite_errorcode = sqlite3.SQLITE_FULL

    def seal_later(store: SqliteStore) -> None:
        if full:
            store.connection.execute("ROLLBACK")
            raise full.pop()
        seal(store)

    monkeypatch.setattr(SqliteStore, "_commit_transaction", seal_later)
    kept.store.begin_commit()
    kept.store.end_commit()
    assert not (kept.path / "reserve").exists()
    kept.reopen()
    assert kept.namespace.queue("orders").counts(NOON).active == 1
