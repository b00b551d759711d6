"""The processes of the soak: two brokers, two senders, a syphon and a consumer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from .programs import BACKLOGS

LOCK = timedelta(seconds=5)
WINDOW = 50  # messages of one backlog that the syphon has in hands at most
PATIENCE = 60.0  # seconds: the bound of every wait for a process


class Process:
    """One of them; what it writes to standard error is in ``folder``."""

    def __init__(self, name: str, folder: Path, module: str, *arguments: str, **environment: str) -> None:
        self.name = name
        with (folder / f"{name}.log").open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    def answer(self) -> Any:
        """One line of JSON. Raises AssertionError where the process has ended instead."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"{self.name} ended with {self._popen.wait(PATIENCE)}; see {self.name}.log"
        return json.loads(line)

    def follow(self, hear: Callable[[list[str]], None]) -> None:
        """Pass on the words of each line that it writes, in a thread."""

        def read() -> None:
            assert self._popen.stdout is not None
            for line in self._popen.stdout:
                hear(line.split())

        self._reader = threading.Thread(target=read, name=self.name, daemon=True)
        self._reader.start()

    def leave(self) -> int:
        """End its standard input, and wait for it."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        return self._ended()

    def stop(self) -> int:
        """SIGTERM, and wait for it."""
        self._popen.send_signal(signal.SIGTERM)
        return self._ended()

    def clean(self) -> None:
        """Whatever happened, leave nothing behind."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(PATIENCE)
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None and not stream.closed:
                stream.close()

    def _ended(self) -> int:
        code = self._popen.wait(PATIENCE)
        if self._reader is not None:
            self._reader.join(PATIENCE)
        return code


def broker(name: str, namespace: str, folder: Path, *more: str) -> tuple[Process, dict[str, Any]]:
    """A broker that keeps its namespace on disk, and what it printed."""
    data = str(folder / namespace)
    process = Process(
        name, folder, "sbpair", "broker", "--namespace", f"{namespace}:0", "--data", data, "--json", *more
    )
    try:
        return process, process.answer()
    except BaseException:
        process.clean()
        raise


def create_orders(primary: str, ca_file: str) -> None:
    """A queue whose locks end soon: what a consumer had in hands when it was cut off comes again soon."""
    with ServiceBusAdministrationClient.from_connection_string(primary, connection_verify=ca_file) as admin:
        admin.create_queue("orders", lock_duration=LOCK)


def create_backlogs(secondary: str, ca_file: str) -> None:
    """As an operator does, whose senders need no right to (P-11)."""
    subprocess.run(
        [
            *(sys.executable, "-m", "sbpair", "backlog", "create", "--ca-file", ca_file),
            *("--count", str(BACKLOGS), "--primary-namespace-name", "contoso"),
        ],
        env=os.environ | {"SBPAIR_SECONDARY": secondary},
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )


def syphon(folder: Path, environment: dict[str, str], *more: str) -> Process:
    ends = {"SBPAIR_PRIMARY": environment["PRIMARY"], "SBPAIR_SECONDARY": environment["SECONDARY"]}
    return Process(
        "syphon",
        folder,
        "sbpair",
        "syphon",
        *("--backlogs", str(BACKLOGS), "--primary-namespace-name", "contoso", "--window", str(WINDOW)),
        *("--retry-backoff-max", "2s", "--json", *more),
        **ends,
    )


def program(kind: str, folder: Path, rate: float, environment: dict[str, str]) -> Process:
    return Process(kind, folder, "tests.trials.soak.programs", kind, str(rate), **environment)
