"""Runs commands in processes that begin warm: forked from one that has imported what the commands import.

A command of its own process costs a quarter of a second of processor time before it begins, and the tests run
hundreds. Forked, it still has a process, an environment, a directory and standard streams of its own, and waits for its
threads at the end. Daemons, and commands whose environment Python itself reads, start as users start them.

    python -m tests.cli.warm    serves the socket that is its standard input
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from typing import NoReturn

LIMIT = 1 << 20  # bytes of a request
IMPORTED = (
    "aiohttp",
    "azure.servicebus.aio.management",
    "azure.servicebus.management",
    "httpx",
    "prometheus_client",
    "rich.console",
    "rich.live",
    "rich.table",
    "sbpair.broker",
    "sbpair.cli.backlog",
    "sbpair.cli.broker",
    "sbpair.cli.config_file",
    "sbpair.cli.doctor",
    "sbpair.cli.drill",
    "sbpair.cli.entity.peek",
    "sbpair.cli.group",
    "sbpair.syphon",
)


class Warm:
    """The process that commands are forked from. Close it at the end."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.cli.warm"]
        self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=environment)
        theirs.close()

    def run(
        self, arguments: tuple[str, ...], environment: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``sbpair`` with the arguments. Raises TimeoutExpired, after which the command is killed."""
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            request = json.dumps([arguments, environment, os.getcwd()]).encode()
            descriptors = [output.fileno(), errors.fileno(), theirs.fileno()]
            socket.send_fds(self._socket, [request], descriptors)
            theirs.close()
            ours.settimeout(timeout)
            with ours.makefile("r") as answers:
                process = int(answers.readline())
                try:
                    status = int(answers.readline())
                except TimeoutError:
                    os.kill(process, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(arguments, timeout) from None
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), *texts)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)


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
    arguments: list[str], environment: dict[str, str], directory: str, output: int, errors: int, answers: int
) -> NoReturn:
    """Fork the command, and answer with its number, and with its status when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        os.write(answers, f"{command}\n".encode())
        _, status = os.waitpid(command, 0)
        os.write(answers, f"{status}\n".encode())
        os._exit(0)
    os.close(answers)
    os._exit(_run(arguments, environment, directory, output, errors))


def _run(arguments: list[str], environment: dict[str, str], directory: str, output: int, errors: int) -> int:
    from sbpair.cli.group import run

    null = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((null, output, errors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["sbpair", *arguments]
    code = run(arguments)
    threading._shutdown()  # type: ignore[attr-defined]  # what follows is what an interpreter does at its end
    atexit._run_exitfuncs()
    gc.collect()  # what was left open says so
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main() -> None:
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()  # the commands need not look at what they did not make
    with socket.socket(fileno=os.dup(0)) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
