"""Threads of an asyncio client, and the bridge between them and its loop.

Blocking work (the disk of the spool, the administration API) runs on threads that are counted and capped. A
thread that needs something from the loop schedules it there and waits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.credentials import AccessToken

from .threads import Workers

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

MOST_LOOKUPS = 8  # of one host at once
STUCK = 5.0  # seconds after which a look-up is not waited for any more: another may find what it does not
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


class Lookups:
    """Looks up the name of one host, on threads of its own: where that hangs, nothing else does (R-6).

    The SDK looks it up again when it connects, on the threads that the whole loop shares; what would hang
    there hangs here before.
    """

    def __init__(self, host: str | None) -> None:
        self._host = host
        self._workers = Workers(MOST_LOOKUPS)
        self._looking: asyncio.Task[None] | None = None
        self._all: set[asyncio.Task[None]] = set()
        self._began = 0.0

    async def find(self) -> None:
        """Wait until the name is found, or found to be none: the SDK says so then."""
        if self._host is None or is_address(self._host):
            return
        now = asyncio.get_running_loop().time()
        looking = self._looking
        is_stuck = now - self._began > STUCK and len(self._all) < MOST_LOOKUPS
        if looking is None or looking.done() or is_stuck:
            self._looking = looking = asyncio.create_task(self._look(self._host))
            self._began = now
            self._all.add(looking)
            looking.add_done_callback(self._ended)
        await asyncio.shield(looking)

    def close(self) -> None:
        """Nobody waits any more."""
        for looking in self._all:
            looking.cancel()

    async def _look(self, host: str) -> None:
        try:
            await _ran(self._workers, "sbpair-lookup", lambda: socket.getaddrinfo(host, None))
        except OSError as error:
            _logger.debug("%s was not found: %s", host, error)

    def _ended(self, looking: asyncio.Task[None]) -> None:
        self._all.discard(looking)
        if not looking.cancelled():
            looking.exception()  # seen: whoever waited was told, if anybody did


def is_address(host: str) -> bool:
    """Whether this is no name but an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
