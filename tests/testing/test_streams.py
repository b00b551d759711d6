"""A proxy between two TLS connections ends at once and leaves no socket, in any state of its connections."""

from __future__ import annotations

import gc
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sbpair.broker.certificates import Certificates, provide
from sbpair.testing import ChaosProxy

pytestmark = pytest.mark.spec("E-7")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory: Path = tmp_path_factory.mktemp("tls")
    return provide(("localhost",), int(time.time()), directory)


def test_it_ends_while_a_client_does_not_begin_its_handshake(certificates: Certificates) -> None:
    context = certificates.ssl_context()
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        ChaosProxy(*target.getsockname(), client_tls=context) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.sendall(b"\x16")
        proxy.__exit__(None, None, None)
        client.settimeout(30)
        with suppress(ConnectionError):
            assert client.recv(1) == b""
    gc.collect()


def test_it_ends_while_its_target_does_not_answer_the_handshake(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        ChaosProxy("localhost", target.getsockname()[1], target_tls=context) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)),
    ):
        silent, _ = target.accept()
        with silent:
            assert silent.recv(1) == b"\x16"
            proxy.__exit__(None, None, None)
    gc.collect()
