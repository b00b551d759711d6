"""A server that ends while clients connect closes every connection that it accepted."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from sbpair.broker import Broker
from sbpair.broker.server.dashboard import Page
from sbpair.pair.observation.status import Status, StatusThread


async def nothing() -> None:
    pass


def page() -> AbstractContextManager[object]:
    return Page(Broker({"contoso": 0}))


def status() -> AbstractContextManager[object]:
    return StatusThread(Status(probe=nothing, is_ready=bool, metrics=bytes, state=dict))


@pytest.mark.spec("R-20")
@pytest.mark.parametrize("make", [page, status])
def test_a_connection_accepted_while_the_server_ends_is_closed(
    make: Callable[[], AbstractContextManager[object]],
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(20):
            with make() as served:
                with socket.create_connection(("127.0.0.1", served.port)) as first:
                    first.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
                    first.recv(1)  # it serves
                clients = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(8)]
            for client in clients:
                client.close()
        gc.collect()

    assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []
