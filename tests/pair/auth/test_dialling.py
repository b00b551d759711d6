"""A host with several addresses: which are tried, when, and which connection is kept."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from sbpair.pair.auth import dialling
from sbpair.pair.auth.dialling import connect, connect_in_loop, in_order
from tests.stopwatch import Stopwatch
from tests.two_addresses import TwoAddresses, black_hole

A, B, C, D = (
    (socket.AF_INET6, 1, 6, "", ("a", 1)),
    (socket.AF_INET6, 1, 6, "", ("b", 1)),
    (socket.AF_INET, 1, 6, "", ("c", 1)),
    (socket.AF_INET, 1, 6, "", ("d", 1)),
)


@pytest.mark.parametrize(
    ("found", "answered", "order"),
    [
        ([A, B, C, D], None, [A, C, B, D]),
        ([C, D, A], None, [C, A, D]),
        ([A, B, C], ("b", 1), [B, A, C]),
        ([A, B], ("gone", 1), [A, B]),
        ([], None, []),
    ],
)
def test_address_families_alternate_after_the_address_that_answered(found, answered, order) -> None:
    assert in_order(found, answered) == order


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def two(listener, monkeypatch) -> Iterator[TwoAddresses]:
    monkeypatch.setattr(dialling, "_answered", {})
    with black_hole() as hole:
        yield TwoAddresses(monkeypatch, "two.example", [hole, listener.getsockname()])


def dial(kind: str, timeout: float = 10.0) -> socket.socket:
    if kind == "blocking":
        return connect("two.example", 5671, timeout)
    return asyncio.run(connect_in_loop("two.example", 5671))


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_an_address_that_drops_packets_costs_a_quarter_of_a_second_once(two, listener, kind) -> None:
    for most in (1.0, 0.2):
        with Stopwatch() as watch, dial(kind) as wire:
            assert wire.getpeername() == listener.getsockname()
        assert watch.seconds < most


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_the_error_of_the_first_address_is_raised_if_none_answers(monkeypatch, kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    TwoAddresses(monkeypatch, "two.example", [address, address])
    with pytest.raises(ConnectionRefusedError):
        dial(kind)


def test_a_blocking_call_times_out_where_all_packets_are_dropped(monkeypatch) -> None:
    with black_hole() as hole:
        TwoAddresses(monkeypatch, "two.example", [hole, hole])
        with pytest.raises(TimeoutError):
            dial("blocking", 0.1)


def test_a_connected_socket_has_the_given_blocking_timeout(two) -> None:
    with dial("blocking", 7.0) as wire:
        assert wire.gettimeout() == 7.0
