"""A function that gives connection strings may fail: the next token is asked for again."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import ConnectionLostError
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.syphon.driven import BACKLOGS, STRING, Driven, play
from tests.pair.syphon.pair import parked


class Vault:
    """Gives a connection string, unless it fails."""

    def __init__(self) -> None:
        self.fails: Exception | None = None

    def __call__(self) -> str:
        if self.fails is not None:
            raise self.fails
        return STRING.format("contoso")


@pytest.mark.spec("R-105")
@pytest.mark.parametrize("error", [OSError("the vault is sealed"), KeyError("key"), RuntimeError("boom")])
def test_a_token_is_renewed_after_the_function_that_gives_its_key_failed(error: Exception) -> None:
    async def story(driven: Driven) -> None:
        vault = Vault()
        driven.make("bills")
        connection = await connect(parse(vault))
        await connection.authorize("orders")
        await asyncio.sleep(3000)
        vault.fails = error
        await asyncio.sleep(400)  # the renewal falls due
        with pytest.raises(ConnectionLostError, match=f"the credential failed: {type(error).__name__}"):
            await connection.authorize("bills")
        vault.fails = None
        await asyncio.sleep(40_000)
        assert connection._tokens._puts["orders"].token.expires > time.time()
        assert connection.is_open
        await connection.authorize("bills")
        await connection.close()

    play(story)


@pytest.mark.spec("R-126")
def test_a_token_that_cannot_be_renewed_is_a_warning_once_and_again_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(driven: Driven) -> None:
        vault = Vault()
        connection = await connect(parse(vault))
        await connection.authorize("orders")
        await asyncio.sleep(3000)
        vault.fails = OSError("the vault is sealed")
        logging.disable(logging.NOTSET)
        await asyncio.sleep(4000)
        await connection.close()

    caplog.set_level(logging.DEBUG, "sbpair.syphon")
    play(story)
    levels = [each.levelno for each in caplog.records if "was not renewed" in each.getMessage()]
    assert len(levels) > 5
    assert [index for index, level in enumerate(levels) if level == logging.WARNING] == [0, len(levels) - 1]


@pytest.mark.spec("R-105")
def test_a_syphon_continues_after_its_key_function_failed() -> None:
    async def story(driven: Driven) -> None:
        vault = Vault()
        syphon = Syphon.from_connection_strings(
            vault, STRING.format("contoso-dr"), options=SyphonOptions(backlog_queue_count=len(BACKLOGS))
        )
        vault.fails = OSError("the vault is sealed")
        async with driven.running(syphon):
            await driven.park([parked(0)])
            await asyncio.sleep(60)
            vault.fails = None
            await driven.until(lambda: syphon.counters.completed == 1)

    play(story)
