"""eventlet's patched threads fail in a silent outage: a client is refused there, when it is made."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from sbpair import PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncClient

KEY = "SharedAccessKeyName=a;SharedAccessKey=YWFh"
STRINGS = [f"Endpoint=sb://{name}.example/;{KEY}" for name in ("a", "b")]


def eventlet(monkeypatch: pytest.MonkeyPatch, patched: str) -> None:
    patcher = ModuleType("eventlet.patcher")
    patcher.is_monkey_patched = lambda name: name == patched  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patcher)


@pytest.mark.parametrize("kind", [PairedServiceBusClient, AsyncClient])
def test_a_client_is_refused_where_eventlet_has_patched_sockets(monkeypatch, kind) -> None:
    eventlet(monkeypatch, "socket")
    with pytest.raises(RuntimeError, match="does not run on eventlet"):
        kind.from_connection_strings(*STRINGS)


def test_a_client_is_made_where_eventlet_has_not_patched_sockets(monkeypatch) -> None:
    eventlet(monkeypatch, "os")
    with PairedServiceBusClient.from_connection_strings(*STRINGS):
        pass


async def test_an_asyncio_client_is_made_where_eventlet_has_not_patched_sockets(monkeypatch) -> None:
    eventlet(monkeypatch, "os")
    async with AsyncClient.from_connection_strings(*STRINGS):
        pass
