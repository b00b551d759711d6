"""The Celery app of docs/how-to/frameworks.md: a real worker, and publishers that start in the outage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pair.outage.processes import Namespaces, namespaces, running
from tests.tools.source import ROOT
from tests.waiting import PATIENCE

PROGRAMS = ROOT / "samples" / "celery"
WORKER = (
    "celery", "-A", "tasks", "worker", "--pool", "solo", "--loglevel", "INFO",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
)  # fmt: skip


def publish(pair: Namespaces, folder: Path, *orders: int) -> None:
    """Delay a task for each order, in a process of its own."""
    program = f"import tasks\nfor order in {orders}: tasks.ship.delay(order)"
    environment = pair.environment(PROGRAMS)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.spec("R-123")
def test_celery_workers_and_publishers_complete_every_task_of_two_outages(
    tmp_path: Path,
) -> None:
    with namespaces() as pair:
        pair.take_down()
        with running(WORKER, pair.environment(PROGRAMS), tmp_path) as worker:
            publish(pair, tmp_path, 0, 1)
            pair.bring_home()
            worker.wait_for("shipped order 0\n", "shipped order 1\n")
            pair.take_down()
            publish(pair, tmp_path, 2, 3)
            pair.bring_home()
            worker.wait_for("shipped order 2\n", "shipped order 3\n")
            assert worker.log().count("shipped order") == 4
