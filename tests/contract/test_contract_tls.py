"""The check of a certificate leaves no connection open, though its program ends at once."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sbpair.broker.certificates import provide
from sbpair.contract.subjects.wire import _shake_hands
from sbpair.contract.target import Target
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.route import Route
from tests.waiting import PATIENCE


def unused() -> None:
    raise AssertionError


@pytest.mark.spec("R-65")
def test_a_peer_that_ignores_the_closing_handshake_holds_no_connection_open(tmp_path: Path) -> None:
    certificates = provide(("localhost",), int(time.time()), tmp_path)
    is_over = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        with certificates.ssl_context().wrap_socket(accepted, server_side=True):
            is_over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        access = parse("Endpoint=sb://localhost;SharedAccessKeyName=R;SharedAccessKey=K")
        access = access.along(Route(str(certificates.ca_file)))
        target = Target(replace(access, port=listener.getsockname()[1]), unused, unused)
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            asyncio.run(_shake_hands(target, "localhost"))
            gc.collect()
        finally:
            is_over.set()
            serving.join()
