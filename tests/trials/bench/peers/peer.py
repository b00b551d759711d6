"""The interface of a measured broker, and the process of a peer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.trials.bench.process import cpu_seconds, family, resident_bytes
from tests.trials.bench.raw_client import Endpoint

QUEUE, DURABLE_QUEUE = "orders", "ledger"
STARTS_WITHIN = 90.0  # seconds
ENDS_WITHIN = 20.0  # seconds


class Peer(ABC):
    """A broker that runs, with the queues ``orders`` (in memory) and ``ledger`` (on disk, if it has one)."""

    name: str
    version: str
    endpoint: Endpoint
    pid: int
    part = 1  # divides the number of durable messages in a round

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what it wrote."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time it has used."""
        return sum(cpu_seconds(pid) for pid in family(self.pid))

    @property
    def resident_bytes(self) -> int:
        """Memory it holds."""
        return sum(resident_bytes(pid) for pid in family(self.pid))


class ServerProcess:
    """A server and all that it starts, in a process group of its own; it prints to ``output`` in ``directory``."""

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._output = directory / "output"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.pid = self._process.pid

    def wait_for_port(self, port: int) -> None:
        """Return when it listens there. Raises OSError, with the end of its output, when it ends before or is late."""

        def listens() -> bool:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            return False

        self._wait_until(listens)

    def wait_for_line(self, part: str) -> None:
        """Return when it has printed this. Raises OSError as above."""
        self._wait_until(lambda: part in self._printed())

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            if is_ready():
                return
            time.sleep(0.05)
        raise OSError(f"it does not start: {self._printed()[-500:]}")

    def _printed(self) -> str:
        return self._output.read_text(errors="replace")

    def close(self) -> None:
        """End it, by force when it takes too long."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_WITHIN)
        self._signal(signal.SIGKILL)  # what it leaves behind, too
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def free_ports(count: int) -> list[int]:
    """So many ports of loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
