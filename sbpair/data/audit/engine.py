"""The distribution of an audit: work on parts of the journals, then on parts of the messages.

    tasks  --work-->  packets by part  --work of each part-->  packets, ...
                          '--> results for the caller

The engine on one machine (:class:`LocalEngine`) needs no Spark: threads do the work, since Arrow and numpy run in
parallel, and packets wait in a temporary file, so that memory does not grow with the journals. Its twin on Spark is
:class:`sbpair.spark.audit.SparkEngine`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A result for the caller; it can be pickled."""

    content: Any


@dataclass(frozen=True, slots=True)
class Packet:
    """Bytes for one part of the work; parts are numbered from 0."""

    part: int
    content: bytes


Work: TypeAlias = "Callable[[Task], Iterator[TaskResult | Packet]]"
WorkOnPart: TypeAlias = "Callable[[int, Iterator[bytes]], Iterator[TaskResult | Packet]]"


class Packets(Protocol):
    """The output of a step; release it with ``close``."""

    def answers(self) -> Iterator[Any]:
        """The contents of the results, in any order."""

    def regroup(self, work: WorkOnPart) -> Packets:
        """Do ``work`` on the packets of each non-empty part."""

    def close(self) -> None: ...


class Engine(Protocol):
    """A way of doing the work; ``Work`` and its tasks can be pickled."""

    def scatter(self, tasks: Sequence[Task], work: Work[Task], parts: int) -> Packets:
        """Do ``work`` on each of ``tasks``, whose packets have the parts 0 to ``parts`` - 1."""


class LocalEngine:
    """Threads of this process, ``threads`` at once (default: one per core)."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    def scatter(self, tasks: Sequence[Task], work: Work[Task], parts: int) -> Packets:
        return self._run_all([partial(work, task) for task in tasks])

    def _run_all(self, jobs: Sequence[Callable[[], Iterator[TaskResult | Packet]]]) -> LocalPackets:
        found = LocalPackets(self._run_all)

        def run(job: Callable[[], Iterator[TaskResult | Packet]]) -> None:
            for each in job():
                found.take(each)

        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for _ in pool.map(run, jobs):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                found.close()
                raise
        return found


class LocalPackets:
    """Results in memory, and packets in an unnamed temporary file."""

    def __init__(
        self, done: Callable[[Sequence[Callable[[], Iterator[TaskResult | Packet]]]], LocalPackets]
    ) -> None:
        self._done = done
        self._answers: list[Any] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._end = 0
        self._lock = threading.Lock()

    def take(self, found: TaskResult | Packet) -> None:
        """Keep a result or a packet. Thread-safe."""
        with self._lock:
            if isinstance(found, TaskResult):
                self._answers.append(found.content)
                return
            self._file.seek(self._end)
            self._file.write(found.content)
            self._places[found.part].append((self._end, len(found.content)))
            self._end += len(found.content)

    def answers(self) -> Iterator[Any]:
        return iter(self._answers)

    def regroup(self, work: WorkOnPart) -> Packets:
        return self._done([partial(work, part, self._of(part)) for part in sorted(self._places)])

    def _of(self, part: int) -> Iterator[bytes]:
        for start, size in self._places[part]:
            with self._lock:
                self._file.seek(start)
                content = self._file.read(size)
            yield content

    def close(self) -> None:
        self._file.close()
