"""The five pages, on an event loop and in a thread of their own."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from types import SimpleNamespace

import httpx
import pytest
from aiohttp import web

from sbpair.observation import Metrics, Status, StatusError, StatusServer, StatusThread
from sbpair.pair.observation.status import application
from sbpair.pair.pairing.events import EntityFailedOver
from tests.lacking import THREAD_OR_LOOP
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("no_thread_left")


async def reached():
    return None


def status(probe=reached, **parts):
    settings = {
        "is_ready": lambda: True,
        "state": lambda: {"role": "sender"},
        "metrics": Metrics().exposition,
    }
    return Status(probe=probe, **settings | parts)


async def get(server, page):
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return await client.get(f"http://127.0.0.1:{server.port}/{page}")


async def test_health_is_the_result_of_a_round_trip():
    trips = []

    async def probe():
        trips.append(1)
        if len(trips) > 1:
            raise ConnectionError("contoso cannot be reached; SharedAccessKey=CANARY;")

    async with StatusServer(status(probe)) as server:
        well, ill = await get(server, "health"), await get(server, "health")

    assert (well.status_code, well.json()["status"]) == (200, "ok")
    assert ill.status_code == 503
    assert ill.json()["reason"] == "ConnectionError: contoso cannot be reached; SharedAccessKey=***;"


async def test_a_round_trip_that_hangs_is_not_healthy():
    ended = asyncio.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with StatusServer(status(hang, probe_timeout=0.05)) as server:
        answer = await get(server, "health")

    assert (answer.status_code, answer.json()["reason"]) == (503, "no answer within 0.05 s")
    assert ended.is_set()


async def test_concurrent_health_requests_share_one_round_trip():
    trips, go_on = [], asyncio.Event()

    async def probe():
        trips.append(1)
        await go_on.wait()

    async with StatusServer(status(probe)) as server:
        asking = [asyncio.ensure_future(get(server, "health")) for _ in range(5)]
        while not trips:
            await asyncio.sleep(0.005)
        assert (await get(server, "ready")).status_code == 200  # all of the earlier are being served by now
        go_on.set()
        answers = await asyncio.gather(*asking)

    assert {answer.status_code for answer in answers} == {200}
    assert len(trips) <= 2


async def test_a_request_that_stops_waiting_does_not_end_the_shared_round_trip():
    trips, go_on = [], asyncio.Event()

    async def probe():
        trips.append(1)
        await go_on.wait()

    runner = web.AppRunner(application(status(probe)), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = SimpleNamespace(port=runner.addresses[0][1])
    impatient = asyncio.ensure_future(get(server, "health"))
    while not trips:
        await asyncio.sleep(0.005)
    patient = asyncio.ensure_future(get(server, "health"))
    await get(server, "ready")
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    await get(server, "ready")
    go_on.set()

    assert (await patient).status_code == 200
    assert len(trips) == 1
    await runner.cleanup()


async def test_closing_cancels_a_round_trip_in_progress():
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def probe():
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with StatusServer(status(probe, probe_timeout=60.0)) as server:
        asking = asyncio.ensure_future(get(server, "health"))
        await asyncio.wait_for(began.wait(), PATIENCE)
    await asyncio.gather(asking, return_exceptions=True)

    assert cancelled.is_set()


@pytest.mark.parametrize(("is_ready", "code"), [(True, 200), (False, 503)])
async def test_ready_reports_whether_the_process_can_work(is_ready, code):
    async with StatusServer(status(is_ready=lambda: is_ready)) as server:
        answer = await get(server, "ready")

    assert (answer.status_code, answer.json()) == (code, {"ready": is_ready})


@pytest.mark.spec("S-12")
async def test_state_is_json_without_keys():
    said = {"entities": {"orders": "failed_over"}, "reason": "SharedAccessKey=CANARY"}
    async with StatusServer(status(state=lambda: said)) as server:
        answer = await get(server, "state")

    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == {"entities": {"orders": "failed_over"}, "reason": "SharedAccessKey=***"}


async def test_metrics_are_in_prometheus_format():
    metrics = Metrics()
    metrics.write(EntityFailedOver(0.0, "orders", "c"))
    async with StatusServer(status(metrics=metrics.exposition)) as server:
        answer = await get(server, "metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'sbpair_failovers_total{path="orders"} 1.0' in answer.text


async def test_other_pages_and_methods_are_refused():
    async with StatusServer(status()) as server, httpx.AsyncClient(timeout=PATIENCE) as client:
        assert (await get(server, "other")).status_code == 404
        assert (await client.post(f"http://127.0.0.1:{server.port}/state")).status_code == 405


def test_a_process_without_an_event_loop_serves_its_pages_from_a_thread():
    before = set(threading.enumerate())
    with StatusThread(status()) as server:
        page = f"http://127.0.0.1:{server.port}/health"
        assert httpx.get(page, timeout=PATIENCE).status_code == 200

    assert set(threading.enumerate()) <= before  # others' threads may have ended meanwhile
    with pytest.raises(httpx.ConnectError):
        httpx.get(page, timeout=PATIENCE)


def test_a_taken_port_is_named_and_leaves_nothing_open():
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StatusError, match=rf"127\.0\.0\.1:{port}: Address already in use$"):
            StatusThread(status(), port=port).start()

    assert set(threading.enumerate()) <= before


@pytest.mark.spec("R-9")
@THREAD_OR_LOOP
def test_pages_without_a_thread_or_a_loop_are_a_status_error_at_once(monkeypatch, lacking, stand_in, why):
    server = StatusThread(status())
    with monkeypatch.context() as patched:
        patched.setattr(lacking, stand_in)
        with pytest.raises(StatusError, match=rf"cannot be served on 127\.0\.0\.1:0: {why}$"):
            server.start()

    with server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/live", timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("no-such-host.invalid", 0)])
async def test_an_address_that_cannot_be_is_named(host, port):
    with pytest.raises(StatusError, match=f"{host}:{port}"):
        async with StatusServer(status(), host=host, port=port):
            pass


@pytest.mark.spec("R-61")
async def test_live_is_that_the_loop_of_the_work_turns():
    stuck = asyncio.Event()

    async with (
        StatusServer(status()) as alone,
        StatusServer(status(pulse=reached)) as turning,
        StatusServer(status(pulse=stuck.wait, probe_timeout=0.05)) as hung,
    ):
        answers = [await get(server, "live") for server in (alone, turning, hung)]

    assert [answer.status_code for answer in answers] == [200, 200, 503]
    assert answers[-1].json()["live"] is False


@pytest.mark.spec("R-133")
async def test_the_first_page_lists_the_others_and_each_is_there():
    async with StatusServer(status()) as server:
        index = await get(server, "")
        names = re.findall(r"href='(\w+)'", index.text)
        answers = [await get(server, name) for name in names]

    assert index.status_code == 200
    assert names == ["live", "ready", "health", "metrics", "state"]
    assert [answer.status_code for answer in answers] == [200] * 5
