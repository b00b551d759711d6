"""eventlet's patched threads fail in a silent outage: a client is refused there, when it is made."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from sbpair import PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncClient

KEY = "SharedAccessKeyName=a;SharedAccessKey=YWFh"
STRINGS = [f"Endpoint=sb://{name}.example/;{KEY}" for name in ("a", "b")]


@pytest.mark.parametrize("kind", [PairedServiceBusClient, AsyncClient])
@pytest.mark.parametrize("is_patched", [True, False])
def test_a_client_is_refused_where_eventlet_has_patched_sockets(monkeypatch, kind, is_patched: bool) -> None:
    patcher = ModuleType("eventlet.patcher")
    patcher.is_monkey_patched = lambda name: is_patched and name == "socket"
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patcher)
    if is_patched:
        with pytest.raises(RuntimeError, match="does not run on eventlet"):
            kind.from_connection_strings(*STRINGS)
    else:
        kind.from_connection_strings(*STRINGS)
