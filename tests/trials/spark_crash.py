"""Spark is killed at a named point and restarted: every message must still be there.

    python -m tests.trials.spark_crash            every point
    python -m tests.trials.spark_crash mid-read   one of them

Prints a line for each: what was killed, what arrived, what arrived twice. Exit code 1 when a message is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sbpair.broker import Broker
from tests.data.spark.ledger import bodies_in, ids_in, park, parked, send, string
from tests.trials.spark_crash_program import MARK

HERE = Path(__file__).resolve().parent.parent.parent
MESSAGES = 120
PATIENCE = 240.0  # seconds for one run
HOOK = """import os
if os.environ.get("SBPAIR_TEST_CRASH"):
    from tests.trials.spark_crash_program import plant
    plant()
"""  # run by every Python of the job when it starts

POINTS = {
    "after planning": "stream",
    "mid-read": "stream",
    "mid-settle": "stream",
    "mid-sink": "copy",
    "between sink and commit log": "copy",
    "mid-drain": "drain",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one kill came to."""

    point: str
    was_killed: bool
    lost: int
    twice: int
    """Copies beyond the first."""

    left: int
    """Messages that are still where they were taken from."""

    seconds: float


def try_point(point: str, directory: Path) -> Outcome:
    """Kill a job at ``point``, run it again to its end with twice as many partitions, and count."""
    began = time.monotonic()
    with Broker({"contoso": 0, "contoso-dr": 0, "fabrikam": 0}) as broker:
        job = POINTS[point]
        sent = prepare(broker, job)
        killed = run(broker, job, directory, point)
        (directory / "partitions").write_text("4")
        if run(broker, job, directory, point):
            raise RuntimeError(f"{job} was killed a second time")
        arrived, left = count(broker, job, directory)
        copies = sum(arrived.values()) - len(arrived)
        lost = len(sent) - len(arrived)
        return Outcome(point, killed, lost, copies, left, time.monotonic() - began)


def prepare(broker: Broker, job: str) -> list[str]:
    sent = [f"m{number}" for number in range(MESSAGES)]
    for queue in ("copies", "orders"):
        broker.namespace("contoso").create_queue(queue, requires_duplicate_detection=queue == "copies")
    broker.namespace("fabrikam").create_queue("in")
    if job == "drain":
        park(broker, "orders", sent)
    else:
        send(broker, "in", sent, "fabrikam")
    return sent


def count(broker: Broker, job: str, directory: Path) -> tuple[Counter[str], int]:
    """How often each message came through, and how many are left behind."""
    if job == "drain":
        return Counter(ids_in(broker, "orders")), parked(broker)
    left = broker.namespace("fabrikam").counts("in").active
    if job == "copy":
        return Counter(bodies_in(broker, "copies")), left
    return Counter((directory / "ids").read_text().split()), left


def run(broker: Broker, job: str, directory: Path, point: str) -> bool:
    """One process with a JVM; True when it was killed at the point. Raises RuntimeError when it fails."""
    hook = directory / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(HOOK)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(hook), str(HERE))),
        MARK: f"{point}:{directory / 'reached'}",
    }
    for name in ("fabrikam", "contoso", "contoso-dr"):
        (directory / name).write_text(string(broker, name))
    (directory / "ca").write_text(str(broker.ca_file))
    log = (directory / "log").open("ab")
    command = [sys.executable, "-c", LAUNCH, job, str(directory)]
    process = subprocess.Popen(
        command, env=environment, cwd=HERE, stdout=log, stderr=log, start_new_session=True
    )
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise RuntimeError(f"{job} did not end within {PATIENCE:g} s; see {directory}/log") from None
    finally:
        log.close()
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(
            f"{job} ended with {code}; the log ends with:\n{(directory / 'log').read_text()[-3000:]}"
        )
    return code == -signal.SIGKILL


LAUNCH = (
    "import os, sys\n"
    "os.environ['SBPAIR_TEST_GROUP'] = str(os.getpid())\n"  # it leads its session: JVM and workers are in it
    "from tests.trials.spark_crash_program import main\n"
    "main(*sys.argv[1:3])\n"
)


def main(points: list[str]) -> int:
    worst = 0
    for point in points or POINTS:
        with tempfile.TemporaryDirectory() as directory:
            told = try_point(point, Path(directory))
        print(
            f"{told.point:<28} killed: {told.was_killed!s:<5}  lost: {told.lost}  copies: {told.twice}  "
            f"left behind: {told.left}  ({told.seconds:.0f} s)",
            flush=True,
        )
        worst |= told.lost != 0 or told.left != 0 or not told.was_killed
    return int(worst)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
