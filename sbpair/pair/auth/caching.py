"""TokenCredentials that remember their token and their failure, for threads and for asyncio.

    valid token     returned at once; from 80 % of its life another is fetched in the background
    no valid token  one caller asks, the others wait for its answer
    failure         raised again for a second, then for two ... at most thirty, before the credential is asked anew

The decisions are those of token_memory.py. A request with ``claims`` answers a challenge, and is passed on without
caching.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from sbpair.pair.ground.interruptible import Flag
from sbpair.pair.ground.own_copy import own_copy
from sbpair.pair.ground.shared_task import result_of, share

from .token_memory import GivenToken, TokenMemory
from .transient import TokenUnavailableError

if TYPE_CHECKING:
    import asyncio

    from azure.core.credentials import AccessToken, TokenCredential
    from azure.core.credentials_async import AsyncTokenCredential

STUCK_SECONDS = 30.0  # after which a request that hangs is left alone, and another is made

_logger = logging.getLogger("sbpair")

CredentialT = TypeVar("CredentialT")
Request = tuple[tuple[str, ...], tuple[tuple[str, object], ...]]  # scopes, and keywords


class _Caching(Generic[CredentialT]):
    """The cached tokens and failures of one credential, by request."""

    def __init__(self, credential: CredentialT, rng: Random | None = None) -> None:
        self._credential = credential
        self._rng = rng or Random()
        self._memories: dict[Request, TokenMemory] = {}

    def _memory(self, scopes: tuple[str, ...], keywords: dict[str, Any]) -> TokenMemory:
        return self._memories.setdefault((scopes, tuple(sorted(keywords.items()))), TokenMemory(self._rng))


class _Asking:
    """A call of a blocking credential, whose answer several threads wait for.

    Unlike in a ``concurrent.futures.Future``, an exception from a signal handler leaves none of its locks held.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.began = time.monotonic()
        self._answer: GivenToken | Exception | None = None
        self._is_over = Flag()

    def serves(self) -> bool:
        """Whether other threads may wait for this call: not in a forked child, and not if the call hangs."""
        is_young = time.monotonic() - self.began < STUCK_SECONDS
        return self.process == os.getpid() and is_young and not self._is_over.is_set()

    def end(self, answer: GivenToken | Exception) -> None:
        """Hand the answer to all waiting threads; a second answer is ignored."""
        if self._answer is None:
            self._answer = answer
        self._is_over.set()

    def wait(self) -> GivenToken:
        """Wait for the answer. Raises a copy of the error, and TokenUnavailableError after STUCK_SECONDS."""
        self._is_over.wait(STUCK_SECONDS)
        answer = self._answer
        if answer is None:
            raise TokenUnavailableError(f"no token within {STUCK_SECONDS:g} s")
        if isinstance(answer, Exception):
            raise own_copy(answer) from answer.__cause__
        return answer


class CachingCredential(_Caching["TokenCredential"]):
    """A blocking TokenCredential, cached. Thread-safe."""

    def __init__(self, credential: TokenCredential, rng: Random | None = None) -> None:
        super().__init__(credential, rng)
        self._asking: dict[TokenMemory, _Asking] = {}

    def get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401 -- as azure-core has it
        """Return a token of the credential. Raises the credential's exceptions, and TokenUnavailableError."""
        if keywords.get("claims"):
            return self._credential.get_token(*scopes, **keywords)
        memory = self._memory(scopes, keywords)
        found = memory.answer(time.monotonic(), time.time())
        if found.error is not None:
            raise own_copy(found.error)
        given = found.token
        if given is None:
            given = self._ask(memory, lambda: self._credential.get_token(*scopes, **keywords))
        elif found.is_due:
            self._renew(memory, lambda: self._credential.get_token(*scopes, **keywords))
        return cast("AccessToken", given)

    def _ask(self, memory: TokenMemory, ask: Callable[[], GivenToken]) -> GivenToken:
        mine = _Asking()
        try:
            others = self._asking.setdefault(memory, mine)
            if others is not mine and others.serves():
                return others.wait()
            self._asking[memory] = mine
            return self._ask_once(memory, ask, mine)
        finally:
            mine.end(TokenUnavailableError("the request for a token was interrupted"))
            if self._asking.get(memory) is mine:
                self._asking.pop(memory, None)

    def _ask_once(self, memory: TokenMemory, ask: Callable[[], GivenToken], mine: _Asking) -> GivenToken:
        found = memory.answer(time.monotonic(), time.time())  # another thread may have asked just before
        if found.error is not None:
            raise own_copy(found.error)
        if found.token is not None and not found.is_due:
            mine.end(found.token)
            return found.token
        try:
            given = ask()
        except Exception as raised:
            error = memory.failed(raised, time.monotonic())
            mine.end(error)
            _raise_copy(error, raised)
        memory.gained(given, time.time())
        mine.end(given)
        return given

    def _renew(self, memory: TokenMemory, ask: Callable[[], GivenToken]) -> None:
        asking = self._asking.get(memory)
        if asking is not None and asking.serves():
            return

        def renew() -> None:
            try:
                self._ask(memory, ask)
            except Exception as error:  # remembered; the old token serves while it is valid
                _not_renewed(error)

        try:
            threading.Thread(target=renew, name="sbpair-credential", daemon=True).start()
        except RuntimeError:  # the system cannot create a thread now: the next request tries again
            return


class AsyncCachingCredential(_Caching["AsyncTokenCredential"]):
    """An asyncio TokenCredential, cached separately for each event loop."""

    def __init__(self, credential: AsyncTokenCredential, rng: Random | None = None) -> None:
        super().__init__(credential, rng)
        self._asking: dict[TokenMemory, tuple[asyncio.Task[GivenToken], float]] = {}

    async def get_token(self, *scopes: str, **keywords: Any) -> AccessToken:  # noqa: ANN401 -- as azure-core has it
        """Return a token of the credential. Raises the credential's exceptions, and TokenUnavailableError."""
        if keywords.get("claims"):
            return await self._credential.get_token(*scopes, **keywords)
        memory = self._memory(scopes, keywords)
        found = memory.answer(time.monotonic(), time.time())
        if found.error is not None:
            raise own_copy(found.error)
        given = found.token
        if given is None or found.is_due:
            asking = self._ask(memory, self._credential.get_token(*scopes, **keywords))
            if given is None:
                given = await result_of(asking)
            else:
                asking.add_done_callback(_renewed)
        return cast("AccessToken", given)

    async def close(self) -> None:
        """Do nothing: the credential belongs to the application."""

    async def __aenter__(self) -> AsyncCachingCredential:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.close()

    def _ask(self, memory: TokenMemory, ask: Coroutine[Any, Any, AccessToken]) -> asyncio.Task[GivenToken]:
        import asyncio  # late: a blocking client does without

        now = time.monotonic()
        asking, began = self._asking.get(memory, (None, 0.0))
        is_other = asking is None or asking.done() or asking.get_loop() is not asyncio.get_running_loop()
        if asking is None or is_other or now - began >= STUCK_SECONDS:
            asking = share(self._ask_once(memory, ask))
            self._asking[memory] = asking, now
        else:
            ask.close()
        return asking

    async def _ask_once(self, memory: TokenMemory, ask: Coroutine[Any, Any, AccessToken]) -> GivenToken:
        try:
            given = await ask
        except Exception as raised:
            _raise_copy(memory.failed(raised, time.monotonic()), raised)
        memory.gained(given, time.time())
        return given


def caching(credential: Any) -> CachingCredential | AsyncCachingCredential:  # noqa: ANN401 -- of any library
    """Return a caching TokenCredential around ``credential``, or ``credential`` itself if it caches already."""
    if isinstance(credential, CachingCredential | AsyncCachingCredential):
        return credential
    if inspect.iscoroutinefunction(credential.get_token) or hasattr(credential, "__aexit__"):
        return AsyncCachingCredential(credential)
    return CachingCredential(credential)


def _raise_copy(error: Exception, raised: Exception) -> NoReturn:
    """Raise the credential's error, or a copy of it: other callers are given the same error."""
    if error is raised:
        raise raised
    raise own_copy(error) from raised


def _renewed(asking: asyncio.Task[GivenToken]) -> None:
    error = None if asking.cancelled() else asking.exception()
    if error is not None:
        _not_renewed(error)


def _not_renewed(error: BaseException) -> None:
    _logger.warning(
        "a token was not renewed, and serves while it is valid: %s: %s", type(error).__name__, error
    )
