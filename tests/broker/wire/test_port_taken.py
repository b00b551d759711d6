"""A port that another program takes during an outage is reported, and everything else still recovers."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sbpair.broker import Broker
from sbpair.broker.errors import PortUnavailableError
from sbpair.broker.faults import Down
from sbpair.broker.faults.rule import FaultRule


@contextmanager
def copied(port: int) -> Iterator[None]:
    """Duplicate the listening socket, as a forked process does until it runs its program."""
    copies = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.getsockname()[1] == port:
                copies.append(sock.dup())
    assert copies
    try:
        yield
    finally:
        for copy in copies:
            copy.close()


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Listen on a namespace's port, like another program, while the namespace does not."""
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        yield


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list descriptors")
def test_a_namespace_returns_on_its_port_though_a_forked_child_holds_the_socket():
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        with copied(namespace.port):
            namespace.take_down("refuse")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", namespace.port), 5)
            namespace.bring_up()
            socket.create_connection(("127.0.0.1", namespace.port), 5).close()


def test_a_taken_port_is_named_and_the_namespace_starts_when_it_is_free():
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.take_down("refuse")
        with taken(namespace.port), pytest.raises(PortUnavailableError, match=f"contoso.*{namespace.port}"):
            namespace.bring_up()
        namespace.bring_up()
        socket.create_connection(("127.0.0.1", namespace.port), 5).close()


def test_a_namespace_starts_when_a_port_taken_during_its_outage_is_free(
    caplog: pytest.LogCaptureFixture,
):
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        outage = namespace.set_fault(FaultRule(Down("refuse")))
        with taken(namespace.port):
            namespace.clear_fault(outage)
            assert str(namespace.port) in caplog.text
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", namespace.port), 5).close()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < until
                threading.Event().wait(0.05)


def test_a_broker_closes_completely_though_a_port_was_taken_during_a_fault():
    others = set(threading.enumerate())  # threads of brokers that other tests keep
    broker = Broker({"contoso": 0, "contoso-dr": 0})
    broker.start()
    first, second = broker.namespace("contoso"), broker.namespace("contoso-dr")
    first.create_queue("orders")
    first.set_fault(FaultRule(Down("refuse")))
    with taken(first.port):
        broker.stop()
    assert "sbpair-broker" not in {thread.name for thread in set(threading.enumerate()) - others}
    for port in (first.port, second.port):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 5)


@pytest.mark.parametrize("port", [65_536, -1])
def test_an_invalid_port_is_reported_and_not_waited_for(port):
    with pytest.raises(
        PortUnavailableError, match=rf"'contoso' cannot listen on 127.0.0.1:{port}: .*0-65535"
    ):
        Broker({"contoso": port}).start()
    with Broker({"contoso": 0}) as broker:
        with pytest.raises(PortUnavailableError, match="'more'"):
            broker.add_namespace("more", port)
        broker.add_namespace("more").create_queue("orders")


def test_an_unexpected_start_failure_is_reported_and_not_waited_for():
    with pytest.raises((TypeError, ValueError), match="null"):
        Broker({"contoso": 0}, host="a\0b").start()
