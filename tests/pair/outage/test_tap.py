"""A tap closes everything, at whatever moment it ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from tests.pair.outage.conftest import Pairing
from tests.pair.outage.tap import Tap
from tests.waiting import PATIENCE


@pytest.mark.spec("R-65")
@pytest.mark.parametrize("connections", range(1, 12))
def test_a_tap_that_ends_during_an_accept_leaves_no_connection_open(
    pairing: Pairing, connections: int
) -> None:
    with ExitStack() as clients:
        with Tap(pairing.primary) as tap:
            for _ in range(connections):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", tap.port)))
                client.sendall(b"AMQP\x00\x01\x00\x00")
        del tap
        gc.collect()


class Watched(Tap):
    """A tap that says when it holds bytes which its client does not read."""

    def __init__(self, target: socket.socket) -> None:
        super().__init__(SimpleNamespace(port=target.getsockname()[1], connection_string=""))  # type: ignore[arg-type]
        self.holds = threading.Event()

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        if writer.transport.get_write_buffer_size():
            self.holds.set()
        await writer.drain()


def flood(peer: socket.socket) -> None:
    """Send frames until the other end is gone."""
    with suppress(OSError):
        while True:
            peer.sendall(struct.pack(">IBBH", 1 << 20, 2, 1, 0).ljust(1 << 20, b"\0"))


@pytest.mark.spec("R-65")
def test_a_tap_that_ends_while_a_client_does_not_read_leaves_no_connection_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target, socket.socket() as client:
        with Watched(target) as tap:
            client.connect(("127.0.0.1", tap.port))
            peer, _ = target.accept()
            with peer:
                flooding = threading.Thread(target=flood, args=(peer,))
                flooding.start()
                assert tap.holds.wait(PATIENCE)
                client.shutdown(socket.SHUT_WR)
                flooding.join(PATIENCE)
            assert not flooding.is_alive()
        del tap
        gc.collect()
