"""The programs of docs/how-to/web.md, on real servers with two workers, through an outage of `sbpair broker`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusClient

from sbpair.testing import BrokerProcess
from tests.tools.source import ROOT
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.spec("R-121")]

PROGRAMS = ROOT / "samples" / "web"
UVICORN = ("uvicorn", "orders_fastapi:app", "--workers", "2", "--uds", "web.sock")
GUNICORN = (
    "gunicorn", "orders_flask:app", "--workers", "2", "--threads", "8", "--bind", "unix:web.sock",
    "--no-control-socket",
)  # fmt: skip


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    arguments = ("--namespace", "contoso:0", "--namespace", "contoso-dr:0", "--queue", "contoso/orders")
    with BrokerProcess(*arguments, "--allow-faults") as running:
        yield running


def environment(broker: BrokerProcess) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(PROGRAMS))),
        "PYTHONWARNINGS": "error",
        "SBPAIR_PRIMARY": broker.connection_strings["contoso"],
        "SBPAIR_SECONDARY": broker.connection_strings["contoso-dr"],
        "SBPAIR_CA_FILE": broker.ca_file,
    }


class Server:
    """A web server with two workers, on a socket of its folder."""

    def __init__(self, folder: Path, http: httpx.Client) -> None:
        self._folder = folder
        self._http = http

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def put(self, number: int) -> str:
        """Put an order and return where it is stored."""
        answer = self._http.put(f"/orders/{number}")
        assert answer.status_code == 202, answer.text
        return str(answer.json()["stored_in"])

    def put_many(self, numbers: range) -> set[str]:
        with ThreadPoolExecutor(8) as callers:
            return set(callers.map(self.put, numbers))

    def has_started(self) -> bool:
        return len(re.findall(r"Booting worker|Application startup complete", self.log())) == 2


@contextlib.contextmanager
def serving(command: tuple[str, ...], broker: BrokerProcess, folder: Path) -> Iterator[Server]:
    fresh = httpx.Limits(
        max_keepalive_connections=0
    )  # a server may close an idle one just when it is used again
    transport = httpx.HTTPTransport(uds=str(folder / "web.sock"), limits=fresh)
    with (
        (folder / "log").open("w") as log,
        httpx.Client(transport=transport, base_url="http://web", timeout=PATIENCE) as http,
        subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment(broker),
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        server = Server(folder, http)
        try:
            wait_until(lambda: process.poll() is not None or server.has_started())
            assert process.poll() is None, server.log()
            yield server
            process.terminate()
            process.wait(PATIENCE)
        except BaseException:
            sys.stderr.write(server.log())
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def received(broker: BrokerProcess) -> list[str]:
    """The orders on the primary, in order of their numbers."""
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_strings["contoso"]) as client,
        client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
    ):
        while batch := receiver.receive_messages(100, max_wait_time=1):
            found += [str(message) for message in batch]
    return sorted(found, key=lambda text: int(text.removeprefix("order ")))


def bring_home(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "sbpair", "syphon", "--drain"]
    subprocess.run(command, env=environment(broker), check=True, capture_output=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    "command", [UVICORN, GUNICORN, (*GUNICORN, "--preload")], ids=["fastapi", "flask", "flask-preload"]
)
def test_every_order_of_an_outage_is_taken_and_arrives_once(
    command: tuple[str, ...], broker: BrokerProcess, tmp_path: Path
) -> None:
    admin = httpx.Client(headers={"Authorization": f"Bearer {broker.endpoints['faults_token']}"})
    faults = broker.endpoints["faults_url"]
    with admin, serving(command, broker, tmp_path) as server:
        assert server.put_many(range(40)) == {"primary"}
        down = {"namespace": "contoso", "scenario": "primary-down"}
        admin.post(faults, json=down).raise_for_status()
        assert server.put_many(range(40, 80)) == {"backlog"}
        admin.delete(faults).raise_for_status()
        log = server.log()
    bring_home(broker)
    assert received(broker) == [f"order {number}" for number in range(80)]
    assert "Traceback" not in log


@pytest.mark.parametrize("command", [UVICORN, GUNICORN], ids=["fastapi", "flask"])
def test_workers_that_start_in_the_outage_take_orders(
    command: tuple[str, ...], broker: BrokerProcess, tmp_path: Path
) -> None:
    admin = httpx.Client(headers={"Authorization": f"Bearer {broker.endpoints['faults_token']}"})
    with admin:
        down = {"namespace": "contoso", "scenario": "primary-down"}
        admin.post(broker.endpoints["faults_url"], json=down).raise_for_status()
    with serving(command, broker, tmp_path) as server:
        assert server.put_many(range(16)) == {"backlog"}
