"""A hosted syphon ends with its client, at whatever moment the client is closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.pair.client.errors import OutOfReachError
from sbpair.pair.ground.side import Side
from sbpair.pair.paired_client import hosted_syphon
from sbpair.pair.paired_client.hosted_syphon import SyphonThread
from sbpair.pair.pairing.events import EntityRecovered, EntityReturning, PairingEvent
from sbpair.pair.pairing.options import PairedNamespaceOptions
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.base_runtime import BaseRuntime
from sbpair.pair.syphon import daemon
from sbpair.syphon import SyphonState
from tests.lacking import THREAD, THREAD_OR_LOOP, no_thread
from tests.pair.runtimes import runtime_of
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def syphon() -> Iterator[SyphonThread]:
    """A hosted syphon between two namespaces of a broker, not started."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = (
            SdkNamespace.from_connection_string(role, each.connection_string, SdkSettings(), None)
            for role, each in zip(Side, broker.namespaces, strict=True)
        )
        hosted = SyphonThread(BaseRuntime(*sides, "contoso", PairedNamespaceOptions(), lambda: None, None))
        yield hosted
        hosted.close()


@pytest.mark.spec("R-9", "P-40")
@THREAD_OR_LOOP
def test_a_syphon_without_a_thread_or_loop_is_an_os_error_and_starts_later(
    syphon: SyphonThread, monkeypatch: pytest.MonkeyPatch, lacking: str, stand_in: object, why: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(lacking, stand_in)
        with pytest.raises(OSError, match=f"the hosted syphon cannot start: .*{why}"):
            syphon.start()
    syphon.start()
    wait_until(lambda: syphon.status.state is SyphonState.NO_BACKLOGS)  # there are none here


@pytest.mark.spec("R-9", "P-40")
def test_a_syphon_that_could_not_start_is_closed_without_an_error(
    syphon: SyphonThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(THREAD, no_thread)
        with pytest.raises(OSError, match="can't start new thread"):
            syphon.start()
    syphon.close()


@pytest.mark.spec("P-40")
@pytest.mark.parametrize("news", [EntityRecovered(0.0, "orders", "ping"), EntityReturning(0.0, "orders")])
def test_a_client_that_finds_its_primary_back_wakes_its_syphon(
    syphon: SyphonThread, monkeypatch: pytest.MonkeyPatch, news: PairingEvent
) -> None:
    real, refused = daemon.connect, threading.Event()

    async def refused_once(*settings: object, **limits: object) -> object:
        if refused.is_set():
            return await real(*settings, **limits)  # type: ignore[arg-type]
        refused.set()
        raise OutOfReachError("connection refused")

    monkeypatch.setattr(daemon, "connect", refused_once)
    monkeypatch.setattr(daemon.Backoff, "next_pause", lambda self: 10 * PATIENCE)
    dispatcher = runtime_of(syphon).dispatcher
    dispatcher.emit([news])  # nothing runs yet
    syphon.start()
    wait_until(lambda: syphon.status.reason == "primary: connection refused")
    dispatcher.emit([again := replace(news, at=1.0)])
    wait_until(lambda: syphon.status.state is SyphonState.NO_BACKLOGS)
    heard: list[PairingEvent] = []
    dispatcher.subscribe(heard.append)
    assert heard == [news, again]  # the application gets them all the same


@pytest.mark.spec("P-40", "G-27")
def test_a_syphon_closed_before_its_loop_runs_still_ends(
    syphon: SyphonThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a thread may begin seconds after it was started."""
    has_begun, may_turn, serve = threading.Event(), threading.Event(), hosted_syphon.serve_in_loop

    def slowly(*settings: object) -> None:
        has_begun.set()
        may_turn.wait(PATIENCE)
        serve(*settings)  # type: ignore[arg-type]

    monkeypatch.setattr(hosted_syphon, "serve_in_loop", slowly)
    callers = [threading.Thread(target=call) for call in (syphon.start, syphon.close)]
    callers[0].start()
    assert has_begun.wait(PATIENCE)
    callers[1].start()
    may_turn.set()
    for caller in callers:
        caller.join(PATIENCE)
    assert syphon._thread is not None
    assert not syphon._thread.is_alive()
