"""A credential is asked once for all who need its token, and for nothing while it is away."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from sbpair.pair.auth import caching as caching_module
from sbpair.pair.auth.caching import AsyncCachingCredential, CachingCredential, caching
from sbpair.pair.auth.transient import TokenUnavailableError
from sbpair.pair.ground import interruptible
from tests.interrupts import Interrupt, at_signals, codes_of, interrupted_after
from tests.waiting import PATIENCE, until, wait_until

SCOPE = "https://servicebus.azure.net//.default"


class Given(NamedTuple):
    token: str
    expires_on: int


class Clock:
    """The two clocks of the module, which stand still."""

    def __init__(self) -> None:
        self.now, self.wall = 100.0, 1_000_000.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.wall


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("sbpair.pair.auth.caching.time", clock)
    return clock


class Service:
    """A blocking credential over a token service whose tokens live 100 seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked: list[dict[str, Any]] = []
        self.fails: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def get_token(self, *scopes: str, **keywords: Any) -> Given:
        self.asked.append(keywords)
        assert self.gate.wait(PATIENCE)
        if self.fails is not None:
            raise self.fails
        return Given(f"token {len(self.asked)}", int(self._clock.wall) + 100)


class OfAsyncio(Service):
    """The same as azure.identity.aio has it."""

    async def get_token(self, *scopes: str, **keywords: Any) -> Given:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().get_token(*scopes, **keywords)


def of(service: Service) -> Any:
    kind = AsyncCachingCredential if isinstance(service, OfAsyncio) else CachingCredential
    return kind(service, random.Random(3))


async def token_of(credential: Any, **keywords: Any) -> str:
    given = credential.get_token(SCOPE, **keywords)
    return (await given if asyncio.iscoroutine(given) else given).token


KINDS = pytest.mark.parametrize("kind", [Service, OfAsyncio])
Kind = Callable[[Clock], Service]


@KINDS
@pytest.mark.spec("H-31")
async def test_a_token_is_renewed_in_the_background_while_the_old_one_is_used(
    clock: Clock, kind: Kind
) -> None:
    service = kind(clock)
    credential = of(service)
    assert await token_of(credential) == await token_of(credential) == "token 1"
    clock.pass_by(85)
    assert await token_of(credential) == "token 1"
    await until(lambda: len(service.asked) == 2)
    await until(lambda: not credential._asking or all(map(_is_done, credential._asking.values())))
    assert await token_of(credential) == "token 2"
    assert len(service.asked) == 2


def _is_done(asking: object) -> bool:
    return isinstance(asking, tuple) and asking[0].done()


@KINDS
@pytest.mark.spec("H-23", "H-30")
async def test_a_refusing_token_service_is_asked_a_few_times_for_many_requests(
    clock: Clock, kind: Kind
) -> None:
    """157 sends, ten tries each, over 40 seconds."""
    service = kind(clock)
    credential = of(service)
    service.fails = ConnectionRefusedError("away")
    for _ in range(1570):
        with pytest.raises(ConnectionRefusedError, match="away"):
            await token_of(credential)
        clock.pass_by(40 / 1570)
    assert 4 <= len(service.asked) <= 7
    service.fails = None
    clock.pass_by(38)
    assert (await token_of(credential)).startswith("token")


@KINDS
@pytest.mark.spec("H-30", "H-31")
async def test_a_working_credential_is_used_until_its_token_expires_and_unavailable_then(
    clock: Clock, kind: Kind
) -> None:
    service = kind(clock)
    credential = of(service)
    await token_of(credential)
    service.fails = ValueError("none of the credentials gave a token")
    clock.pass_by(90)
    assert await token_of(credential) == "token 1"
    await until(lambda: len(service.asked) == 2)
    clock.pass_by(11)
    with pytest.raises(TokenUnavailableError, match="none of the credentials") as first:
        await token_of(credential)
    with pytest.raises(TokenUnavailableError) as second:
        await token_of(credential)
    assert first.value is not second.value


@KINDS
async def test_a_request_with_claims_bypasses_the_cache(clock: Clock, kind: Kind) -> None:
    service = kind(clock)
    credential = of(service)
    assert [await token_of(credential, claims="x") for _ in range(2)] == ["token 1", "token 2"]
    assert service.asked == [{"claims": "x"}] * 2


@pytest.mark.spec("H-23")
def test_threads_that_need_a_token_concurrently_share_one_request(clock: Clock) -> None:
    service = Service(clock)
    service.gate.clear()
    credential = of(service)
    given: list[str] = []
    threads = [
        threading.Thread(target=lambda: given.append(credential.get_token(SCOPE).token)) for _ in range(20)
    ]
    for each in threads:
        each.start()
    wait_until(lambda: len(service.asked) == 1)
    service.gate.set()
    for each in threads:
        each.join(PATIENCE)
    assert (given, len(service.asked)) == (["token 1"] * 20, 1)


@pytest.mark.spec("H-23")
def test_a_hanging_token_request_is_abandoned_after_half_a_minute(clock: Clock) -> None:
    service = Service(clock)
    service.gate.clear()
    credential = of(service)
    first = threading.Thread(target=lambda: credential.get_token(SCOPE))
    first.start()
    wait_until(lambda: len(service.asked) == 1)
    clock.pass_by(31)
    second = threading.Thread(target=lambda: credential.get_token(SCOPE))
    second.start()
    wait_until(lambda: len(service.asked) == 2)
    service.gate.set()
    for each in (first, second):
        each.join(PATIENCE)


@pytest.mark.spec("H-31")
def test_a_forked_child_does_not_wait_for_the_token_request_of_its_parent(clock: Clock) -> None:
    service = Service(clock)
    service.gate.clear()
    credential = of(service)
    asking = threading.Thread(target=lambda: credential.get_token(SCOPE))
    asking.start()
    wait_until(lambda: len(service.asked) == 1)
    [question] = credential._asking.values()
    question.process = os.getpid() + 1  # as a child sees it
    child = threading.Thread(target=lambda: credential.get_token(SCOPE))
    child.start()
    wait_until(lambda: len(service.asked) == 2)
    service.gate.set()
    for each in (asking, child):
        each.join(PATIENCE)


def test_an_interrupted_token_request_blocks_no_other_caller(clock: Clock) -> None:
    class Interrupted(Service):
        def get_token(self, *scopes: str, **keywords: Any) -> Given:
            if not self.asked:
                self.asked.append(keywords)
                raise KeyboardInterrupt
            return super().get_token(*scopes, **keywords)

    credential = of(Interrupted(clock))
    with pytest.raises(KeyboardInterrupt):
        credential.get_token(SCOPE)
    assert credential.get_token(SCOPE).token == "token 2"


INSIDE = {
    code
    for each in (caching_module, interruptible, threading.Condition, concurrent.futures.Future)
    for code in codes_of(each)
}


class Handing(Service):
    """Gives the main thread its token once another thread waits for the same."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.credential = of(self)
        self.may_ask = False
        self.other = self.begin(lambda: self.may_ask)

    def begin(self, may_ask: Callable[[], bool] = lambda: True) -> threading.Thread:
        thread = threading.Thread(target=self._ask, args=(may_ask,), daemon=True)
        thread.start()
        return thread

    def _ask(self, may_ask: Callable[[], bool]) -> None:
        wait_until(may_ask)
        with suppress(TokenUnavailableError):  # the request of the main thread was interrupted
            self.credential.get_token(SCOPE)

    def get_token(self, *scopes: str, **keywords: Any) -> Given:
        if threading.current_thread() is threading.main_thread():
            self.may_ask = True
            wait_until(lambda: is_waiting(self.other))
        return Given("token", int(self._clock.wall) + 100)


def is_waiting(thread: threading.Thread) -> bool:
    """Whether a thread waits for the answer to the request of another."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


@pytest.mark.spec("R-100")
def test_a_signal_anywhere_in_a_request_leaves_no_thread_waiting(clock: Clock) -> None:
    places = interrupts = 0
    while interrupts == places:
        places += 1
        service = Handing(clock)
        try:
            with interrupted_after(places, INSIDE, at_signals()):
                service.credential.get_token(SCOPE)
        except Interrupt:
            interrupts += 1
        service.may_ask = True
        for thread in (service.begin(), service.other):
            thread.join(PATIENCE)
            assert not thread.is_alive(), places
    assert interrupts > 20


def test_each_event_loop_requests_its_own_token() -> None:
    class Stuck:
        asked = 0

        async def get_token(self, *scopes: str) -> Given:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return Given("jwt", int(time.time()) + 60)

    credential = AsyncCachingCredential(Stuck())  # type: ignore[arg-type]

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await credential.get_token(SCOPE)

    asyncio.run(give_up())
    assert asyncio.run(credential.get_token(SCOPE)).token == "jwt"


def test_a_credential_is_cached_once() -> None:
    clock = Clock()
    for service in (Service(clock), OfAsyncio(clock)):
        cached = caching(service)
        assert type(cached) is type(of(service))
        assert caching(cached) is cached
