"""A proxy between two TLS connections ends at once and leaves no socket, in any state of its connections.

It accepts connections again after one could not be accepted.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sbpair.broker.certificates import Certificates, provide
from sbpair.broker.testing.streams import accept_until
from sbpair.testing import ChaosProxy
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.spec("E-7")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory: Path = tmp_path_factory.mktemp("tls")
    return provide(("localhost",), int(time.time()), directory)


def test_the_server_stops_while_a_client_does_not_start_its_handshake(certificates: Certificates) -> None:
    context = certificates.ssl_context()
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        ChaosProxy(*target.getsockname(), client_tls=context) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.sendall(b"\x16")
        proxy.__exit__(None, None, None)
        client.settimeout(30)
        with suppress(ConnectionError):
            assert client.recv(1) == b""
    gc.collect()


def test_the_server_stops_while_its_target_does_not_answer_the_handshake(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        ChaosProxy("localhost", target.getsockname()[1], target_tls=context) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)),
    ):
        silent, _ = target.accept()
        with silent:
            assert silent.recv(1) == b"\x16"
            proxy.__exit__(None, None, None)
    gc.collect()


class Exhausted(socket.socket):
    """A listener without descriptors for its connections, ``failures`` times."""

    failures = 1
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        if self.tries <= self.failures:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def test_a_connection_that_cannot_be_accepted_is_accepted_later() -> None:
    stop, served = asyncio.Event(), asyncio.Event()

    async def serve(connection: socket.socket) -> None:
        connection.close()
        served.set()

    with Exhausted() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        accepting = asyncio.create_task(accept_until(stop, listener, serve))
        client.connect(listener.getsockname())
        try:
            await asyncio.wait_for(served.wait(), PATIENCE)
        finally:
            stop.set()
            await accepting


async def test_the_server_stops_while_no_connection_can_be_accepted() -> None:
    async def serve(connection: socket.socket) -> None:
        connection.close()

    stop = asyncio.Event()
    with Exhausted() as listener, socket.socket() as client:
        listener.failures = sys.maxsize
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        accepting = asyncio.create_task(accept_until(stop, listener, serve))
        client.connect(listener.getsockname())
        await until(lambda: listener.tries)
        stop.set()
        assert await asyncio.wait_for(accepting, PATIENCE) == set()
