"""Spark is killed at random and restarted with other cores and partitions: every row must still be there.

    python -m tests.trials.spark_kills                     six seeds of each pipeline
    python -m tests.trials.spark_kills --seeds 20 --first 7 --pipeline publish

Two pipelines: ``stream`` consumes a queue into Parquet, and ``publish`` sends Parquet files to a
queue. Each is killed twice with SIGKILL, some time after its next batch began: the driver with all its processes,
an executor, or a Python worker. The last run is left alone. The counting is independent of this project: DuckDB reads
the Parquet files that Spark's own sink log names, and the SDK receives from the queue. Prints a line for each seed;
exit code 1 when a row is lost, or a copy cannot be recognised by its id.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
from azure.servicebus import ServiceBusClient

from sbpair.broker import Broker
from tests.data.spark.ledger import send, string

HERE = Path(__file__).resolve().parent.parent.parent
MESSAGES, FILES = 480, 24
PATIENCE = 280.0  # seconds for one run
KILLS = 2
TARGETS = ("driver", "executor", "worker")
MASTERS = ("local[1,4]", "local[2,4]", "local[4,4]", "local-cluster[2,1,1024]")
COMMANDS = {"executor": b"CoarseGrainedExecutorBackend", "worker": b"pyspark.daemon"}
PIPELINES = ("stream", "publish")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to."""

    kills: tuple[str, ...]
    """What was killed, and under which master."""

    lost: int
    copies: int
    unrecognised: int
    """Copies whose id does not tell that they are."""

    left: int
    """Messages of the source that are still in its queue."""


def try_seed(pipeline: str, seed: int, directory: Path) -> Outcome:
    """Run one pipeline to its end, with kills chosen by ``seed``, and count."""
    chance = random.Random(f"{pipeline}:{seed}")
    has_ids = chance.random() < 0.5
    with Broker({"contoso": 0, "contoso-dr": 0, "fabrikam": 0}) as broker:
        _prepare(broker, pipeline, directory, has_ids)
        kills = []
        for _ in range(KILLS):
            target = chance.choice(TARGETS)
            master = MASTERS[3] if target == "executor" else chance.choice(MASTERS)
            _settings(directory, master, chance.choice((1, 2, 4, 7)))
            found = _run(pipeline, directory, target, chance.uniform(0, 4))
            kills.append(f"{target if found else 'nothing'} of {master}")
        _settings(directory, chance.choice(MASTERS[:3]), chance.choice((1, 2, 4, 7)))
        _run(pipeline, directory, None, 0)
        if pipeline == "stream":
            left = broker.namespace("fabrikam").counts("in").active
            return _counted(kills, in_parquet(directory), left)
        return _counted(kills, _received(broker), 0)


def _prepare(broker: Broker, pipeline: str, directory: Path, has_ids: bool) -> None:
    broker.namespace("contoso").create_queue("copies", requires_duplicate_detection=True)
    broker.namespace("fabrikam").create_queue("in")
    for name in ("fabrikam", "contoso", "contoso-dr"):
        (directory / name).write_text(string(broker, name))
    (directory / "ca").write_text(str(broker.ca_file))
    if has_ids:
        (directory / "ids-of-a-column").touch()
    if pipeline == "stream":
        send(broker, "in", [f"m{number}" for number in range(MESSAGES)], "fabrikam")
        return
    (directory / "files").mkdir()
    for number in range(FILES):
        rows = f"SELECT 'm' || (i * {FILES} + {number}) AS body FROM range({MESSAGES // FILES}) t(i)"
        duckdb.sql(f"COPY ({rows}) TO '{directory}/files/{number:03}.parquet' (FORMAT parquet)")


def _settings(directory: Path, master: str, partitions: int) -> None:
    (directory / "master").write_text(master)
    (directory / "partitions").write_text(str(partitions))


def _run(pipeline: str, directory: Path, target: str | None, delay: float) -> bool:
    """One process with its JVMs; whether ``target`` was there to be killed. Raises RuntimeError when a run fails."""
    environment = os.environ | {"PYTHONPATH": str(HERE), "SPARK_WORKER_DIR": str(directory / "work")}
    command = [sys.executable, "-m", "tests.trials.spark_crash_program", pipeline, str(directory)]
    begun = len(_batches(directory))
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=HERE, stdout=log, stderr=log, start_new_session=True
        )
    try:
        is_killed = target is not None and _kill(process, directory, target, begun, delay)
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{pipeline} did not end within {PATIENCE:g} s; see {directory}/log") from None
    finally:
        for pid in _session(process.pid):
            _strike(pid)
        process.wait()
    if target is None and code != 0:
        raise RuntimeError(f"{pipeline} ended with {code}:\n{(directory / 'log').read_text()[-3000:]}")
    return is_killed


def _kill(process: subprocess.Popen[bytes], directory: Path, target: str, begun: int, delay: float) -> bool:
    """Wait for the next batch and ``delay`` seconds more, and kill. False when the run was over before."""
    deadline = time.monotonic() + PATIENCE
    while len(_batches(directory)) <= begun and process.poll() is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no batch within {PATIENCE:g} s; see {directory}/log")
        time.sleep(0.05)
    time.sleep(delay)
    if process.poll() is not None:
        return False
    if target == "driver":
        found = _session(process.pid)
    else:
        named = [pid for pid in _session(process.pid) if COMMANDS[target] in _read(pid, "cmdline")]
        parents = {_stat(pid)[1] for pid in named}
        found = [pid for pid in named if pid not in parents][
            :1
        ]  # of the workers, not the daemon they come from
    for pid in found:
        _strike(pid)
    return bool(found)


def _strike(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _session(leader: int) -> list[int]:
    """The processes of the session that ``leader`` leads: JVMs, daemons and workers are in it."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[3] == leader]


def _stat(pid: int) -> tuple[int, int, int, int]:
    """Process, parent, group and session; zeros for a process that is gone."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return (pid, int(fields[1]), int(fields[2]), int(fields[3])) if len(fields) > 3 else (pid, 0, 0, 0)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _batches(directory: Path) -> list[Path]:
    return [each for each in (directory / "checkpoint" / "offsets").glob("*") if each.name.isdigit()]


def in_parquet(directory: Path) -> Iterator[tuple[str, str]]:
    """Body and id of each row in the files that the sink's own log names; other files are of killed tasks."""
    metadata = directory / "out" / "_spark_metadata"
    if not metadata.exists():
        return
    files: dict[str, None] = {}
    logs = sorted(
        (each for each in metadata.iterdir() if not each.name.startswith(".")),
        key=lambda each: int(each.name.removesuffix(".compact")),
    )
    for log in logs:
        for line in log.read_text().splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    if not files:
        return
    rows = duckdb.sql(
        f"SELECT decode(body)[9:], message_id FROM read_parquet({list(files)!r})"
    ).fetchall()  # "body of m7"
    yield from rows


def _received(broker: Broker) -> Iterator[tuple[str, str]]:
    """Body and id of each message, received with the SDK."""
    with (
        ServiceBusClient.from_connection_string(string(broker, "contoso")) as client,
        client.get_queue_receiver("copies") as receiver,
    ):
        while received := receiver.receive_messages(100, max_wait_time=3):
            for message in received:
                yield str(message), str(message.message_id)
                receiver.complete_message(message)


def _counted(kills: list[str], rows: Iterator[tuple[str, str]], left: int) -> Outcome:
    ids: dict[str, list[str]] = defaultdict(list)
    for body, message_id in rows:
        ids[body].append(message_id)
    expected = {f"m{number}" for number in range(MESSAGES)}
    counts = Counter({body: len(found) for body, found in ids.items()})
    again = [found for found in ids.values() if len(found) > 1]
    unrecognised = sum(
        len({":".join(each.split(":")[:2]) for each in found}) > 1 for found in again
    )  # QUERY:BATCH is the same in the copies
    return Outcome(tuple(kills), len(expected - ids.keys()), counts.total() - len(counts), unrecognised, left)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--pipeline", choices=PIPELINES, action="append")
    asked = parser.parse_args()
    worst = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        for pipeline in asked.pipeline or PIPELINES:
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                told = try_seed(pipeline, seed, Path(directory))
            print(
                f"{pipeline:<8} {seed:>3}  lost: {told.lost}  copies: {told.copies}  "
                f"unrecognised: {told.unrecognised}  left behind: {told.left}  "
                f"killed: {', '.join(told.kills)}  ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            worst |= told.lost != 0 or told.unrecognised != 0
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
