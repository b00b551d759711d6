"""ActiveMQ Artemis, as its own command creates a broker: with a journal on disk, tuned to it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.trials.bench.peers.peer import DURABLE_QUEUE, QUEUE, STARTS_WITHIN, Peer, ServerProcess, free_ports
from tests.trials.bench.raw_client import Endpoint

# One acceptor, on loopback; no web console.
DEFAULTS = (
    "--silent", "--user", "guest", "--password", "guest", "--require-login", "--host", "127.0.0.1", "--no-web",
    "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-hornetq-acceptor",
)  # fmt: skip


class Artemis(Peer):
    """A broker of the distribution in ``home``. Raises OSError when it does not start."""

    name = "artemis"

    def __init__(self, home: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sbpair-bench-artemis-"))
        instance = self._directory / "broker"
        (port,) = free_ports(1)
        try:
            command = [str(home / "bin" / "artemis"), "create", str(instance), *DEFAULTS]
            command += ["--default-port", str(port), "--queues", f"{QUEUE},{DURABLE_QUEUE}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=STARTS_WITHIN, check=False)
            if done.returncode:
                raise OSError(f"it creates no broker: {(done.stderr or done.stdout)[-500:]}")
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self._server = ServerProcess([str(instance / "bin" / "artemis"), "run"], self._directory)
        self.pid = self._server.pid
        try:
            self._server.wait_for_port(port)
        except BaseException:
            self.close()
            raise
        (jar,) = (home / "lib").glob("artemis-server-[0-9]*.jar")
        self.version = jar.stem.removeprefix("artemis-server-")
        self.endpoint = Endpoint(port, "guest", "guest", "localhost")

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)
