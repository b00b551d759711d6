"""A namespace in virtual time, and a client over the faces without a socket."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from sbpair.broker.entities import Namespace, Queue, QueueDescription, StoredMessage
from sbpair.broker.entities.stored_message import LockToken

NOON = 1_800_000_000_000  # ms


@pytest.fixture
def namespace() -> Namespace:
    """A namespace whose lock tokens are numbers."""
    tokens = itertools.count(1)
    return Namespace("contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")))


@pytest.fixture
def make_queue(namespace: Namespace) -> Callable[..., Queue]:
    """Makes the queue `orders`, with these fields of its description."""

    def make(**fields: object) -> Queue:
        return namespace.create_queue("orders", replace(QueueDescription(), **fields), NOON)

    return make


@pytest.fixture
def message() -> Callable[..., StoredMessage]:
    """Makes a message with a small body, and these fields."""

    def make(**fields: object) -> StoredMessage:
        return StoredMessage(bare=fields.pop("bare", b"body"), **fields)

    return make
