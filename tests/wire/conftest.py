"""A running broker for a whole file, its clock set ahead by hand, and a queue for each test."""

from __future__ import annotations

import gc
import itertools
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, NamespaceControl, ShiftedClock

_NUMBERS = itertools.count()
HERE = Path(__file__).parent
TARGET = os.environ.get("SBPAIR_TEST_CONNECTION_STRING")
"""Another namespace to run against, the cloud's or a broker's; None for our own, in this process."""
CONTROLS = {"broker", "contoso"}
SPANS = {
    "lock_duration",
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "auto_delete_on_idle",
}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Two namespaces, whose entity time can be set ahead."""
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as running:
        yield running


@pytest.fixture(scope="session")
def contoso(broker: Broker) -> NamespaceControl:
    """The first namespace."""
    return broker.namespace("contoso")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Against another namespace, leave out what holds the broker in its hands: its time, faults, counts."""
    if TARGET is None:
        return
    for item in items:
        if item.path.parent == HERE and not CONTROLS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.skip(reason="needs the broker's own control"))
        elif item.path.parent == HERE and "make_queue" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="brings a broker of its own"))


@pytest.fixture
def make_queue(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Makes a queue of its own with these fields, and returns its path."""
    if TARGET is not None:
        with there(TARGET) as make_there:
            yield make_there
        return
    contoso: NamespaceControl = request.getfixturevalue("contoso")

    def make(**fields: object) -> str:
        path = f"orders-{next(_NUMBERS)}"
        contoso.create_queue(path, **fields)
        return path

    yield make


@contextmanager
def there(target: str) -> Iterator[Callable[..., str]]:
    """Makes queues in another namespace, under names of their own, and removes them afterwards."""
    trust = os.environ.get("SBPAIR_TEST_CA_FILE")
    more = {"connection_verify": trust} if trust else {}
    made: list[str] = []
    with ServiceBusAdministrationClient.from_connection_string(target, **more) as administration:

        def make(**fields: object) -> str:
            if "max_message_size_in_kilobytes" in fields:
                pytest.skip("needs a namespace of the Premium tier")
            path = f"sbpair-{uuid.uuid4().hex[:12]}"
            spans = {
                name: timedelta(milliseconds=value)
                for name, value in fields.items()
                if name in SPANS and isinstance(value, int)
            }
            administration.create_queue(path, **{**fields, **spans})
            made.append(path)
            return path

        yield make
        for path in made:
            administration.delete_queue(path)


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    """The path of a queue of default settings."""
    return make_queue()


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[ServiceBusClient]:
    """The SDK as it is, without retries: an error shows at once."""
    text = TARGET or request.getfixturevalue("contoso").connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as opened:
        yield opened


@pytest.fixture
def forgiving_of_sockets() -> Iterator[None]:
    """For tests that break connections: the SDK drops a socket that was reset without closing it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
