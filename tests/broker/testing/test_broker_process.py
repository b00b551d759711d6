"""A broker process for test suites: it answers once entered, and is gone afterwards in any case."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.testing import BrokerNotStartedError, BrokerProcess

pytestmark = pytest.mark.spec("E-6")


def port_of(text: str) -> int:
    return int(text.split("localhost:")[1].split(";")[0])


def test_the_broker_process_answers_only_while_the_context_is_entered() -> None:
    with BrokerProcess("--queue", "test/orders") as broker:
        text = broker.connection_string
        with (
            ServiceBusClient.from_connection_string(text) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        assert broker.errors() == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", port_of(text)))


@pytest.mark.slow
def test_several_namespaces_and_faults_are_set_as_by_the_command() -> None:
    with BrokerProcess("--namespace", "a:0", "--namespace", "b:0", "--allow-faults") as broker:
        assert list(broker.connection_strings) == ["a", "b"]
        assert broker.endpoints["faults_url"].startswith("http://127.0.0.1:")
        with pytest.raises(ValueError, match="too many values"):
            _ = broker.connection_string


def test_a_broker_that_does_not_start_says_why_and_leaves_nothing_open() -> None:
    with pytest.raises(
        BrokerNotStartedError, match="ended with 2: sbpair: broker: --queue names no --namespace: other"
    ):
        BrokerProcess("--queue", "other/orders").__enter__()


def test_a_broker_that_starts_too_slowly_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.toml")  # whoever reads it waits
    with pytest.raises(BrokerNotStartedError, match="ended with -9"):
        BrokerProcess("--faults", str(tmp_path / "plan.toml"), within=0.1).__enter__()


def test_a_killed_broker_is_gone_at_once() -> None:
    with BrokerProcess() as broker:
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", port_of(broker.connection_string)))


def test_a_suite_that_is_killed_leaves_no_broker_behind() -> None:
    program = (
        "from sbpair.testing import BrokerProcess\n"
        "with BrokerProcess() as broker:\n"
        "    print(broker.connection_string, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as suite:
        assert suite.stdout is not None
        try:
            text = suite.stdout.readline()
            suite.send_signal(signal.SIGKILL)
            suite.wait()
            wait_refused(port_of(text))
        except BaseException:
            suite.kill()
            raise


def wait_refused(port: int) -> None:
    """Return once nothing listens on the port; a broker that stays is found by the time limit of the test."""
    while True:
        try:
            with socket.create_connection(("localhost", port)) as connection:
                connection.recv(1)  # until the broker closes it, or has closed it
        except OSError:
            return
