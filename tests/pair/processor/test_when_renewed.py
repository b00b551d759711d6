"""When a lock is renewed: as soon as a third of its span is left, whoever holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sbpair.broker.cli.entity.consuming import Consumed, SessionChoice, consume
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.locks import LEFT_AT_RENEWAL
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.driven import STRING

SPAN = 60.0
LATE = 1.5  # seconds: locks are looked at once a second


@asynccontextmanager
async def _command(story: Story) -> AsyncIterator[None]:
    """`sbpair receive` of a session, whose messages have not come yet."""
    connection, stop = await connect(parse(STRING.format("contoso"))), asyncio.Event()
    receiving = consume(
        connection, "chats", lambda payload: None, Consumed(),
        most=None, wait=None, sessions=SessionChoice("a"), stop=stop,
    )  # fmt: skip
    task = asyncio.ensure_future(receiving)
    yield
    stop.set()
    await task
    await connection.close()


@pytest.mark.spec("C-12", "C-16", "E-1")
@pytest.mark.parametrize("holder", ["a message's handler", "a session's handler", "a command"])
def test_a_lock_is_renewed_when_a_third_of_its_span_is_left_and_not_before(holder: str) -> None:
    of_session = holder != "a message's handler"

    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=of_session, lock_duration=int(SPAN * 1000))
        namespace = story.driven.servers["contoso"].frontend.namespace
        if holder == "a command":
            running = _command(story)
        else:
            await story.put([numbered(1, session="a" if of_session else None)], path="chats")
            most = 1 if of_session else None
            running = story.processor(story.note_slowly, "chats", max_concurrent_sessions=most)
        async with running:
            began, before = story.now, namespace.operations.management
            await story.until(lambda: namespace.operations.management > before, within=SPAN)
            expected = SPAN * (1 - LEFT_AT_RENEWAL)
            assert expected - LATE <= story.now - began <= expected + LATE

    play_with(story)
