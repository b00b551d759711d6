"""Fixtures for tests on the wire: one broker per module with a clock that tests advance, one queue per test."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus._pyamqp.aio import _client_async as asyncio_links

from sbpair.broker import Broker, NamespaceControl, ShiftedClock
from tests.strict_frames import strictly_read
from tests.wire.elsewhere import TARGET, BrokerElsewhere, Elsewhere, fresh

HERE = Path(__file__).parent
HELD = {"broker", "contoso", "client", "make_queue"}


class _Hurried:
    """The module asyncio with a sleep of one second shortened."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Any:
        return asyncio.sleep(0.02 if seconds == 1 else seconds)


@pytest.fixture(autouse=True)
def frames_are_strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the broker sends in a test has the types of the standard."""
    with strictly_read(monkeypatch):
        yield


@pytest.fixture(autouse=True)
def asyncio_links_that_close_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the keep-alive pause of asyncio links, as tests/conftest.py does for blocking ones."""
    monkeypatch.setattr(asyncio_links, "asyncio", _Hurried())


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker | BrokerElsewhere]:
    """A broker with two namespaces and a clock to advance, or a namespace elsewhere."""
    if TARGET is None:
        with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as running:
            yield running
        return
    namespace = Elsewhere(TARGET)
    namespace.sweep()
    yield BrokerElsewhere(namespace)
    namespace.close()


@pytest.fixture(scope="session")
def contoso(broker: Broker | BrokerElsewhere) -> NamespaceControl | Elsewhere:
    """The first namespace."""
    return broker.namespace("contoso")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect tests that start their own broker when the tests run against another namespace."""
    if TARGET is None:
        return
    for item in items:
        if item.path.parent == HERE and not _is_for_any(item):
            item.add_marker(pytest.mark.skip(reason="brings a broker of its own"))


def _is_for_any(item: pytest.Item) -> bool:
    """Whether a test uses the namespace of this module's fixtures."""
    known = getattr(item, "_fixtureinfo", None)
    brokers = known.name2fixturedefs.get("broker", ()) if known else ()
    is_here = all(Path(each.func.__code__.co_filename).name == "conftest.py" for each in brokers[-1:])
    return is_here and not HELD.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which promises another namespace keeps."""
    if TARGET is None:
        return
    told = {what: terminalreporter.getreports(what) for what in ("passed", "failed", "error", "skipped")}
    wrong = len(told["failed"]) + len(told["error"])
    reasons = Counter(str(each.longrepr[2]).removeprefix("Skipped: ") for each in told["skipped"])
    terminalreporter.section("score against the namespace")
    terminalreporter.line(
        f"{len(told['passed'])} held, {wrong} failed, {len(told['skipped'])} not applicable"
    )
    for reason, times in reasons.most_common():
        terminalreporter.line(f"{times:5} {reason}")


@pytest.fixture
def make_queue(contoso: NamespaceControl | Elsewhere) -> Callable[..., str]:
    """Return a function that creates a new queue with the given fields and returns its path."""

    def make(**fields: object) -> str:
        path = fresh("orders")
        contoso.create_queue(path, **fields)
        return path

    return make


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    """The path of a queue of default settings."""
    return make_queue()


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[ServiceBusClient]:
    """The SDK's client without retries, so that errors show at once."""
    text = TARGET or request.getfixturevalue("contoso").connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as opened:
        yield opened


@pytest.fixture
def forgiving_of_sockets() -> Iterator[None]:
    """Ignore unclosed sockets: the SDK does not close a socket that was reset."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
