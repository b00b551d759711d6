"""A tap closes everything, at whatever moment it ends."""

from __future__ import annotations

import gc
import socket
from contextlib import ExitStack

import pytest

from tests.outage.conftest import Pairing
from tests.outage.tap import Tap


@pytest.mark.spec("R-65")
@pytest.mark.parametrize("connections", range(1, 12))
def test_a_tap_that_ends_while_it_accepts_leaves_no_connection_open(
    pairing: Pairing, connections: int
) -> None:
    with ExitStack() as clients:
        with Tap(pairing.primary) as tap:
            for _ in range(connections):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", tap.port)))
                client.sendall(b"AMQP\x00\x01\x00\x00")
        del tap
        gc.collect()
