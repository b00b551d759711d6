"""A broker in a process of its own, for test suites of any framework.

    with BrokerProcess("--queue", "test/orders") as broker:
        client = ServiceBusClient.from_connection_string(broker.connection_string)

The broker ends when the process that started it ends, for any reason. In the tests' own process the fixtures of
``sbpair.broker.testing.plugin`` are faster. A process of its own can be shared by the workers of a run, and killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import IO

STARTS_WITHIN = 30.0  # seconds
ENDS_WITHIN = 10.0


class BrokerNotStartedError(RuntimeError):
    """`sbpair broker` ended, or printed nothing in time; the text contains its standard error output."""


class BrokerProcess:
    """Runs `sbpair broker` while entered: the namespace ``test`` on a free port, unless ``arguments`` name others.

    ``arguments`` are flags of the command (`sbpair broker --help`). ``within``: seconds to start. Entering raises
    BrokerNotStartedError.
    """

    def __init__(self, *arguments: str, within: float = STARTS_WITHIN) -> None:
        named = any(each.split("=")[0] in ("--namespace", "--config", "--emulator") for each in arguments)
        self._arguments = (
            *(() if named else ("--namespace", "test:0")),
            "--page",
            "off",
            *arguments,
            "--stop-with-stdin",
            "--json",
        )
        self._within = within
        self._errors: IO[bytes]
        self._process: subprocess.Popen[bytes]
        self.connection_strings: dict[str, str] = {}
        """By namespace; filled by entering."""
        self.ca_file = ""
        """The certificate authority, for administration clients."""
        self.endpoints: dict[str, str] = {}
        """Other printed values: ``faults_url``, ``faults_token``, ``time_url``, ``time_token``, ``management_url``."""

    def __enter__(self) -> BrokerProcess:
        self._errors = tempfile.TemporaryFile()
        try:
            self._start()
        except BaseException:
            self._errors.close()
            raise
        return self

    def _start(self) -> None:
        command = [sys.executable, "-m", "sbpair", "broker", *self._arguments]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        try:
            printed = json.loads(self._first_line())
        except BaseException:
            self._end()
            raise
        self.connection_strings = {
            each["name"]: each["connection_string"] for each in printed.pop("namespaces")
        }
        self.ca_file = printed.pop("ca_file")
        self.endpoints = printed

    def _first_line(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        killer = threading.Timer(self._within, self._process.kill)
        killer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            killer.cancel()
            killer.join()
        if not line:
            self._process.wait(ENDS_WITHIN)
            raise BrokerNotStartedError(
                f"sbpair broker ended with {self._process.returncode}: {self.errors()}"
            )
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._errors.close()

    def _end(self) -> None:
        with self._process:  # closes the pipe and waits
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(ENDS_WITHIN)
                except subprocess.TimeoutExpired:
                    self._process.kill()

    @property
    def connection_string(self) -> str:
        """The connection string of the only namespace. Raises ValueError if there are several."""
        (found,) = self.connection_strings.values()
        return found

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    def errors(self) -> str:
        """Return the text that the process has written to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()
