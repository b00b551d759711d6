"""How does an event loop use threads, and they it?

What blocks (the disk of the spool, the administration API) runs on a thread that is counted and capped; a
thread that needs something of the loop asks for it and waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.credentials import AccessToken

from .work import Workers

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

LONGEST_TOKEN = 30.0  # seconds that a thread waits for a token from the loop


class Threads:
    """The threads of one client of asyncio."""

    def __init__(self) -> None:
        self._workers = Workers()

    async def run(self, name: str, task: Callable[[], T]) -> T:
        """What a blocking task returns.

        Raises what it raises, OperationTimeoutError when too many earlier ones still hang.
        """
        return await _ran(self._workers, name, task)

    async def join(self, seconds: float) -> None:
        """Wait for what is running, so long at most."""
        await _ran(Workers(), "sbpair-join", lambda: self._workers.join(seconds))


class LoopCredential:
    """A credential of asyncio, asked from a thread while its loop runs."""

    def __init__(self, credential: AsyncTokenCredential, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401 -- as azure-core has it
        """Raises what the credential raises, TimeoutError after 30 s."""
        asked = asyncio.run_coroutine_threadsafe(self._get_token(*scopes, **keywords), self._loop)
        return asked.result(LONGEST_TOKEN)

    async def _get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401
        return await self._credential.get_token(*scopes, **keywords)


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *given: object) -> None:
    """From a thread: have the loop call this soon, if it still runs."""
    try:
        loop.call_soon_threadsafe(call, *given)
    except RuntimeError:  # the loop is closed: nobody waits any more
        _logger.debug("an event loop was closed before its paired client")


async def _ran(workers: Workers, name: str, task: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            value = task()
        except Exception as error:
            call_in_loop(loop, _fail, done, error)
        else:
            call_in_loop(loop, _answer, done, value)

    workers.start(name, run)
    return await done


def _answer(done: asyncio.Future[T], value: T) -> None:
    if not done.done():
        done.set_result(value)


def _fail(done: asyncio.Future[T], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
