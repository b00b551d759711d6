"""A broker reports when descriptors run out, and raises its limit when it starts (R-43)."""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import subprocess
import sys
from errno import EMFILE
from typing import NoReturn

import pytest
from aiohttp import web

from sbpair.broker import Broker
from sbpair.broker.server import event_loop
from sbpair.broker.server.http_endpoint import HttpEndpoint
from sbpair.testing import ChaosProxy
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spec("R-43")
STARTED = """
import json, resource
from sbpair.broker import Broker
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with Broker({"contoso": 0}):
    print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


def test_a_starting_broker_raises_the_soft_limit_of_open_files() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    soft, hard = json.loads(done.stdout)
    wanted = event_loop.WANTED
    assert soft == (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted))


def test_the_open_file_limit_is_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("it was high enough"))
    event_loop.raise_limit(64)


def test_a_connection_that_cannot_be_accepted_is_logged_and_served_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, is_out = socket.socket.accept, [True]

    def out_of_descriptors(self: socket.socket) -> object:
        if is_out[0]:
            raise OSError(EMFILE, os.strerror(EMFILE))
        return accept(self)

    with Broker({"contoso": 0}) as broker, caplog.at_level(logging.WARNING, "sbpair.broker"):
        monkeypatch.setattr(socket.socket, "accept", out_of_descriptors)
        with socket.create_connection(("127.0.0.1", broker.namespace("contoso").port), PATIENCE) as client:
            wait_until(lambda: "Too many open files" in caplog.text)
            assert "'contoso'" in caplog.text
            is_out[0] = False
            client.sendall(b"AMQP\x03\x01\x00\x00")
            assert client.recv(8) == b"AMQP\x03\x01\x00\x00"
    assert len(caplog.records) == 1  # not once for each retry


def without_descriptors() -> NoReturn:
    raise OSError(EMFILE, os.strerror(EMFILE))


def test_a_broker_without_an_event_loop_raises_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"contoso": 0})
    with monkeypatch.context() as patched:
        patched.setattr("sbpair.broker.server.broker.new_event_loop", without_descriptors)
        with pytest.raises(OSError, match="Too many open files"):
            broker.start()
    with broker:
        assert broker.namespace("contoso").port > 0


class Unused(HttpEndpoint):
    def application(self) -> web.Application:
        raise NotImplementedError


@pytest.mark.parametrize("entered", [Unused("page"), ChaosProxy("127.0.0.1", 1)])
def test_an_endpoint_and_a_proxy_without_an_event_loop_raise_when_entered(
    entered: Unused | ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.events.new_event_loop", without_descriptors)
    with pytest.raises(OSError, match="Too many open files"):
        entered.__enter__()
