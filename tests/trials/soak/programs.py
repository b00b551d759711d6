"""The programs of the soak: two paired senders, blocking and asyncio, and a consumer with the plain SDK.

    python -m tests.trials.soak.programs sender|aio-sender|consumer RATE

Each message is a line on standard output: "? id" before a send, "! id" when it raised (it is sent again with
the same id), "+ id stored_in ambiguous" when it was accepted, "= id number" when the consumer has it. They exit
when their standard input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, SendReceipt, aio

BACKLOGS = 2
BODY = b"x" * 500
AGAIN_AFTER = 0.2  # seconds


def options(failover_interval: float) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=failover_interval),
        ping_primary_interval=timedelta(seconds=1),
        operation_timeout=timedelta(seconds=4),  # below the outage's length: silence is noticed in it
        backlog_queue_count=BACKLOGS,
        assume_backlogs_exist=True,
    )


def _ends() -> tuple[str, str]:
    return os.environ["PRIMARY"], os.environ["SECONDARY"]


def _say(*words: object) -> None:
    """One write a line: lines of several threads do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _accepted(key: str, receipt: SendReceipt | None) -> None:
    assert receipt is not None
    _say("+", key, receipt.stored_in.value, int(receipt.ambiguous))


def _told_to_stop() -> threading.Event:
    is_over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait, daemon=True).start()
    return is_over


def send(rate: float) -> None:
    """Redirects at the first failure (P-3 with an interval of 0)."""
    is_over, began = _told_to_stop(), time.monotonic()
    client = PairedServiceBusClient.from_connection_strings(*_ends(), options=options(0))
    with client, client.get_queue_sender("orders") as sender:
        for number in itertools.count():
            if is_over.wait(max(0.0, began + number / rate - time.monotonic())):
                return
            key = f"a{number}"
            _say("?", key)
            message = ServiceBusMessage(BODY, message_id=key)
            while True:
                try:
                    _accepted(key, sender.send_messages(message))
                    break
                except ServiceBusError:
                    _say("!", key)
                    is_over.wait(AGAIN_AFTER)


async def send_with_asyncio(rate: float) -> None:
    """Raises for a second (an interval of 1 s), and sends again."""
    is_over, loop = _told_to_stop(), asyncio.get_running_loop()
    began = loop.time()
    client = aio.PairedServiceBusClient.from_connection_strings(*_ends(), options=options(1))
    async with client, client.get_queue_sender("orders") as sender:
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            if is_over.is_set():
                return
            key = f"b{number}"
            _say("?", key)
            message = ServiceBusMessage(BODY, message_id=key)
            while True:
                try:
                    _accepted(key, await sender.send_messages(message))
                    break
                except ServiceBusError:
                    _say("!", key)
                    await asyncio.sleep(AGAIN_AFTER)


def consume() -> None:
    """Tells what came before it completes it: what a lost completion brings again has the same number."""
    is_over = _told_to_stop()
    while not is_over.is_set():
        try:
            with (
                ServiceBusClient.from_connection_string(os.environ["PRIMARY"]) as client,
                client.get_queue_receiver("orders") as receiver,
            ):
                while not is_over.is_set():
                    for message in receiver.receive_messages(100, max_wait_time=0.5):
                        _say("=", message.message_id, message.sequence_number)
                        receiver.complete_message(message)
        except ServiceBusError:
            is_over.wait(AGAIN_AFTER)


def main() -> None:
    kind, rate = sys.argv[1], float(sys.argv[2])
    if kind == "sender":
        send(rate)
    elif kind == "aio-sender":
        asyncio.run(send_with_asyncio(rate))
    else:
        consume()


if __name__ == "__main__":
    main()
