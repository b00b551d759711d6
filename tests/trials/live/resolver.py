"""The name resolution of the tests: the port of `name.servicebus.windows.net` on this machine.

Only the broker's namespaces and this machine have addresses: names that the tests expect not to exist do not
resolve, and nothing leaves the machine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import Any

SUFFIX = ".servicebus.windows.net"
LOOPBACK = "127.0.0.1"
SERVED = (443, 5671)  # https and WebSocket, AMQP: the broker has both on one port


def install(ports: Mapping[str, int]) -> None:
    """From now on these namespaces, name to port, are on this machine; every other name is unknown."""
    ask: Callable[..., Any] = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or name in ("localhost", "") or _is_address(name):
            return ask(host, port, *rest, **named)
        served = ports.get(name.lower().removesuffix(SUFFIX)) if name.lower().endswith(SUFFIX) else None
        if served is None or (port is not None and int(port) not in SERVED):
            raise socket.gaierror(socket.EAI_NONAME, f"{name} is no namespace of the broker")
        return ask(LOOPBACK, served, *rest, **named)

    socket.getaddrinfo = getaddrinfo


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
