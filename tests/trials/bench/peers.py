"""The brokers that are measured: ours as a user runs it, and RabbitMQ where it is installed.

Each is a process of its own on loopback, with its own directory, and is gone afterwards. One that is not
installed is skipped with a word: nothing here requires it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.trials.bench.process import cpu_seconds, family, resident_bytes
from tests.trials.bench.raw_client import Endpoint

QUEUE, DURABLE_QUEUE = "orders", "ledger"
STARTS_WITHIN = 90.0  # seconds


class Peer(ABC):
    """A broker that runs, with the queues ``orders`` (in memory) and ``ledger`` (on disk, if it has one)."""

    name: str
    version: str
    endpoint: Endpoint
    process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End it, and what it wrote."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time it has used."""
        return sum(cpu_seconds(pid) for pid in family(self.process.pid))

    @property
    def resident_bytes(self) -> int:
        """Memory it holds."""
        return sum(resident_bytes(pid) for pid in family(self.process.pid))


class OurBroker(Peer):
    """``sbpair broker``; with ``data`` it keeps everything in a directory."""

    def __init__(self, *, on_disk: bool = False) -> None:
        from sbpair import __version__

        self.name = "sbpair on disk" if on_disk else "sbpair"
        self.version = __version__
        self._directory = tempfile.TemporaryDirectory(prefix="sbpair-bench-")
        command = [sys.executable, "-m", "sbpair.cli", "broker", "--json"]
        command += [
            "--namespace",
            "bench:0",
            "--queue",
            f"bench/{QUEUE}",
            "--queue",
            f"bench/{DURABLE_QUEUE}",
        ]
        if on_disk:
            command += ["--data", self._directory.name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())["namespaces"][0]["connection_string"]
        parts = dict(part.split("=", 1) for part in told.split(";"))
        port = int(parts["Endpoint"].rpartition(":")[2])
        self.endpoint = Endpoint(port, parts["SharedAccessKeyName"], parts["SharedAccessKey"], "localhost")

    def close(self) -> None:
        """End it, and what it wrote."""
        self.process.terminate()
        self.process.wait(30)
        self._directory.cleanup()


class RabbitMq(Peer):
    """RabbitMQ with its plugin for AMQP 1.0, one node of its own. Raises FileNotFoundError, OSError."""

    name = "rabbitmq"

    def __init__(self) -> None:
        scripts = _rabbitmq_scripts()
        self._directory = Path(tempfile.mkdtemp(prefix="sbpair-bench-rabbit-"))
        (self._directory / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        port, between_nodes, names = _free_ports(3)
        self._environment = os.environ | {
            "HOME": str(self._directory),
            "RABBITMQ_NODENAME": "sbpair-bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(between_nodes),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self._directory / "data"),
            "RABBITMQ_LOG_BASE": str(self._directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(self._directory / "none"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._directory / "plugins"),
            "RABBITMQ_PID_FILE": str(self._directory / "pid"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
        }
        self._output = (self._directory / "output").open("w")
        self.process = subprocess.Popen(
            [str(scripts / "rabbitmq-server")],
            env=self._environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            self._wait_for(port)
            self.version = self._ask(scripts, "rabbit_misc:version()").strip().strip('"')
            for queue, durable in ((QUEUE, "false"), (DURABLE_QUEUE, "true")):
                name = f'{{resource, <<"/">>, queue, <<"{queue}">>}}'
                self._ask(
                    scripts, f'rabbit_amqqueue:declare({name}, {durable}, false, [], none, <<"guest">>)'
                )
        except BaseException:
            self.close()
            raise
        self.endpoint = Endpoint(port, "guest", "guest", "localhost", prefix="/amq/queue/")

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            time.sleep(0.05)
        raise OSError(f"RabbitMQ does not start: {(self._directory / 'output').read_text()[-500:]}")

    def _ask(self, scripts: Path, expression: str) -> str:
        command = [str(scripts / "rabbitmqctl"), "-n", "sbpair-bench@localhost", "eval", f"{expression}."]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=STARTS_WITHIN, check=False
        )
        if done.returncode:
            raise OSError(f"RabbitMQ refuses: {done.stderr[-500:]}")
        return done.stdout

    def close(self) -> None:
        """End it, and what it wrote."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        epmd = shutil.which("epmd")
        if epmd is not None:  # Erlang's name server, which its node has left behind
            subprocess.run([epmd, "-kill"], env=self._environment, capture_output=True, check=False)
        self._output.close()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def rabbitmq() -> Iterator[RabbitMq | None]:
    """RabbitMQ, or None and a word where it is not installed or does not start."""
    try:
        peer = RabbitMq()
    except OSError as error:
        print(f"# without RabbitMQ: {error}", flush=True)
        yield None
        return
    with peer:
        yield peer


def _rabbitmq_scripts() -> Path:
    # Debian's script on the path changes the user; those below do not
    for directory in ("/usr/lib/rabbitmq/bin", "/usr/local/lib/rabbitmq/bin"):
        if (Path(directory) / "rabbitmq-server").exists():
            return Path(directory)
    found = shutil.which("rabbitmq-server")
    if found is None:
        raise FileNotFoundError("it is not installed (apt-get install rabbitmq-server)")
    return Path(found).resolve().parent


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
