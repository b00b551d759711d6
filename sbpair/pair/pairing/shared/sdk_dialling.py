"""Our way of opening connections for the SDK's AMQP transports, which by themselves try one address after the other.

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
