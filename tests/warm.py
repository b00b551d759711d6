"""Runs programs in processes that begin warm: forked from one that has imported what they import.

A process of its own costs up to a second of processor time before it begins, and the tests run hundreds. Forked, it
still has a process, an environment, a directory and standard streams of its own, and waits for its threads at the end.
Programs whose environment Python itself reads start as users start them.

    python -m tests.warm    serves the socket that is its standard input
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TextIO

LIMIT = 1 << 20  # bytes of a request
IMPORTED = (
    "aiohttp",
    "azure.servicebus.aio.management",
    "azure.servicebus.management",
    "httpx",
    "prometheus_client",
    "pytest",
    "rich.console",
    "rich.live",
    "rich.table",
    "sbpair.broker.public",
    "sbpair.broker.store",
    "sbpair.pair.cli.backlog",
    "sbpair.broker.cli.broker",
    "sbpair.pair.cli.config_file",
    "sbpair.contract.cli.doctor",
    "sbpair.contract.cli.drill",
    "sbpair.broker.cli.entity.peek",
    "sbpair.pair.cli.group",
    "sbpair.broker.cli.proxy",
    "sbpair.pair.cli.spool",
    "sbpair.pair.cli.syphon",
    "sbpair.contract.cli.verify",
    "sbpair.observation",
    "sbpair.pair.paired_client.aio",
    "sbpair.pair.paired_client.blocking",
    "sbpair.processor",
    "sbpair.syphon",
)


class Warm:
    """The process that commands are forked from. Close it at the end."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.warm"]
        self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=environment)
        theirs.close()

    def run(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        timeout: float,
        *,
        program: str = "command",
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of PROGRAMS to its end. Raises TimeoutExpired, after which it is killed."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = self._begin(program, arguments, environment, output.fileno(), errors.fileno())
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            finally:
                process.close()
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(arguments, status, *texts)

    def start(self, arguments: Sequence[str], environment: dict[str, str]) -> WarmProcess:
        """Start ``sbpair`` with the arguments; its output and errors are pipes."""
        output, into_output = os.pipe()
        errors, into_errors = os.pipe()
        process = self._begin("command", arguments, environment, into_output, into_errors)
        os.close(into_output)
        os.close(into_errors)
        process.stdout, process.stderr = open(output), open(errors)  # noqa: SIM115
        return process

    def _begin(
        self, program: str, arguments: Sequence[str], environment: dict[str, str], output: int, errors: int
    ) -> WarmProcess:
        ours, theirs = socket.socketpair()
        request = json.dumps([program, list(arguments), environment, os.getcwd()]).encode()
        socket.send_fds(self._socket, [request], [output, errors, theirs.fileno()])
        theirs.close()
        return WarmProcess(ours, arguments)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)


class WarmProcess:
    """A program that was forked, as subprocess.Popen shows one."""

    stdout: TextIO
    stderr: TextIO

    def __init__(self, answers: socket.socket, arguments: Sequence[str]) -> None:
        self._socket, self._answers = answers, answers.makefile("r")
        self._arguments = arguments
        self.returncode: int | None = None
        self.pid = int(self._answers.readline())

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._socket.settimeout(timeout)
            try:
                self.returncode = os.waitstatus_to_exitcode(int(self._answers.readline()))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0) from None
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._socket], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def serve(requests: socket.socket) -> None:
    """Answer requests until their sender is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, LIMIT, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _watch(*json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(
    program: str,
    arguments: list[str],
    environment: dict[str, str],
    directory: str,
    output: int,
    errors: int,
    answers: int,
) -> NoReturn:
    """Fork the program, and answer with its number, and with its status when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    forked = os.fork()
    if forked:
        os.close(output)  # their reader waits for the last that may write
        os.close(errors)
        os.write(answers, f"{forked}\n".encode())
        _, status = os.waitpid(forked, 0)
        os.write(answers, f"{status}\n".encode())
        os._exit(0)
    os.close(answers)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((null, output, errors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    os._exit(_run(program, arguments))


def _run(program: str, arguments: list[str]) -> int:
    """Run the program, then do what an interpreter does at its end."""
    try:
        code = PROGRAMS[program](arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what was left open says so
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _command(arguments: list[str]) -> int:
    from sbpair.pair.cli.group import run

    sys.argv = ["sbpair", *arguments]
    return run(arguments)


def _file(arguments: list[str]) -> int:
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _pytest(arguments: list[str]) -> int:
    sys.argv = ["pytest", *arguments]
    sys.path.insert(0, os.getcwd())
    return int(import_module("pytest").main(arguments))


PROGRAMS = {
    "command": _command,
    "file": _file,
    "pytest": _pytest,
}  # sbpair, a file of Python, python -m pytest


def main() -> None:
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()  # the commands need not look at what they did not make
    with socket.socket(fileno=os.dup(0)) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
