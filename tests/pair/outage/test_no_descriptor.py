"""A process without a free descriptor: a healthy primary stays healthy, and sends go on when one is free."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys, threading
from datetime import timedelta
from azure.servicebus import ServiceBusMessage
from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.events import EntityFailedOver, EntitySuspected

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
events, held = [], []
options = PairedNamespaceOptions(failover_interval=timedelta(seconds=1), backlog_queue_count=1)
client = PairedServiceBusClient.from_connection_strings(sys.argv[1], sys.argv[2], options=options)
with client:
    client.on_event(events.append)
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    threading.Timer(4.0, lambda: [os.close(each) for each in held]).start()
    with client.get_queue_sender("orders") as sender:
        receipt = sender.send_messages(ServiceBusMessage("x"))
bad = [event for event in events if isinstance(event, (EntityFailedOver, EntitySuspected))]
print(receipt.stored_in.name, bad)
"""


@pytest.mark.slow
@pytest.mark.spec("R-108", "R-5")
def test_a_process_without_a_descriptor_does_not_leave_a_healthy_primary(pairing) -> None:
    strings = (pairing.primary.connection_string, pairing.secondary.connection_string)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *strings], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("PRIMARY []", 0), done.stderr


DIALLING = """
import asyncio, os, resource, sys
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.ground.shortage import came_of_shortage

async def dial():
    access = parse(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        await connect(access, timeout=10)
    except ConnectionLostError as error:
        print(came_of_shortage(error))
    for each in held:
        os.close(each)
    (await connect(access, timeout=10)).abort()

asyncio.run(dial())
"""


@pytest.mark.spec("R-108")
def test_a_syphon_without_a_descriptor_does_not_blame_the_primary(pairing) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIALLING, pairing.primary.connection_string],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
