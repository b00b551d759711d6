"""Duration of an audit of many journal events, compared with DuckDB, and with two executors.

    python -m tests.trials.bench.bench_audit [--events N] [--rounds N] [--engine E ...] [--quick]

Generated journals of 8 senders, 2 syphons and 4 receivers: three in ten messages pass through a backlog, and one
in a thousand is not received. The engines take turns, each round in its own process: DuckDB counts the verdicts and
writes nothing; the audit, on threads of this process and on Spark, writes all tables and the report. The counts must
match the generated data. The start of the JVM is a separate figure. Prints its settings, then one JSON line per figure
(name, unit, n, median, p95).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.trials.bench.report import figure

if TYPE_CHECKING:
    import pyarrow as pa

    from sbpair.audit import Engine

EVENTS, QUICK_EVENTS = 10_000_000, 100_000
PER_MESSAGE = 2.3  # events: two of a direct message, three of a parked one
CHUNK = 200_000  # messages made up at once
NOON_MS = 1_795_262_400_000
APART_MS = 1  # between two messages
DUCKDB, LOCAL = "duckdb", "local"
ENGINES = (DUCKDB, LOCAL, "local[2,1]")  # and any master of Spark
WITHIN = 3600  # seconds


@dataclass
class Writer:
    """One journal, written a chunk at a time."""

    directory: Path
    role: str
    ordinal: int = 0
    name: str = field(default_factory=lambda: str(uuid.uuid4()))
    checksum: int = 0
    _file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        if self._file is None:
            self._file = (self.directory / f"{self.role}-{self.name}-000001.jsonl").open("wb")
        return self._file

    def put(self, event: str, fields: str, ids: pa.Array, at: pa.Array) -> None:
        """One event for each id; ``{}`` in ``fields`` is where the id stands."""
        import pyarrow as pa
        import pyarrow.compute as pc

        before, after = fields.split("{}")
        ordinals = pa.array(range(self.ordinal, self.ordinal + len(ids)), pa.int64()).cast(pa.string())
        self.ordinal += len(ids)
        lines = pc.binary_join_element_wise(
            f'{{"v":1,"writer":"{self.name}","role":"{self.role}","ordinal":', ordinals, ',"at":"',
            pc.strftime(at, "%Y-%m-%dT%H:%M:%S"),
            'Z","mono":1.5,"pair":{"primary":"contoso","secondary":"contoso-dr"},'
            f'"event":"{event}","path":"orders",{before}', ids, after + "}\n", "",
        )  # fmt: skip
        chunk = lines.buffers()[2].to_pybytes()
        self.checksum += sum(map(zlib.crc32, chunk.splitlines()))
        self.file.write(chunk)

    def say(self, event: str, fields: str) -> None:
        """One event without an id, an hour after the messages."""
        later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOON_MS / 1000 + 86_400))
        record = {"v": 1, "writer": self.name, "role": self.role, "ordinal": self.ordinal, "at": later,
                  "mono": 2.5, "pair": {"primary": "contoso", "secondary": "contoso-dr"},
                  "event": event, "path": "orders"}  # fmt: skip
        line = json.dumps(record | json.loads(fields)).encode()
        self.checksum += zlib.crc32(line)
        self.file.write(line + b"\n")
        self.ordinal += 1

    def close(self) -> None:
        end = {"file": 1, "records": self.ordinal + 1, "lost": 0, "is_last": True, "checksum": self.checksum}
        self.say("journal_closed", json.dumps(end))
        self.file.close()


def make_up(directory: Path, events: int) -> dict[str, int]:
    """Write the journals; returns how many messages have which verdict."""
    senders, syphons, receivers = (
        [Writer(directory, role) for _ in range(n)]
        for role, n in (("sender", 8), ("syphon", 2), ("receiver", 4))
    )
    messages = int(events / PER_MESSAGE)
    for start, stop in _chunks(messages):
        _tell(start, stop, senders, syphons, receivers)
    for syphon in syphons:
        syphon.say("backlogs_drained", "{}")
    receivers[0].say("entity_emptied", "{}")
    for writer in (*senders, *syphons, *receivers):
        writer.close()
    lost = -(-messages // 1000)
    return {"delivered": messages - lost, "unproven": lost}  # nobody tells what became of them


def _chunks(messages: int) -> Iterator[tuple[int, int]]:
    for start in range(0, messages, CHUNK):
        yield start, min(start + CHUNK, messages)


def _tell(
    start: int, stop: int, senders: list[Writer], syphons: list[Writer], receivers: list[Writer]
) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    number = np.arange(start, stop)
    is_parked, arrives = number % 10 < 3, number % 1000 != 0

    def told(writers: list[Writer], event: str, fields: str, which: np.ndarray, delay: int) -> None:
        for index, writer in enumerate(writers):
            mine = number[which & (number // 10 % len(writers) == index)]
            ids = pc.binary_join_element_wise("message-", pa.array(mine).cast(pa.string()), "")
            at = pa.array(NOON_MS + mine * APART_MS + delay).cast(pa.timestamp("ms", "UTC"))
            writer.put(event, fields, ids, at)

    told(
        senders,
        "send_accepted",
        '"stored_in":"primary","backlog":null,"message_ids":["{}"],"ambiguous":false',
        ~is_parked,
        0,
    )
    told(
        senders,
        "message_parked",
        '"backlog":3,"count":1,"message_ids":["{}"],"ambiguous":false',
        is_parked,
        0,
    )
    forwarded = '"backlog":3,"backlog_queue":"contoso/x-servicebus-transfer/3","message_ids":["{}"]'
    told(syphons, "messages_forwarded", forwarded, is_parked, 5_000)
    received = '"message_ids":["{}"],"session_ids":[""],"sequence_numbers":[0]'
    told(receivers, "messages_received", received, arrives, 9_000)


def of_duckdb(directory: Path) -> dict[str, object]:
    from tests.audit import oracle

    begun = time.perf_counter()
    found = oracle.verdicts(directory)
    return {"verdicts": found, "wall": time.perf_counter() - begun}


def of_audit(directory: Path, engine: Engine | None) -> dict[str, object]:
    from sbpair.audit import audit

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sbpair-audit-") as out:
        found = audit(directory, out, engine=engine).verdicts
    wall = time.perf_counter() - begun
    return {"verdicts": {verdict.value: count for verdict, count in found.items() if count}, "wall": wall}


def of_spark(directory: Path, master: str) -> dict[str, object]:
    from sbpair.spark import build_session
    from sbpair.spark.audit import SparkEngine
    from sbpair.spark.session import SHORT_JOB

    cluster = {"spark.executorEnv.PYTHONPATH": os.getcwd(), "spark.executor.memory": "1g",
               "spark.scheduler.minRegisteredResourcesRatio": "1.0"}  # fmt: skip
    begun = time.perf_counter()
    spark = build_session("bench", master=master, settings=cluster | SHORT_JOB, has_formats=False)
    started = time.perf_counter() - begun
    found = of_audit(directory, SparkEngine(spark)) | {"start": started, "cpu": cpu_of_tree(os.getpid())}
    spark.stop()
    return found


def cpu_of_tree(pid: int) -> float:
    """The processor time in seconds that a process has used, with the processes below it and those that ended."""
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    below = sum(cpu_of_tree(int(child)) for child in children.stdout.split())
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return below
    return below + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measured(engine: str, directory: Path) -> dict[str, object]:
    """One audit in this process; its figures in seconds and MB."""
    if engine not in (DUCKDB, LOCAL):
        return of_spark(directory, engine)
    found = of_duckdb(directory) if engine == DUCKDB else of_audit(directory, None)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return found | {"cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss / 1000}


def in_a_process(engine: str, directory: Path) -> dict[str, object]:
    """Each engine alone, so that none has the other's memory or its warm compiler."""
    command = [sys.executable, "-m", "tests.trials.bench.bench_audit", "--engine", engine]
    command += ["--directory", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
    if done.returncode:
        sys.exit(f"{engine}: {done.stderr[-2000:]}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=EVENTS, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="default %(default)s")
    parser.add_argument(
        "--engine", action="append", help=f"default {', '.join(ENGINES)}; any master of Spark"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS} events, to see that it runs")
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    asked, _ = parser.parse_known_args()
    if asked.directory:
        print(json.dumps(measured(asked.engine[0], asked.directory)))
        return
    events = QUICK_EVENTS if asked.quick else asked.events
    with tempfile.TemporaryDirectory(prefix="sbpair-bench-") as directory:
        compare(Path(directory), events, asked.engine or ENGINES, 1 if asked.quick else asked.rounds)


UNITS = {"wall": "s", "cpu": "s", "start": "s", "memory": "MB"}


def compare(directory: Path, events: int, engines: Sequence[str], rounds: int) -> None:
    begun = time.perf_counter()
    truth = make_up(directory, events)
    spent = time.perf_counter() - begun
    size = sum(file.stat().st_size for file in directory.iterdir())
    print(
        f"python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"{events} events, {size / 1e6:.0f} MB, made up in {spent:.1f} s"
    )
    figures: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for engine in engines:
            found = in_a_process(engine, directory)
            if found.pop("verdicts") != truth:
                sys.exit(f"{engine} counted other verdicts than {truth}")
            for what, value in found.items():
                figures.setdefault((engine, what), []).append(float(str(value)))
    for (engine, what), values in figures.items():
        load = round(os.getloadavg()[0], 1)
        figure(f"audit, {what}", UNITS[what], values, engine=engine, events=events, load=load)


if __name__ == "__main__":
    main()
