"""Configuration shared by all tests: hypothesis profiles, grouping for xdist, faster SDK teardown."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import needs
from tests.needs import ROOT
from tests.origins import name_origins
from tests.turns import Seeded, permuted
from tests.warm import Warm

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Else each of the six workers, and of the hundred processes that tests start, would compile everything anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Six workers share the cores, so the duration of an example says nothing about the code. The examples are the same
# in every run: a failure then points at a change in the code, not at a lucky draw.
settings.register_profile(
    "beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
# `--hypothesis-profile=exploring` draws others in every run.
settings.register_profile("exploring", settings.get_profile("beside others"), derandomize=False)
settings.load_profile("beside others")

LONGEST = (  # these begin first: at the end of a run nothing else would be left beside them
    "tests/test_readme.py",
    "tests/contract/cli/test_demo.py",
    "tests/test_docs.py",
    "tests/test_samples.py",
    "tests/pair/outage/test_celery.py",
    "tests/pair/outage/test_spool.py",
    "tests/pair/outage/test_hangs.py",
    "tests/pair/outage/test_policy.py",
    "tests/broker/testing/test_scenarios.py",
    "tests/pair/auth/test_credential.py",
    "tests/pair/client/test_played_nodes.py",
    "tests/pair/syphon/test_destination_pace.py",
    "tests/broker/store/test_store.py",
    "tests/test_spec.py",
)
PERMUTED = pytest.StashKey[Seeded]()  # set with --permute-turns
ONE_WORKER = (  # each group runs on one worker: what it starts (a JVM, a browser, a demo) is too expensive for all six
    "tests/broker/page/",
    "tests/trials/test_spark_cluster.py",  # this one and the next start a Spark each
    "tests/data/spark/test_cluster.py",  # executors of its own
    "tests/data/spark/test_command.py",
    "tests/data/spark/test_audit.py",  # shares one Spark
    "tests/data/spark/test_outage.py",  # waits for outages, on a second Spark
    "tests/data/spark/test_messages_in_spark.py",
    "tests/data/spark/",  # all others share a third Spark
    "tests/broker/interop/test_go.py",
    "tests/broker/interop/test_java.py",
    "tests/broker/interop/test_javascript.py",
    "tests/contract/cli/test_demo.py",
    "tests/test_spec.py",  # parses every file once
    "tests/test_floors.py",  # likewise
    "tests/typing/",  # shares mypy's cache
)


@pytest.fixture(autouse=True)
def queues_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client makes sure of its backlog queues at once, not at a moment of the first half minute (H-50)."""
    if "sbpair.pair.pairing.shared.backlog" in sys.modules:
        monkeypatch.setattr("sbpair.pair.pairing.shared.backlog.SPREAD_SECONDS", 0.0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--permute-turns", metavar="SEED", help="permute the turns of event loops (tests/turns.py)"
    )


def pytest_configure(config: pytest.Config) -> None:
    needs.check()
    patched = pytest.MonkeyPatch()
    name_origins(patched)
    config.add_cleanup(patched.undo)
    seed = config.getoption("--permute-turns")
    if seed is not None:
        seeded = config.stash[PERMUTED] = Seeded(seed)
        permuting = permuted(seeded)
        permuting.__enter__()
        config.add_cleanup(lambda: permuting.__exit__(None, None, None))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_collection(session: pytest.Session) -> None:
    """Begin with a share of the test files: every worker collects all of them, and in a fresh clone each of the
    six would compile them all."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    for file in _test_files(session.config)[int(worker["workerid"][2:]) :: int(worker["workercount"])]:
        with suppress(Exception, pytest.skip.Exception):  # the collection will say so
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def _test_files(config: pytest.Config) -> list[Path]:
    """The test files below the folders that the run was asked for."""
    folders = [config.invocation_params.dir / argument for argument in config.args]
    found = {file.resolve() for folder in folders for file in folder.rglob("test_*.py")}
    return sorted(file for file in found if not needs.is_left_out(file))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return needs.is_left_out(collection_path) or None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in needs.lines():  # not a header, which -q does not show
        terminalreporter.write_line(line)


def pytest_runtest_setup(item: pytest.Item) -> None:
    seeded = item.config.stash.get(PERMUTED, None)
    if seeded is not None:
        seeded.began(item.nodeid)


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: there are thousands, and all live until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Send each test to whichever worker is free, and each group of ``ONE_WORKER`` to a single one.

    ``--dist loadgroup`` would do, but does not group with pytest 9.2 and pytest-xdist 3.8.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((prefix for prefix in ONE_WORKER if nodeid.startswith(prefix)), nodeid)

    return Grouped(config, log)


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm | None]:
    """Starts programs in processes that begin warm; None where there is no fork."""
    if sys.platform != "linux":
        yield None
        return
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SBPAIR_")}
    forking = Warm(kept | {"PYTHONWARNINGS": "error", "NO_COLOR": "1"})
    yield forking
    forking.close()


@pytest.fixture(scope="session", autouse=True)
def _sdk_links_that_close_at_once() -> Iterator[None]:
    """Let the SDK's keep-alive threads check twenty times a second, not once, whether their link has ended.

    Closing a link waits for its thread, so each close would take up to a second.
    """
    client = sys.modules.get("azure.servicebus._pyamqp.client")
    if client is None:
        yield
        return

    class Hurried(ModuleType):
        def __getattr__(self, name: str) -> object:
            return getattr(time, name)  # looked up on each call: a test may have replaced the clock

        def sleep(self, seconds: float) -> None:
            time.sleep(
                0.05 if seconds == 1 else seconds
            )  # only the keep-alive thread sleeps for exactly one second

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "time", Hurried("time"))
        yield
