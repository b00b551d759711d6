"""A send of the asyncio client can be cancelled, ends with many others, and its client closes meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair.aio import EntityState, SendReceipt, StoredIn
from sbpair.broker.faults import Withhold
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch
from tests.waiting import until

OVERRUN = 0.5  # seconds after the deadline that the asyncio sender may take


@pytest.fixture
def in_trouble(aio_pairing, trouble: str) -> Iterator[Callable[[], object]]:
    """Return a function that starts the trouble, which lasts until the end of the test."""
    with ExitStack() as until_the_end:
        if trouble == "silent peer":
            until_the_end.callback(aio_pairing.primary.bring_up)
            yield lambda: aio_pairing.primary.take_down("silent")
        else:
            yield lambda: until_the_end.enter_context(aio_pairing.primary.fault("orders", Withhold()))


@pytest.mark.slow
@pytest.mark.spec("G-18", "F-25")
@pytest.mark.parametrize("trouble", ["silent peer", "withheld ack"])
async def test_the_link_of_a_call_that_overran_is_not_used_again(aio_pairing, in_trouble) -> None:
    sender = aio_pairing.client(interval=60, suspect_policy="raise").get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("before"), timeout=60)
    pool = aio_pairing.pool("orders")
    (used,) = pool._senders
    in_trouble()
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("lost"), timeout=5)
    assert used not in pool._senders
    assert not pool.calls


@pytest.mark.spec("G-18", "F-25")
@pytest.mark.parametrize("trouble", ["silent peer"])
@pytest.mark.parametrize(
    ("policy", "timeout", "end"), [("redirect", 10.0, SendReceipt), ("raise", 1.0, ServiceBusError)]
)
async def test_more_sends_than_links_hang_together_and_end_together(
    aio_pairing, in_trouble, policy: str, timeout: float, end: type
) -> None:
    client = aio_pairing.client(interval=60, suspect_policy=policy, attempt_timeout=timedelta(seconds=0.5))
    sender = client.get_queue_sender("orders")
    in_trouble()
    with Stopwatch() as watch:
        ended = await asyncio.gather(
            *(sender.send_messages(ServiceBusMessage("x"), timeout=timeout) for _ in range(60)),
            return_exceptions=True,
        )
    assert watch.seconds < timeout + OVERRUN
    assert {isinstance(each, end) for each in ended} == {True}


@pytest.mark.spec("G-18")
@pytest.mark.parametrize("is_open", [False, True], ids=["cold link", "open link"])
@pytest.mark.parametrize("trouble", ["silent peer", "withheld ack"])
async def test_a_waiting_send_can_be_cancelled_anywhere(aio_pairing, in_trouble, is_open: bool) -> None:
    client = aio_pairing.client(interval=60, timeout=30)
    sender = client.get_queue_sender("orders")
    if is_open:
        await sender.send_messages(ServiceBusMessage("before"), timeout=60)
    in_trouble()
    for moment in (0.0, 0.01, 0.3):
        sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
        await asyncio.wait((sending,), timeout=moment)
        with Stopwatch() as watch:
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        assert watch.seconds < OVERRUN
    assert client.state_of("orders") is EntityState.HEALTHY  # a cancellation is not a failure (P-3)
    assert not aio_pairing.pool("orders").calls


async def test_a_sender_works_after_a_cancelled_send(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60).get_queue_sender("orders")
    with aio_pairing.primary.fault("orders", Withhold()), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await sender.send_messages(ServiceBusMessage("given up"))
    assert (await sender.send_messages(ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("trouble", ["silent peer", "withheld ack"])
async def test_a_cancelled_schedule_leaves_no_task_that_fails_unheard(
    aio_pairing, in_trouble, moment: float
) -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    client = aio_pairing.client(interval=60, timeout=30)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("before"), timeout=60)
    in_trouble()
    later = datetime.now(UTC) + timedelta(hours=1)
    calling = asyncio.create_task(sender.schedule_messages(ServiceBusMessage("x"), later))
    await asyncio.wait((calling,), timeout=moment)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await client.close()
    del calling
    gc.collect()
    assert unheard == []


@pytest.mark.spec("R-20")
async def test_a_close_that_was_cancelled_can_be_repeated_and_leaves_no_connection(aio_pairing) -> None:
    client = aio_pairing.client(interval=60)
    receiver = client.get_queue_receiver("orders")
    await receiver.peek_messages()
    assert aio_pairing.primary.connection_count == 1
    closing = asyncio.create_task(client.close())
    await runtime_of(client)._closing.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await client.close()
    await until(lambda: not aio_pairing.primary.connection_count)


async def test_closes_at_once_wait_for_each_other_and_leave_no_connection(aio_pairing) -> None:
    client = aio_pairing.client(interval=60)
    aio_pairing.primary.create_queue("invoices")
    for entity in ("orders", "invoices"):
        sender = client.get_queue_sender(entity)
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage("x")) for _ in range(3)))
    assert aio_pairing.primary.connection_count > 0
    closing = [asyncio.create_task(client.close()) for _ in range(3)]
    await asyncio.gather(*closing)  # no close cancels another
    await until(lambda: not aio_pairing.primary.connection_count)  # the broker notices shortly afterwards
    assert not runtime_of(client)._tasks._running
