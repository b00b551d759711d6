"""Peers that are no Service Bus: sockets that answer wrongly, or not at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import Event, LinkAttached, MessageReceived, SaslInitReceived
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.performatives import Accepted

Serve = Callable[[socket.socket], None]
AMQP_SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"


def closes(connection: socket.socket) -> None:
    """Close at once."""


def is_silent(connection: socket.socket) -> None:
    """Read all, and answer nothing."""
    while connection.recv(65_536):
        pass


def answers(data: bytes) -> Serve:
    """Answer the first bytes with these, and close."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(data)

    return serve


def takes_everything(connection: socket.socket) -> None:
    """Attach every link and accept every message, as a broker of plain AMQP does; no request is answered."""
    engine = Connection(role=ConnectionRole.SERVER, container_id="plain", now=0.0)
    while data := connection.recv(65_536):
        engine.receive_data(data, 0.0)
        while found := engine.events():
            for event in found:
                _take(engine, event)
        connection.sendall(engine.data_to_send())


def _take(engine: Connection, event: Event) -> None:
    match event:
        case SaslInitReceived():
            engine.authenticate(True)
        case LinkAttached(link, attach):
            link.attach(source=attach.source, target=attach.target)
            if isinstance(link, ReceiverLink):
                link.flow(100)
        case MessageReceived():
            event.link.dispose(event.delivery_id, event.delivery_id, Accepted())


WRONG: dict[str, Serve] = {
    "it closes": closes,
    "it never answers": is_silent,
    "it speaks HTTP": answers(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
    "it speaks AMQP 0-9-1": answers(b"AMQP\x00\x00\x09\x01"),
    "it sends a frame of 4 GB": answers(AMQP_SASL + b"\xff\xff\xff\xff\x02\x01\x00\x00"),
    "it sends a performative that is none": answers(
        AMQP_SASL + b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\xff\x45"
    ),
    "it stops in a frame": answers(AMQP_SASL + b"\x00\x00\x00\x40\x02\x01\x00\x00\x00\x53\x40"),
}
"""What a peer does, by name."""


@contextmanager
def listening(serve: Serve) -> Iterator[int]:
    """Serve every connection to a port of loopback in a thread; the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, serve), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, serve: Serve) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection, serve), daemon=True).start()


def _serve(connection: socket.socket, serve: Serve) -> None:
    with connection, suppress(OSError):
        serve(connection)


def connection_string(port: int) -> str:
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName=guest;SharedAccessKey=guestguest;"
        "UseDevelopmentEmulator=true"
    )
