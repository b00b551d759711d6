"""What is remembered of restored messages is bounded by bytes: senders choose their properties and paths."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sbpair.amqp.message import DataBody, Message, Properties
from sbpair.envelope.restore import Forward, Poison, restore

MOST = 24 * 1024 * 1024  # bytes: two caches of 8 MiB, and what is small


def encoded(number: int, carried: dict[str, object]) -> bytes:
    return Message(
        properties=Properties(message_id=str(number)), application_properties=carried, body=DataBody((b"x",))
    ).encode()


def with_many_properties(number: int) -> bytes:
    return encoded(
        number, {"x-ms-path": "orders"} | dict.fromkeys((f"k{n:03}" for n in range(3000 + number)), "v")
    )


def with_a_long_path(number: int) -> bytes:
    return encoded(number, {"x-ms-path": f"{number}" + "x" * 60_000})


@contextmanager
def growth() -> Iterator[Callable[[], int]]:
    """The bytes that are held now and were not when it was entered."""
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: gc.collect() * 0 + tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.spec("S-25")
@pytest.mark.parametrize(("message", "kind"), [(with_many_properties, Forward), (with_a_long_path, Poison)])
def test_what_is_remembered_of_large_messages_has_a_bound(
    message: Callable[[int], bytes], kind: type
) -> None:
    messages = [message(number) for number in range(140)]
    with growth() as held:
        assert all(isinstance(restore(each, 0), kind) for each in messages)
        assert held() < MOST


@pytest.mark.spec("S-25")
def test_a_message_is_restored_alike_after_everything_was_forgotten() -> None:
    small = encoded(0, {"x-ms-path": "orders", "a": "b"})
    before = restore(small, 0)
    for number in range(200):
        restore(with_many_properties(number), 0)

    assert restore(small, 0) == before
