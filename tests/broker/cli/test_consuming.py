"""Receiving from a session in a command, on a virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.cli.entity.consuming import Consumed, SessionChoice, consume
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.driven import STRING

pytestmark = pytest.mark.spec("E-1")


def test_a_command_keeps_the_session_lock_after_the_peer_detached_the_node() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True, lock_duration=30_000)
        connection = await connect(parse(STRING.format("contoso")))
        handled, counts, choice = list[bytes](), Consumed(), SessionChoice("a")
        consuming = asyncio.ensure_future(
            consume(
                connection, "chats", handled.append, counts,
                most=1, wait=None, sessions=choice, stop=asyncio.Event(),
            )
        )  # fmt: skip
        await story.until(lambda: len(story.links_to_node("chats")) == 2)
        story.detach_node("chats")
        await asyncio.sleep(100)
        await story.put([numbered(1, session="a")], path="chats")
        await consuming
        assert (len(handled), counts.completed) == (1, 1)
        await connection.close()

    play_with(story)
