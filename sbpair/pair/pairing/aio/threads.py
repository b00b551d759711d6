"""Threads of an asyncio client, and the bridge between them and its loop.

Blocking work (the disk of the spool, the administration API) runs on a limited number of threads. A thread that needs
something from the loop schedules it there and waits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.credentials import AccessToken

from ..shared.threads import Workers
from ..shared.waiting import StillWaitingError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_logger = logging.getLogger("sbpair")
T = TypeVar("T")

MAX_LOOKUPS = 8  # concurrent look-ups of one host
STUCK = 5.0  # seconds after which a look-up counts as hanging, and another is started
MAX_TOKEN_SECONDS = 30.0  # seconds that a thread waits for a token from the loop


class Threads:
    """The threads of one asyncio client."""

    def __init__(self) -> None:
        self._workers = Workers()

    async def run(self, name: str, task: Callable[[], T]) -> T:
        """Run a blocking task on a thread and return its result.

        Raises its exception, and OperationTimeoutError when too many earlier tasks still hang.
        """
        return await _ran(self._workers, name, task)

    async def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the running tasks; return at once if the system cannot create a thread."""
        with suppress(StillWaitingError):
            await _ran(Workers(), "sbpair-join", lambda: self._workers.join(seconds))


async def finish(name: str, task: Callable[[], object], seconds: float) -> bool:
    """The asyncio twin of :func:`sbpair.pair.pairing.shared.threads.finish`."""
    try:
        async with asyncio.timeout(seconds):
            await _ran(Workers(), name, task)
    except TimeoutError:
        return False
    except StillWaitingError:
        task()
    return True


class Lookups:
    """Looks up the name of one host in separate threads, so that a hanging look-up blocks nothing else.

    The SDK repeats the look-up when it connects, in threads that the whole loop shares. A look-up that would hang there
    hangs here first.
    """

    def __init__(self, host: str | None) -> None:
        self._host = host
        self._workers = Workers(MAX_LOOKUPS)
        self._looking: asyncio.Task[None] | None = None
        self._all: set[asyncio.Task[None]] = set()
        self._began = 0.0

    async def find(self) -> None:
        """Wait until the look-up ends. If it fails, the SDK's own look-up raises the error."""
        if self._host is None or is_address(self._host):
            return
        now = asyncio.get_running_loop().time()
        looking = self._looking
        is_stuck = now - self._began > STUCK and len(self._all) < MAX_LOOKUPS
        if looking is None or looking.done() or is_stuck:
            self._looking = looking = asyncio.create_task(self._look(self._host))
            self._began = now
            self._all.add(looking)
            looking.add_done_callback(self._ended)
        await asyncio.shield(looking)

    def close(self) -> None:
        """Stop the look-ups: no call waits for them any more."""
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
            looking.exception()  # marks it as retrieved: any waiting call has received it


def is_address(host: str) -> bool:
    """Whether ``host`` is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class LoopCredential:
    """Makes an asyncio credential usable from a thread, while its loop runs."""

    def __init__(self, credential: AsyncTokenCredential, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401 -- as azure-core has it
        """Return a token from the credential. Raises its exceptions, and TimeoutError after 30 s."""
        asked = asyncio.run_coroutine_threadsafe(self._get_token(*scopes, **keywords), self._loop)
        return asked.result(MAX_TOKEN_SECONDS)

    async def _get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401
        return await self._credential.get_token(*scopes, **keywords)


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *given: object) -> None:
    """Call a function in the loop from a thread, if the loop still runs."""
    try:
        loop.call_soon_threadsafe(call, *given)
    except RuntimeError:  # the loop is closed, so nothing waits for the call
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
