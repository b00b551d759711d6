"""A handler may stop its processor, or close its client: neither waits for itself, and the message is settled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sbpair import PairedServiceBusClient
from sbpair.processor import LockEnded, ReceivedMessage
from tests.pair.processor.pair import Pair, numbered, put
from tests.stopwatch import Stopwatch
from tests.waiting import PATIENCE, until, wait_until

SOON = 5.0  # seconds; a stop that waits for its own handler takes thirty


def is_stopped(processor: object) -> bool:
    return "stopped" in repr(processor)


@pytest.mark.spec("R-104", "C-17")
@pytest.mark.parametrize("how", ["itself", "a task of its own"])
async def test_a_coroutine_that_stops_its_processor_continues_and_its_message_is_completed(
    pair: Pair, how: str
) -> None:
    await put(pair.primary, "orders", [numbered(1)])
    ended: list[object] = []

    async def handle(message: ReceivedMessage) -> None:
        stop = processor.stop()
        await (stop if how == "itself" else asyncio.create_task(stop))
        ended.append(message.message_id)

    async with pair.client() as client:
        processor = client.get_queue_processor("orders", handle)
        processor.on_event(pair.events.append)
        with Stopwatch() as stopwatch:
            async with asyncio.timeout(PATIENCE):
                await processor.run()
        assert stopwatch.seconds < SOON
        assert ended == ["m1"]
        assert (is_stopped(processor), pair.left(), pair.said(LockEnded)) == (True, 0, [])


@pytest.mark.spec("R-105", "C-17")
async def test_a_coroutine_that_closes_its_client_closes_everything(pair: Pair) -> None:
    await put(pair.primary, "orders", [numbered(1)])
    closed = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await client.close()
        closed.set()

    client = pair.client()
    sender = client.get_queue_sender("orders")
    processor = client.get_queue_processor("orders", handle)
    with Stopwatch() as stopwatch:
        await processor.__aenter__()
        async with asyncio.timeout(PATIENCE):
            await closed.wait()
            await until(lambda: is_stopped(processor))
    assert stopwatch.seconds < SOON
    with pytest.raises(ValueError, match="closed"):
        await sender.send_messages("x")
    assert pair.left() == 0
    await client.close()


@pytest.mark.spec("R-104", "C-17")
@pytest.mark.parametrize("what", ["processor", "client"])
def test_a_function_that_stops_its_processor_continues_and_its_message_is_completed(
    pair: Pair, what: str
) -> None:
    asyncio.run(put(pair.primary, "orders", [numbered(1)]))
    ended = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        (processor.stop if what == "processor" else client.close)()
        ended.set()

    with PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string, pair.secondary.connection_string
    ) as client:
        processor = client.get_queue_processor("orders", handle)
        with Stopwatch() as stopwatch:
            processor.run()
        assert stopwatch.seconds < SOON
        assert ended.is_set()
        assert is_stopped(processor)
        wait_until(lambda: pair.left() == 0)
        if what == "processor":
            with processor:  # and it starts again
                pass
