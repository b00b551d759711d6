"""``sbpair broker``, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from sbpair import __version__
from tests.trials.bench.peers.peer import DURABLE_QUEUE, QUEUE, Peer
from tests.trials.bench.raw_client import endpoint_of

STOPS_WITHIN = 30.0  # seconds


class OurBroker(Peer):
    """A process of the command; ``on_disk`` gives it a directory to keep everything in.

    It announces the service's numbers over AMQP; ``fast``: the larger ones.
    """

    def __init__(self, *, on_disk: bool = False, fast: bool = False) -> None:
        self.name = "sbpair on disk" if on_disk else "sbpair --fast" if fast else "sbpair"
        self.version = __version__
        self._directory = tempfile.TemporaryDirectory(prefix="sbpair-bench-")
        command = [sys.executable, "-m", "sbpair", "broker", "--json", "--namespace", "bench:0"]
        for queue in (QUEUE, DURABLE_QUEUE):
            command += ["--queue", f"bench/{queue}"]
        if fast:
            command.append("--fast")
        if on_disk:
            command += ["--data", self._directory.name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        try:
            assert self._process.stdout is not None
            printed = json.loads(self._process.stdout.readline())
        except BaseException:
            self.close()
            raise
        self.endpoint = endpoint_of(printed["namespaces"][0]["connection_string"])

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self._process.terminate()
        self._process.communicate(timeout=STOPS_WITHIN)
        self._directory.cleanup()
