"""Our way of opening connections for the SDK's transports, which by themselves try one address after the other.

The SDK has no hook for it, so the functions that its transports call are replaced in their modules; outside
:func:`dialled` they behave as before. Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any

from azure.core.pipeline.transport import RequestsTransport
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from sbpair.pair.auth.dialling import connect, note_opened, opened
from sbpair.pair.envelope.copies import private

_TRANSPORTS = "azure.servicebus._pyamqp._transport"
_LOSS = "an address that does not answer costs a timeout at each connection"
is_ours: ContextVar[bool] = ContextVar("sbpair_dialled", default=False)


@contextmanager
def dialled() -> Iterator[list[socket.socket]]:
    """Context in which SDK connections of this task or thread are opened by our dialling code.

    Yields the sockets that it opens.
    """
    sockets: list[socket.socket] = []
    ours, kept = is_ours.set(True), opened.set(sockets)
    try:
        yield sockets
    finally:
        is_ours.reset(ours)
        opened.reset(kept)


class _Replaced:
    """A module of the standard library with replaced functions, as seen by a module of the SDK."""

    def __init__(self, module: ModuleType, name: str, replaced: Any) -> None:  # noqa: ANN401 -- a function of it
        self._module = module
        setattr(self, name, replaced)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._module, name)


def _create_connection(address: tuple[str, int], timeout: float | None = None, **more: Any) -> socket.socket:  # noqa: ANN401
    if is_ours.get():
        wire = connect(*address, timeout)
        note_opened(wire)
        return wire
    return socket.create_connection(address, timeout, **more)


def replace_in_sdk(of: str, module: ModuleType, name: str, replaced: Any) -> None:  # noqa: ANN401
    transports = import_module(of)
    if private(transports, module.__name__, _LOSS) is module:
        setattr(transports, module.__name__, _Replaced(module, name, replaced))


replace_in_sdk(_TRANSPORTS, socket, "create_connection", _create_connection)


class AdministrationTransport(RequestsTransport):  # type: ignore[misc]  # of a package without types
    """The SDK's transport of administration requests, with connections opened in our way unless through a proxy."""

    def open(self) -> None:
        """Open the session."""
        super().open()
        for adapter in self.session.adapters.values():
            adapter.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class _Dialled(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        host, seconds = self._dns_host, self.timeout
        try:
            wire = connect(
                host, self.port or self.default_port, seconds if isinstance(seconds, int | float) else None
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {host} within {seconds} s") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection to {host}: {error}") from error
        for option in self.socket_options or ():
            wire.setsockopt(*option)
        return wire


class _DialledTls(HTTPSConnection, _Dialled):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Dialled


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _DialledTls
