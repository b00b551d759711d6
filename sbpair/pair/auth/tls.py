"""TLS for the SDK's connections: trusted authorities, and a bounded handshake."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import certifi

from .dialling import note_opened

if TYPE_CHECKING:
    import socket

HANDSHAKE_TIMEOUT = 10.0  # seconds; the SDK sets none


class CaFileUnusableError(ValueError):
    """A file of trusted certificates cannot be read, or contains none."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file!r} is not a file of trusted certificates (PEM): {why}")
        self.file, self.why = file, why


class BoundedHandshake:
    """A TLS context whose handshake times out; on its own, the SDK waits forever for a silent peer.

    Has only the SSLContext method that the SDK calls.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def wrap_socket(self, sock: socket.socket, *, server_hostname: str | None = None) -> ssl.SSLSocket:
        sock.settimeout(HANDSHAKE_TIMEOUT)
        wrapped = self.context.wrap_socket(sock, server_hostname=server_hostname)
        note_opened(wrapped)
        return wrapped


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities in this PEM file, or certifi's, as the SDK does.

    Raises CaFileUnusableError when the file cannot be read or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file or certifi.where())
    except (OSError, TypeError, ValueError) as error:  # the last two: not a path
        raise CaFileUnusableError(str(ca_file), getattr(error, "strerror", None) or str(error)) from error
    return context
