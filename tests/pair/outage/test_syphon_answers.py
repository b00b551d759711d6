"""Completions without an answer, stops at random moments, and servers with untrusted certificates."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.broker import Broker
from sbpair.broker.certificates import provide
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.route import Route
from sbpair.pair.client.connection import connect
from sbpair.syphon import NamespaceUnusableError
from sbpair.testing import ChaosProxy
from tests.pair.syphon.pair import BACKLOGS, Pair, arrived, pair_of, parked
from tests.waiting import PATIENCE, until

YEAR = 365 * 86_400
TLS_HANDSHAKE = 0x16  # the first byte of a TLS handshake, as opposed to AMQP in plain text


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield pair_of(broker)


@pytest.mark.slow
@pytest.mark.spec("F-64")
async def test_completions_with_lost_answers_block_nothing_and_repeat_nothing(pair: Pair) -> None:
    with ChaosProxy("127.0.0.1", pair.secondary.port) as proxy:
        settings = {"operation_timeout": timedelta(seconds=3), "retry_backoff_max": timedelta(seconds=0.1)}
        syphon = pair.syphon(secondary_endpoint_address=f"127.0.0.1:{proxy.port}", **settings)
        shutdown = asyncio.Event()
        running = asyncio.create_task(syphon.run(shutdown))
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)

        lost = proxy.on(
            "disposition", action="drop", direction="out", address=f"{pair.backlog(0)}*", nth=None
        )
        await pair.park([parked(number) for number in range(1, 11)])
        await until(lambda: pair.waiting() == 0 and syphon.counters.forwarded == 11)
        proxy.remove(lost)
        await until(lambda: syphon.counters.pending == 0)  # it has given up waiting and reconnected
        await pair.park([parked(11)])
        await until(lambda: pair.primary.counts("orders").active == 12)
        shutdown.set()
        await running
    assert await arrived(pair) == {f"m{number}": 1 for number in range(12)}
    assert pair.set_aside() == 0


@pytest.mark.slow
@pytest.mark.spec("F-22", "G-27")
async def test_a_syphon_stopped_at_twenty_random_moments_loses_and_repeats_nothing(pair: Pair) -> None:
    """It stops as for SIGTERM. The locks last five minutes, so a message that is not released stays invisible."""
    random_moment = random.Random(22).uniform
    for index in range(BACKLOGS):
        queue = pair.secondary.description(pair.backlog(index))
        pair.secondary.update_queue(pair.backlog(index), replace(queue, lock_duration=300_000))
        await pair.park([parked(number) for number in range(index, 2000, BACKLOGS)], index)
    for _ in range(20):
        shutdown = asyncio.Event()
        asyncio.get_running_loop().call_later(random_moment(0.0, 0.05), shutdown.set)
        async with asyncio.timeout(PATIENCE):
            await pair.syphon(window=50).run(shutdown)
        assert pair.primary.counts("orders").active + pair.waiting() == 2000
    async with asyncio.timeout(PATIENCE):
        await pair.syphon().drain()
    assert await arrived(pair) == {f"m{number}": 1 for number in range(2000)}
    assert pair.set_aside() == 0


@contextmanager
def port_of(context: ssl.SSLContext, host: str) -> Iterator[tuple[int, list[int]]]:
    """Serve TLS with this certificate; yield the port and the first byte of each connection."""
    came: list[int] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                came.extend(peer.recv(1, socket.MSG_PEEK))
                try:
                    context.wrap_socket(peer, server_side=True).close()
                except OSError:
                    pass

    with socket.create_server((host, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], came
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


@pytest.mark.spec("F-31", "S-6")
@pytest.mark.parametrize(
    ("made_at", "host", "is_known", "says"),
    [
        (-20 * YEAR, "127.0.0.1", True, "expired"),
        (0, "127.0.0.2", True, "127.0.0.2"),
        (0, "127.0.0.1", False, "certificate"),
    ],
    ids=["expired", "another host", "an unknown authority"],
)
async def test_an_untrusted_certificate_is_refused_and_nothing_is_sent_in_plain_text(
    made_at: int, host: str, is_known: bool, says: str
) -> None:
    with (
        provide([], int(time.time()) + made_at) as certificates,
        port_of(certificates.ssl_context(), host) as (port, came),
    ):
        text = "Endpoint=sb://contoso.example/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
        namespace = parse(text).dial_at(f"{host}:{port}")
        ca_file = str(certificates.ca_file) if is_known else None
        with pytest.raises(NamespaceUnusableError, match=says):
            await connect(namespace.along(Route(ca_file)), timeout=PATIENCE)
    assert came == [TLS_HANDSHAKE]
