"""The clients that are tried: each a driver program, and how to start it; packages come as in the interop tests."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

from sbpair import __version__
from tests import peers

DRIVERS = Path(__file__).with_name("drivers")
ROOT = Path(__file__).resolve().parents[3]
Program = Callable[[Path], "Start"]
"""Makes a client ready to start; a directory is given for what it builds."""


@dataclass(frozen=True, slots=True)
class Start:
    """A command and the variables it needs."""

    command: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A client: its name in options and results, its title on the page, its version, and how it starts."""

    name: str
    title: str
    version: str
    start: Program


def _python(module: str, *arguments: str) -> Program:
    command = (sys.executable, "-m", f"tests.trials.clients.drivers.{module}", *arguments)
    return lambda into: Start(command, {"PYTHONPATH": str(ROOT)})


def _javascript(into: Path) -> Start:
    modules = peers.service_bus_directory() / "node_modules"
    return Start(("node", str(DRIVERS / "driver.js")), {"NODE_PATH": str(modules)})


def _java(into: Path) -> Start:
    classes = into / "classes"
    libraries = peers.java_classpath()
    subprocess.run(
        ["javac", "-d", str(classes), "-cp", libraries, str(DRIVERS / "Driver.java")],
        check=True,
        timeout=peers.FIRST_BUILD,
    )
    light = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    return Start(("java", *light, "-cp", f"{classes}{os.pathsep}{libraries}", "Driver"), {})


def _go(into: Path) -> Start:
    return Start((str(peers.go_program(DRIVERS / "go_driver", into)),), {})


_SDK, _OURS = version("azure-servicebus"), __version__
CONTESTANTS: tuple[Contestant, ...] = (
    Contestant("python", "Python", _SDK, _python("python_blocking")),
    Contestant("python-asyncio", "Python asyncio", _SDK, _python("python_asyncio")),
    Contestant("javascript", "JavaScript", peers.SERVICE_BUS_VERSION, _javascript),
    Contestant("java", "Java", peers.JAVA_SERVICE_BUS_VERSION, _java),
    Contestant("go", "Go", "1.10.0", _go),
    Contestant("sbpair", "sbpair", _OURS, _python("sbpair_blocking", "raise")),
    Contestant("sbpair-asyncio", "sbpair asyncio", _OURS, _python("sbpair_asyncio", "raise")),
    Contestant("sbpair-failover", "sbpair with failover", _OURS, _python("sbpair_asyncio", "failover")),
)
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}


class NoAnswerError(Exception):
    """The driver did not answer in time, or ended; the text says which."""


class Driver:
    """A running driver. A context manager: leaving it kills the process."""

    def __init__(self, start: Start, ca_file: str) -> None:
        self._process = subprocess.Popen(
            start.command,
            env={**os.environ, **start.variables, "NODE_EXTRA_CA_CERTS": ca_file},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def ask(self, command: Mapping[str, object], within: float) -> dict[str, Any]:
        """Send a command and return its answer. Raises NoAnswerError ``within`` seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise NoAnswerError(f"no answer within {within:g} s") from None
        except BrokenPipeError:
            raise NoAnswerError("the driver has ended") from None
        if not line:
            raise NoAnswerError(f"the driver ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # a library may print a warning of its own
                self._lines.put(line)
        self._lines.put("")
