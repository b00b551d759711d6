"""Detects silent connections of the SDK's receivers.

They would wait forever, because the SDK does not ask its peer for signs of life. The receivers that a paired client
lends do so (by the idle time-out of AMQP 1.0, 2.4.5): when nothing has arrived for that time, the SDK closes the
connection and opens another.

The SDK's clock also runs while nobody listens, as during a handler that takes minutes, and would close a working
connection. Here only the time spent listening counts.

Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from sbpair.pair.envelope.copies import private

SILENCE = 60.0  # seconds without a frame after which a connection is taken for lost
AWAY_SHARE = 0.25  # of these; after a longer pause it is unknown what arrived meanwhile
_LOSS = "receivers do not notice a connection that has gone silent"
_CHECKED = ("listen", "_process_outgoing_frame")  # where the SDK looks at its clock

ClientT = TypeVar("ClientT")


def hearing(client: ClientT) -> ClientT:
    """Let the receivers of an SDK client notice that their connection has been silent for SILENCE seconds."""
    transport = private(client, "_amqp_transport", _LOSS)
    if isinstance(transport, type) and not issubclass(transport, _Hearing):
        client._amqp_transport = type("Hearing", (_Hearing, transport), {})  # type: ignore[attr-defined]
    return client


class _Hearing:
    """Prepares the handler of each receiver, under the names that the blocking or the asyncio SDK has for it."""

    @classmethod
    def create_receive_client(cls, **keywords: object) -> object:
        return _asking(super().create_receive_client(**keywords), "open")  # type: ignore[misc]

    @classmethod
    def create_receive_client_async(cls, **keywords: object) -> object:
        return _asking(super().create_receive_client_async(**keywords), "open_async")  # type: ignore[misc]


def _asking(handler: Any, opening: str) -> object:  # noqa: ANN401 -- private parts
    """Make a handler request heartbeats from its peer, and watch its connection once it is open."""
    opens = private(handler, opening, _LOSS)
    if not callable(opens) or not hasattr(handler, "_idle_timeout"):
        return handler
    handler._idle_timeout = SILENCE

    def attend() -> None:
        connection: Any = private(handler, "_connection", _LOSS)
        if connection is not None and not hasattr(connection, "_attention"):
            connection._attention = _Attention(connection)

    if iscoroutinefunction(opens):

        async def open_async(*given: object, **named: object) -> None:
            await opens(*given, **named)
            attend()

        setattr(handler, opening, open_async)
    else:

        def open_(*given: object, **named: object) -> None:
            opens(*given, **named)
            attend()

        setattr(handler, opening, open_)
    return handler


class _Attention:
    """Records when the application last listened to a connection."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 -- private parts
        self._connection = connection
        self._at = time.time()  # the SDK's clock
        for name in _CHECKED:
            call: Any = private(connection, name, _LOSS)
            if call is not None:
                setattr(
                    connection, name, self._awaited(call) if iscoroutinefunction(call) else self._called(call)
                )

    def _called(self, call: Callable[..., object]) -> Callable[..., object]:
        def called(*given: object, **named: object) -> object:
            self._begin()
            try:
                return call(*given, **named)
            finally:
                self._at = time.time()

        return called

    def _awaited(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*given: object, **named: object) -> object:
            self._begin()
            try:
                return await call(*given, **named)
            finally:
                self._at = time.time()

        return awaited

    def _begin(self) -> None:
        now = time.time()
        if not 0 <= now - self._at <= AWAY_SHARE * SILENCE:
            self._connection._last_frame_received_time = now
