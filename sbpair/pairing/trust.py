"""Whom does a TLS connection of the SDK trust, and how long may its handshake take?"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import certifi

from .errors import CaFileError

if TYPE_CHECKING:
    import socket

HANDSHAKE_TIMEOUT = 10.0  # seconds; the SDK sets none


class BoundedHandshake:
    """A TLS context whose handshake ends in time: the SDK waits for a silent peer for ever.

    It has the one method of SSLContext that the SDK calls.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def wrap_socket(self, sock: socket.socket, *, server_hostname: str | None = None) -> ssl.SSLSocket:
        sock.settimeout(HANDSHAKE_TIMEOUT)
        return self.context.wrap_socket(sock, server_hostname=server_hostname)


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """A context for the authorities of this file, or certifi's, as the SDK makes it. Raises CaFileError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file or certifi.where())
    except (OSError, TypeError, ValueError) as error:  # the last two: it is no path
        raise CaFileError(str(ca_file), getattr(error, "strerror", None) or str(error)) from error
    return context
