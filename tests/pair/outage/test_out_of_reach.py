"""A broker whose directory is not writable, or that is at its limit of descriptors."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.pair.cli.conftest import environment
from tests.waiting import PATIENCE

DESCRIPTORS = 64


@pytest.fixture
def frugal(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A durable broker with a low limit of descriptors."""
    command = ["broker", "--namespace", "contoso:0", "--queue", "contoso/orders", "--json"]
    broker = subprocess.Popen(
        [sys.executable, "-m", "sbpair", *command, "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    yield broker
    broker.kill()
    broker.communicate()


def sent_and_received(connection_string: str, body: str) -> str:
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver("orders", max_wait_time=PATIENCE) as receiver:
            (message,) = receiver.receive_messages(max_message_count=1)
            receiver.complete_message(message)
            return str(message)


@pytest.mark.slow
@pytest.mark.spec("F-89", "S-7")
def test_a_broker_out_of_descriptors_serves_its_connections_and_accepts_others_later(
    frugal: subprocess.Popen[str],
) -> None:
    assert frugal.stdout is not None
    connection_string = json.loads(frugal.stdout.readline())["namespaces"][0]["connection_string"]
    port = urlsplit(connection_string.removeprefix("Endpoint=").partition(";")[0]).port
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
    with client, client.get_queue_sender("orders") as early:
        early.send_messages(ServiceBusMessage("before"))
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * DESCRIPTORS)]
        early.send_messages(ServiceBusMessage("meanwhile"))
        for each in idle:
            each.close()
    assert [sent_and_received(connection_string, "after") for _ in range(3)] == [
        "before",
        "meanwhile",
        "after",
    ]
    frugal.terminate()
    _, errors = frugal.communicate(timeout=PATIENCE)
    assert frugal.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.spec("F-89", "S-10")
@pytest.mark.parametrize("place", ["/proc/no-data", "/sys/no-data"])  # not even root may write there
def test_a_directory_that_may_not_be_written_is_named_at_the_start(place: str) -> None:
    command = [sys.executable, "-m", "sbpair", "broker", "--namespace", "contoso:0", "--data", place]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert place in done.stderr
    assert len(done.stderr.splitlines()) == 1
