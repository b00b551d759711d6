"""The pytest plugin under which the SDK's own tests find a broker where they expect Azure.

Loaded by `python -m tests.trials.live` alone, before any test module: names resolve to the broker, its
authority is trusted, and the stand-ins are importable. The tests themselves are as they were published.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import certifi
import pytest

from . import resolver
from .cloud import open_cloud

HERE = Path(__file__).parent
RESULTS = "SBPAIR_LIVE_RESULTS"
TLS = "SBPAIR_LIVE_TLS"
PAIRED = "SBPAIR_LIVE_PAIRED"
FIRST = "SBPAIR_LIVE_FIRST"
WORKERS = "SBPAIR_LIVE_WORKERS"

sys.path.insert(0, str(HERE / "stand_ins"))
certifi.where = lambda: os.environ["SSL_CERT_FILE"]


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Of recordings: there are none."""


COUNTS_SLEEPS = "test_backoff_fixed_retry"
"""It expects one call of time.sleep in the whole process; a link of another test's client may still be opening."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take longest first, and none that play a recording back."""
    order = {line: number for number, line in enumerate(Path(os.environ[FIRST]).read_text().splitlines())}
    items.sort(key=lambda item: order.get(item.nodeid, len(order)))
    for item in items:
        if item.get_closest_marker("playback_test_only"):
            item.add_marker(pytest.mark.skip(reason="plays a recording back"))
    if os.environ.get(PAIRED):
        from . import paired

        for item in items:
            if item.nodeid.partition("::")[0].endswith("test_sb_client.py") and item.name.startswith(
                COUNTS_SLEEPS
            ):
                item.add_marker(
                    pytest.mark.skip(reason="counts time.sleep of the process: links open in threads")
                )
        paired.install(
            {id(item.module): item.module for item in items if isinstance(item, pytest.Function)}.values()
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Many at once, for they mostly wait: workers are forked off the one process that has loaded them all.

    Each takes the next test when it is done with one. A test whose worker died has failed.
    """
    if session.testsfailed or session.config.option.collectonly:
        return None  # pytest says what it could not load
    fork = multiprocessing.get_context("fork")
    turn = fork.Value("i", 0)
    count = min(int(os.environ[WORKERS]), len(session.items))
    workers = [fork.Process(target=_work, args=(session, turn)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    results = Path(os.environ[RESULTS])
    told = {json.loads(line)["test"] for line in results.read_text().splitlines()}
    with results.open("a") as file:
        for item in session.items:
            if item.nodeid not in told:
                file.write(_line(item.nodeid, "failed", 0.0, "its process ended", ""))
    return True


def _work(session: pytest.Session, turn: Synchronized[int]) -> None:
    session.config.pluginmanager.register(_Notes(Path(os.environ[RESULTS])))
    cloud = open_cloud(Path(os.environ[TLS]))
    resolver.install(cloud.ports())
    while True:
        with turn.get_lock():
            mine, turn.value = turn.value, turn.value + 1
        if mine >= len(session.items):
            return
        item = session.items[mine]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


class _Notes:
    """Writes what became of each test, a line each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A line for the call, and for what else did not pass."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            why = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else _last(report)
            text = report.longreprtext if report.failed else ""
            self._file.write(_line(report.nodeid, report.outcome, self._seconds[report.nodeid], why, text))
            self._file.flush()


def _line(test: str, outcome: str, seconds: float, why: str, text: str) -> str:
    note = {"test": test, "outcome": outcome, "seconds": round(seconds, 1), "why": why, "text": text}
    return json.dumps(note) + "\n"


def _last(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if crash is None else str(crash.message).splitlines()[0][:200]
