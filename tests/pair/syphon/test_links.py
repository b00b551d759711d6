"""Every link, and its session, is closed by its owner; calls without a link fail cleanly."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sbpair.broker.faults import Operation, RejectWith, Withhold
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from sbpair.pair.syphon.events import BacklogDetached
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, purge, redrive
from sbpair.syphon import SyphonState
from tests.pair.syphon.driven import BACKLOGS, Driven, play
from tests.pair.syphon.pair import Pair, parked, running
from tests.pair.syphon.test_pump import pair_of_brokers, stalled  # noqa: F401 - a fixture is used by its name
from tests.waiting import until

SOON = dt.timedelta(milliseconds=100)


@asynccontextmanager
async def connected(pair: Pair) -> AsyncIterator[NamespaceConnection]:
    connection = await connect(parse(pair.secondary.connection_string))
    try:
        yield connection
    finally:
        await connection.close()


def sessions(connection: NamespaceConnection) -> int:
    return len(connection._engine.sessions)


def links(connection: NamespaceConnection) -> int:
    return connection._engine._links


@pytest.mark.spec("R-20")
async def test_every_opened_receiver_ends_its_session_when_it_closes(pair: Pair) -> None:
    async with connected(pair) as connection:
        await connection.authorize("")
        before = sessions(connection), links(connection)
        stop, backlog = asyncio.Event(), pair.backlog(0)
        for _ in range(3):
            await (await connection.open_receiver(backlog, print)).close()
            await purge(connection, backlog, lambda: None, stop=stop)
            await redrive(connection, backlog, RedriveCounts(), stop=stop)
            refusing = pair.secondary.fault(backlog, RejectWith("amqp:internal-error"), operation="attach")
            with refusing, pytest.raises(LinkRefusedError):
                await connection.open_receiver(backlog, print)
        await until(lambda: (sessions(connection), links(connection)) == before)


@pytest.mark.spec("R-20")
async def test_a_cancelled_opening_leaves_neither_link_nor_session(pair: Pair) -> None:
    async with connected(pair) as connection:
        await connection.authorize(pair.backlog(0))
        before = sessions(connection)
        with pair.secondary.fault(pair.backlog(0), Withhold(), operation="attach"):
            opening = asyncio.ensure_future(connection.open_receiver(pair.backlog(0), print))
            await until(lambda: sessions(connection) == before + 1)
            opening.cancel()
            await until(lambda: sessions(connection) == before)


@pytest.mark.spec("R-20")
def test_a_backlog_that_never_answers_an_attach_is_reported_and_retried() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            with world.fault("contoso-dr", BACKLOGS[0], Withhold(), Operation.ATTACH):
                await world.until(lambda: len(world.said(BacklogDetached)) > 2, within=900.0)
                assert "no answer within" in world.said(BacklogDetached)[0].reason
                assert syphon.status.state is SyphonState.CONNECTING

    play(story)


@pytest.mark.spec("R-20")
async def test_a_syphon_is_running_only_while_every_existing_backlog_is_attached(pair: Pair) -> None:
    """A missing backlog holds nothing and does not count; an unreadable one does."""
    pair.secondary.delete_queue(pair.backlog(1))
    syphon = pair.syphon(retry_backoff_max=SOON)
    queue = pair.secondary.description(pair.backlog(0))
    async with running(syphon):
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)
        assert syphon.status.state is SyphonState.RUNNING

        pair.secondary.update_queue(pair.backlog(0), replace(queue, status="ReceiveDisabled"))
        await pair.park([parked(1)])
        await until(lambda: syphon.status.state is SyphonState.CONNECTING)
        assert syphon.status.reason is not None
        assert syphon.status.reason.startswith(f"{pair.backlog(0)} is not attached")

        pair.secondary.update_queue(pair.backlog(0), queue)
        await until(lambda: syphon.counters.completed == 2)
        assert syphon.status.state is SyphonState.RUNNING
        assert syphon.status.reason is None


@pytest.mark.spec("R-20")
async def test_an_unanswering_token_node_is_detached_before_another_is_opened(
    pair_of_brokers: Pair,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = pair_of_brokers
    async with connected(pair) as connection:
        await connection.authorize("")
        before = links(connection)
        with monkeypatch.context() as patched, stalled(pair.secondary):
            patched.setattr(connection, "answer_timeout", 0.05)
            for path in (pair.backlog(0), pair.backlog(1)):
                with pytest.raises((ConnectionLostError, LinkRefusedError)):
                    await connection.authorize(path)
        await connection.authorize(pair.backlog(0))
        await until(lambda: links(connection) == before)
