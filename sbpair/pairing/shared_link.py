"""One asyncio link of the SDK that concurrent sends share, each in its caller's task.

Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair.envelope.copies import ABSENT, private

from .aio_limits import CallLimits
from .waiting import own_copy, unchain

MAX_READ_SECONDS = 0.2  # for one frame, as the SDK's: between two it looks after the connection
ENDLESS = 2**30  # bytes: a write buffer that never fills up, since its senders hold the messages anyway


class _Sending:
    """A message waiting for its outcome; the SDK sets ``state``, ``reason`` and ``error``."""

    __slots__ = ("error", "is_over", "reason", "state", "turn")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.reason: object = None
        self.state: object = None
        self.is_over = False
        self.turn: asyncio.Future[None] | None = None


class SharedLink:
    """Concurrent sends on one asyncio link: one of them reads for all, and each writes immediately.

    The SDK itself makes the sends read in turn, for 0.2 s each, while writes wait for the reader; of two sends
    waiting that way, the second writes the first one's message again.
    """

    _LOSS = "asyncio sends do not share a link: each waits for its own"

    def __init__(self, handler: Any, tcp: asyncio.WriteTransport) -> None:  # noqa: ANN401 -- the SDK's private client
        self._handler, self._tcp = handler, tcp
        self._is_reading = False
        self._waiting: dict[_Sending, asyncio.Future[None]] = {}

    @classmethod
    def is_made_of(cls, handler: object, transport: object, limits: CallLimits) -> bool:
        """Make the sends of this handler share its link; returns whether that is possible."""
        write = private(transport, "_write", cls._LOSS)
        receive: Any = private(transport, "receive_frame", cls._LOSS)
        needed = (
            "_send_message_impl_async",
            "_on_send_complete_async",
            "_link",
            "_connection",
            "do_work_async",
        )
        tcp = _tcp_of(transport)
        if (
            tcp is None
            or write is None
            or receive is None
            or any(private(handler, name, cls._LOSS) is None for name in needed[:2])
        ):
            return False
        if any(getattr(handler, name, ABSENT) is ABSENT for name in needed[2:]):
            return False
        tcp.set_write_buffer_limits(high=ENDLESS)  # writes never wait, so frames do not interleave
        transport.write = write  # type: ignore[attr-defined]  # without the lock that the reader holds
        transport.receive_frame = _limited(receive, limits)  # type: ignore[attr-defined]
        handler._send_message_impl_async = cls(handler, tcp).send  # type: ignore[attr-defined]
        return True

    async def send(self, message: object, *, timeout: float = 0) -> None:
        """Replaces the SDK's send; raises the same errors."""
        handler, handled, sending = self._handler, sys.exception(), _Sending()
        try:
            while not await handler.client_ready_async():
                await asyncio.sleep(0.05)
            if self._tcp.is_closing():
                raise ServiceBusConnectionError(
                    message="The connection was lost before the message was sent."
                )
            settled = partial(self._settled, sending)
            await handler._link.send_transfer(message, on_send_complete=settled, timeout=timeout)
            while not sending.is_over:
                await (self._turn(sending) if self._is_reading else self._read(sending, handled))
        except Exception as error:
            # The SDK raises the same object in other sends too, and Python chains to it what each caller handles.
            unchain(error, handled)
            sending.error = own_copy(error).with_traceback(error.__traceback__)
        finally:
            if not self._is_reading:
                self._pass_on()
        if sending.error is not None:
            raise sending.error
        if sending.state is None:
            raise ServiceBusError("The service neither accepted nor rejected the message.")

    async def _read(self, sending: _Sending, handled: BaseException | None) -> None:
        self._is_reading = True
        try:
            while not sending.is_over:
                if not await self._handler.do_work_async():
                    raise ServiceBusConnectionError(message="The connection was closed under a send.")
        except Exception as error:
            unchain(error, handled)
            for turn in self._waiting.values():
                if not turn.done():
                    turn.set_exception(own_copy(error))
            raise
        finally:
            self._is_reading = False

    async def _turn(self, sending: _Sending) -> None:
        turn = self._waiting[sending] = asyncio.get_running_loop().create_future()
        sending.turn = turn
        try:
            await turn
        finally:
            del self._waiting[sending]

    async def _settled(self, sending: _Sending, reason: object, state: object) -> None:
        try:
            await self._handler._on_send_complete_async(sending, reason, state)
        finally:
            sending.is_over = True
            if sending.turn is not None and not sending.turn.done():
                sending.turn.set_result(None)

    def _pass_on(self) -> None:
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_result(None)
                return


def _limited(receive: Callable[..., Any], limits: CallLimits) -> Callable[..., Any]:
    """``receive_frame`` of a transport without the task that the SDK makes for each frame.

    The limit covers the reading alone: what has arrived stays for the next read, whereas a frame whose processing is
    cancelled is lost.
    """

    async def receive_frame(timeout: float | None = None, **options: object) -> tuple[Any, Any]:
        seconds = math.inf if timeout is None else min(timeout, MAX_READ_SECONDS)
        try:
            with limits.within(seconds):
                found: tuple[Any, Any] = await receive(timeout=None, **options)
        except TimeoutError:
            return None, None  # as the SDK's
        return found

    return receive_frame


def _tcp_of(transport: object) -> asyncio.WriteTransport | None:
    """The asyncio transport below the SDK's: TCP, TLS, or that of an aiohttp WebSocket."""
    writer = getattr(transport, "writer", None) or getattr(getattr(transport, "sock", None), "_writer", None)
    found = getattr(writer, "transport", None)
    return found if hasattr(found, "set_write_buffer_limits") else None
