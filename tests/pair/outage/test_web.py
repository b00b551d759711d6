"""The programs of docs/how-to/frameworks.md, on real servers with two workers, through an outage of `sbpair broker`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.pair.outage.processes import Namespaces, namespaces, running
from tests.tools.source import ROOT
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.spec("R-121")]

PROGRAMS = ROOT / "samples" / "web"
UVICORN = ("uvicorn", "orders_fastapi:app", "--workers", "2", "--uds", "web.sock")
GUNICORN = (
    "gunicorn", "orders_flask:app", "--workers", "2", "--threads", "8", "--bind", "unix:web.sock",
    "--no-control-socket",
)  # fmt: skip
STARTED = {"uvicorn": "Application startup complete", "gunicorn": "Booting worker"}
"""What each of the two workers writes."""


@pytest.fixture
def pair() -> Iterator[Namespaces]:
    with namespaces() as running:
        yield running


class Caller:
    """Puts orders, eight at a time."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def put(self, number: int) -> str:
        """Put an order and return where it is stored."""
        answer = self._http.put(f"/orders/{number}")
        assert answer.status_code == 202, answer.text
        return str(answer.json()["stored_in"])

    def put_many(self, numbers: range) -> set[str]:
        with ThreadPoolExecutor(8) as callers:
            return set(callers.map(self.put, numbers))


@contextlib.contextmanager
def serving(command: tuple[str, ...], pair: Namespaces, folder: Path) -> Iterator[Caller]:
    fresh = httpx.Limits(max_keepalive_connections=0)  # a server may close an idle one just when it is used
    transport = httpx.HTTPTransport(uds=str(folder / "web.sock"), limits=fresh)
    environment = {**pair.environment(PROGRAMS), "PYTHONWARNINGS": "error"}
    with (
        httpx.Client(transport=transport, base_url="http://web", timeout=PATIENCE) as http,
        running(command, environment, folder) as program,
    ):
        wait_until(lambda: program.log().count(STARTED[command[0]]) == 2)
        yield Caller(http)
        assert "Traceback" not in program.log()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(UVICORN, id="fastapi"),
        pytest.param(GUNICORN, id="flask", marks=pytest.mark.trial),
        pytest.param((*GUNICORN, "--preload"), id="flask-preload"),  # the workers are forks: the harder way
    ],
)
def test_every_order_placed_in_an_outage_is_accepted_and_arrives_once(
    command: tuple[str, ...], pair: Namespaces, tmp_path: Path
) -> None:
    with serving(command, pair, tmp_path) as caller:
        assert caller.put_many(range(40)) == {"primary"}
        pair.take_down()
        assert caller.put_many(range(40, 80)) == {"backlog"}
    pair.bring_home()
    assert pair.received() == sorted(f"order {number}" for number in range(80))


@pytest.mark.slow
@pytest.mark.parametrize("command", [UVICORN, GUNICORN], ids=["fastapi", "flask"])
def test_workers_that_start_in_the_outage_take_orders(
    command: tuple[str, ...], pair: Namespaces, tmp_path: Path
) -> None:
    pair.take_down()
    with serving(command, pair, tmp_path) as caller:
        assert caller.put_many(range(16)) == {"backlog"}
