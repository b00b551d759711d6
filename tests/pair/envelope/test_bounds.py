"""What is remembered of restored messages is bounded by bytes: senders choose their properties and paths."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.envelope import scan
from sbpair.pair.envelope.restore import Forward, Poison, restore

MEBIBYTE = 1024 * 1024
MOST = 24 * MEBIBYTE  # bytes: two caches of 8 MiB, and what is small
MANY = 3000  # properties
BODY = b"an order"  # a shorter one is restored at length, and nothing is learned of its shape


def encoded(number: int, carried: dict[str, object]) -> bytes:
    return Message(
        properties=Properties(message_id=str(number)), application_properties=carried, body=DataBody((BODY,))
    ).encode()


def with_many_properties(number: int, many: int = MANY) -> bytes:
    return encoded(
        number, {"x-ms-path": "orders"} | dict.fromkeys((f"k{n:03}" for n in range(many + number)), "v")
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


@pytest.mark.slow
@pytest.mark.spec("S-25")
@pytest.mark.parametrize("part", [8, pytest.param(1, marks=pytest.mark.trial)])
def test_the_cache_of_properties_is_bounded(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scan.MAX_BYTES == 8 * MEBIBYTE
    monkeypatch.setattr(scan, "MAX_BYTES", 8 * MEBIBYTE // part)
    messages = [with_many_properties(number, MANY // part) for number in range(140)]
    with growth() as held:
        assert all(isinstance(restore(each, 0), Forward) for each in messages)
        assert held() < MOST // part


@pytest.mark.slow
@pytest.mark.spec("S-25")
def test_the_cache_of_destinations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    part = 32
    monkeypatch.setattr(scan, "MAX_BYTES", 8 * MEBIBYTE // part)
    messages = (
        encoded(number, {"x-ms-path": f"orders{number:06}", "pad": "p" * length})
        for length in range(40)  # a shape each
        for number in range(100_000, 100_000 + scan.MAX_PLANS)
    )
    with growth() as held:
        assert all(isinstance(restore(each, 0), Forward) for each in messages)
        assert held() < MOST // part


@pytest.mark.spec("S-25")
def test_the_cache_of_long_paths_is_bounded() -> None:
    messages = [with_a_long_path(number) for number in range(140)]
    with growth() as held:
        assert all(isinstance(restore(each, 0), Poison) for each in messages)
        assert held() < MOST


@pytest.mark.spec("S-25")
def test_a_message_is_restored_alike_after_everything_was_forgotten() -> None:
    small = encoded(0, {"x-ms-path": "orders", "a": "b"})
    before = restore(small, 0)
    for number in range(40):  # each takes more than a thirtieth of what is remembered
        restore(with_many_properties(number), 0)

    assert restore(small, 0) == before
