"""A running broker for a whole file, its clock set ahead by hand, and a queue for each test."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient

from sbpair.broker import Broker, NamespaceControl, ShiftedClock

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Two namespaces, whose entity time can be set ahead."""
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as running:
        yield running


@pytest.fixture(scope="session")
def contoso(broker: Broker) -> NamespaceControl:
    """The first namespace."""
    return broker.namespace("contoso")


@pytest.fixture
def make_queue(contoso: NamespaceControl) -> Callable[..., str]:
    """Makes a queue of its own with these fields, and returns its path."""

    def make(**fields: object) -> str:
        path = f"orders-{next(_NUMBERS)}"
        contoso.create_queue(path, **fields)
        return path

    return make


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    """The path of a queue of default settings."""
    return make_queue()


@pytest.fixture
def client(contoso: NamespaceControl) -> Iterator[ServiceBusClient]:
    """The SDK as it is, without retries: an error shows at once."""
    with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as opened:
        yield opened


@pytest.fixture
def forgiving_of_sockets() -> Iterator[None]:
    """For tests that break connections: the SDK drops a socket that was reset without closing it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
