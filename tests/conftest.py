"""What holds for every test."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Six workers share the cores: how long an example takes says nothing of the code. And a run says something of
# the code, not of the draw: the examples are the same each time, as hypothesis has it in CI too.
settings.register_profile(
    "beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
# `--hypothesis-profile=exploring` draws others in every run.
settings.register_profile("exploring", settings.get_profile("beside others"), derandomize=False)
settings.load_profile("beside others")

ONE_WORKER = (  # what these start is too dear for each worker to start: JVMs, a browser, a demo of seconds
    "tests/page/",
    "tests/trials/test_spark_cluster.py",  # these two start Sparks of their own,
    "tests/spark/test_command.py",
    "tests/spark/test_audit.py",  # these share a Spark,
    "tests/spark/test_outage.py",  # those that wait for outages another,
    "tests/spark/test_messages_in_spark.py",
    "tests/spark/",  # and the others a third
    "tests/interop/test_go.py",
    "tests/interop/test_java.py",
    "tests/interop/test_javascript.py",
    "tests/cli/test_demo.py",
    "tests/test_spec.py",  # parses every file once
    "tests/test_floors.py",  # so does this
    "tests/typing/",  # these share mypy's cache
)


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the garbage collector need not walk over them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Every test goes to whichever worker is free; those that share something dear all go to one.

    Not by ``--dist loadgroup``: with pytest 9.2 and pytest-xdist 3.8 it does not group.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((prefix for prefix in ONE_WORKER if nodeid.startswith(prefix)), nodeid)

    return Grouped(config, log)


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _sdk_links_that_close_at_once() -> Iterator[None]:
    """The SDK's keep-alive threads look twenty times a second, not once, whether their link has ended.

    Whoever closes a link waits for its thread.
    """
    client = sys.modules.get("azure.servicebus._pyamqp.client")
    if client is None:
        yield
        return

    class Hurried(ModuleType):
        def __getattr__(self, name: str) -> object:
            return getattr(time, name)  # as it is now: a test may have set the clock

        def sleep(self, seconds: float) -> None:
            time.sleep(0.05 if seconds == 1 else seconds)  # no other pause of that module is of one second

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "time", Hurried("time"))
        yield
