"""A running broker for a whole file of foreign clients, and queues for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from sbpair.broker import Broker, NamespaceControl, ShiftedClock

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One namespace, guarded by its keys, whose entity time can be set ahead."""
    with Broker({"contoso": 0}, clock=ShiftedClock()) as running:
        yield running


@pytest.fixture(scope="session")
def contoso(broker: Broker) -> NamespaceControl:
    """The namespace."""
    return broker.namespace("contoso")


@pytest.fixture(scope="session")
def open_contoso() -> Iterator[NamespaceControl]:
    """A namespace that asks for no key, as clients that know only AMQP need it."""
    with Broker({"contoso": 0}, open_access=True) as running:
        yield running.namespace("contoso")


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
