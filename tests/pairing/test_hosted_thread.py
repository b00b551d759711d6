"""A hosted syphon ends with its client, at whatever moment the client is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sbpair.broker import Broker
from sbpair.paired_client import hosted_syphon
from sbpair.paired_client.hosted_syphon import SyphonThread
from sbpair.pairing.address import SdkSettings, Side
from sbpair.pairing.base_runtime import BaseRuntime
from sbpair.pairing.options import PairedNamespaceOptions
from sbpair.pairing.pair_state import Role
from tests.waiting import PATIENCE


@pytest.mark.spec("P-40", "G-27")
def test_a_syphon_that_is_closed_before_its_loop_turns_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a thread may begin seconds after it was started."""
    may_begin, run = threading.Event(), asyncio.run

    def slowly(main: object) -> None:
        may_begin.wait(PATIENCE)
        run(main)

    monkeypatch.setattr(hosted_syphon, "LAST_STEPS", 0.0)
    monkeypatch.setattr(hosted_syphon, "CLOSING", 0.0)
    monkeypatch.setattr(hosted_syphon.asyncio, "run", slowly)
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = (
            Side.from_connection_string(role, each.connection_string, SdkSettings(), None)
            for role, each in zip(Role, broker.namespaces, strict=True)
        )
        core = BaseRuntime(*sides, "contoso", PairedNamespaceOptions(), lambda: None, None)
        syphon = SyphonThread(core)
        syphon.start()
        syphon.close()
        may_begin.set()
        assert syphon._thread is not None
        syphon._thread.join(PATIENCE)
        assert not syphon._thread.is_alive()
