"""Programs of the documentation as processes, beside `sbpair broker` with a primary that can be taken down."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from azure.servicebus import ServiceBusClient

from sbpair.testing import BrokerProcess
from tests.tools.source import ROOT
from tests.waiting import PATIENCE, wait_until


class Namespaces:
    """A broker process with the namespaces contoso, which has a queue ``orders``, and contoso-dr."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._faults = httpx.Client(headers={"Authorization": f"Bearer {broker.endpoints['faults_token']}"})

    def environment(self, programs: Path) -> dict[str, str]:
        """The variables of a program that imports from the folder ``programs``."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(programs))),
            "SBPAIR_PRIMARY": self._broker.connection_strings["contoso"],
            "SBPAIR_SECONDARY": self._broker.connection_strings["contoso-dr"],
            "SBPAIR_CA_FILE": self._broker.ca_file,
        }

    def take_down(self) -> None:
        down = {"namespace": "contoso", "scenario": "primary-down"}
        self._faults.post(self._broker.endpoints["faults_url"], json=down).raise_for_status()

    def bring_home(self) -> None:
        """Bring the primary up, and forward what is parked."""
        self._faults.delete(self._broker.endpoints["faults_url"]).raise_for_status()
        command = [sys.executable, "-m", "sbpair", "syphon", "--drain"]
        env = self.environment(ROOT)
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=PATIENCE)

    def received(self) -> list[str]:
        """The bodies in the queue, sorted."""
        found: list[str] = []
        with (
            ServiceBusClient.from_connection_string(self._broker.connection_strings["contoso"]) as client,
            client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
        ):
            while batch := receiver.receive_messages(100, max_wait_time=1):
                found += [str(message) for message in batch]
        return sorted(found)

    def close(self) -> None:
        self._faults.close()


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    arguments = ("--namespace", "contoso:0", "--namespace", "contoso-dr:0", "--queue", "contoso/orders")
    with (
        BrokerProcess(*arguments, "--allow-faults") as broker,
        contextlib.closing(Namespaces(broker)) as running,
    ):
        yield running


class Program:
    """A process that writes to the file ``log`` of its folder."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, *texts: str) -> None:
        """Wait until the program has written each text. Raises AssertionError: when it ends before."""
        wait_until(lambda: self._process.poll() is not None or all(text in self.log() for text in texts))
        assert all(text in self.log() for text in texts), self.log()


@contextlib.contextmanager
def running(command: tuple[str, ...], environment: dict[str, str], folder: Path) -> Iterator[Program]:
    """Run a Python module, with its arguments, and end it and its children."""
    log = folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield Program(process, log)
            process.terminate()
            process.wait(PATIENCE)
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
