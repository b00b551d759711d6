"""Run commands as real processes and check that none of them writes a key."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from signal import SIGTERM

import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.envelope.names import backlog_queue_name, ordered_backlog_name
from tests.spellings import spellings
from tests.warm import Warm, WarmProcess

CANARY = "CANARY+/=%pineapple+key/7aQ="
SECONDARY_CANARY = "CANARY%/+=second+pineapple/9bR="

READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "TZ")  # when it starts: environment variables that begin so

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def connection_string(host: str = "127.0.0.1:1", key: str = CANARY) -> str:
    return (
        f"Endpoint=sb://{host};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key};"
        "UseDevelopmentEmulator=true"
    )


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SBPAIR_")}
    return kept | {"PYTHONWARNINGS": "error", "NO_COLOR": "1"} | more


def evaluate(lines: str) -> dict[str, str]:
    """Return what a shell exports for sbpair once it has evaluated ``lines``."""
    script = 'set -eu; eval "$1"; env -0'
    done = subprocess.run(
        ["sh", "-c", script, "sh", lines], capture_output=True, text=True, check=True, env=environment()
    )
    exported = dict(each.partition("=")[::2] for each in done.stdout.split("\0"))
    return {name: value for name, value in exported.items() if name.startswith("SBPAIR_")}


AS_CREATED = {  # the settings of a backlog queue that `sbpair backlog create` makes
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2**31 - 1,
    "lock_duration": 60_000,
    "dead_lettering_on_message_expiration": True,
}


def make_backlogs(secondary: NamespaceControl, count: int = 2, *, is_ordered: bool = False) -> None:
    """Create the backlog queues of contoso as the command does, without starting a process."""
    for index in range(count):
        name = (ordered_backlog_name if is_ordered else backlog_queue_name)("contoso", index)
        secondary.create_queue(name, **AS_CREATED, requires_session=is_ordered)


def assert_clean(text: str) -> None:
    assert "Traceback" not in text
    for secret in (CANARY, SECONDARY_CANARY):
        for spelling in spellings(secret):
            assert spelling not in text


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker with the namespaces contoso, which has a queue ``orders``, and contoso-dr."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


def run_cold(
    arguments: tuple[str, ...], environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does: in an interpreter of its own, from its start."""
    return subprocess.run(
        [sys.executable, "-m", "sbpair", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def _is_cold(env: dict[str, str]) -> bool:
    return any(name.startswith(READ_BY_PYTHON) for name in env)


@pytest.fixture(scope="session")
def sbpair(warm: Warm | None) -> Run:
    """Run a command to its end and check its output for tracebacks and keys."""

    def run(*arguments: str, timeout: float = 100, **env: str) -> subprocess.CompletedProcess[str]:
        how = run_cold if warm is None or _is_cold(env) else warm.run
        done = how(arguments, environment(**env), timeout)
        assert_clean(done.stdout + done.stderr)
        return done

    return run


class Running:
    """A command that runs until it is stopped."""

    def __init__(self, process: subprocess.Popen[str] | WarmProcess) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def line(self, timeout: float = 60) -> str:
        """Return the next line of standard output."""
        return self.lines.get(timeout=timeout)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = SIGTERM, timeout: float = 60) -> tuple[int, str]:
        """Send a signal; return the exit code and the standard error output."""
        self.signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = 60) -> tuple[int, str]:
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return code, "".join(self.errors)

    def close(self) -> None:
        self.process.stdout.close()
        self.process.stderr.close()
        if isinstance(self.process, WarmProcess):
            self.process.close()

    def _read_output(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)

    def _read_errors(self) -> None:
        for line in self.process.stderr:
            self.errors.append(line)


Start = Callable[..., Running]


def _popen(arguments: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sbpair", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )


def _starting(warm: Warm | None) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*arguments: str, **env: str) -> Running:
        how = _popen if warm is None or _is_cold(env) else warm.start
        started.append(Running(how(arguments, environment(**env))))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.wait()
        running.close()
        assert_clean("".join(running.errors))


@pytest.fixture
def start(warm: Warm | None) -> Iterator[Start]:
    """Start a command that runs until a signal; commands still running at the end are killed."""
    yield from _starting(warm)


@pytest.fixture
def start_cold() -> Iterator[Start]:
    """The same, as a user starts it: in an interpreter of its own, from its start."""
    yield from _starting(None)


@pytest.fixture
def keys(broker: Broker) -> dict[str, str]:
    """The environment for the two namespaces of the test's ``broker``."""
    return {
        "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
        "SBPAIR_SECONDARY": broker.namespace("contoso-dr").connection_string,
    }


@pytest.fixture
def pair_environment() -> dict[str, str]:
    """The environment for two namespaces that do not answer."""
    return {
        "SBPAIR_PRIMARY": connection_string("127.0.0.1:1"),
        "SBPAIR_SECONDARY": connection_string("127.0.0.1:2", SECONDARY_CANARY),
    }


@pytest.fixture(scope="session")
def wrong_key() -> Callable[[str], str]:
    """Return a function that replaces the key of a connection string by an invalid one."""

    def replaced(text: str) -> str:
        before, _, after = text.partition("SharedAccessKey=")
        return f"{before}SharedAccessKey={CANARY};{after.partition(';')[2]}"

    return replaced
