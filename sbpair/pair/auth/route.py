"""The route to a namespace."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach a namespace: trusted authorities (PEM file), WebSocket or TCP, and an HTTP proxy.

    ``ssl_context`` takes the place of one made from ``ca_file``.
    """

    ca_file: str | None = None
    over_websocket: bool = False
    http_proxy: str | None = field(default=None, repr=False)  # may contain a password
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
