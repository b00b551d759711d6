"""One asyncio link of the SDK that concurrent sends share, each in its caller's task.

Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair.pair.envelope.copies import ABSENT, private
from sbpair.pair.ground.own_copy import own_copy
from sbpair.pair.tracing import current

from ..shared.waiting import unchain
from .limits import CallLimits

T = TypeVar("T")

MAX_READ_SECONDS = 0.2  # for one frame, as the SDK's: between two it looks after the connection
ENDLESS = 2**30  # bytes: a write buffer that never fills up, since its senders hold the messages anyway
ENDINGS = frozenset({0x16, 0x17, 0x18})  # detach, end, close: the SDK waits while it processes one
CANCEL_SECONDS = 0.1  # in which a cancelled refresh of the token ends, unless its credential does not let it


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

    The SDK itself lets the sends read in turn, for 0.2 s each, while other sends wait for the reader before they write;
    of two sends that wait like this, the second writes the first one's message again.

    A send can be cancelled at any time without effect on the others. Two steps that the SDK makes inside whichever send
    is reading therefore run in their own tasks: refreshing the token, and processing the end of the link, session or
    connection.
    """

    _LOSS = "asyncio sends do not share a link: each waits for its own"
    _CUT = "a cancelled send may fail the others on its link"

    def __init__(self, handler: Any, tcp: asyncio.WriteTransport) -> None:  # noqa: ANN401 -- the SDK's private client
        self._handler, self._tcp = handler, tcp
        self._is_reading = False
        self._waiting: dict[_Sending, asyncio.Future[None]] = {}
        self._endings: set[asyncio.Task[Any]] = set()
        self._refresh: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, handler: object, transport: object, limits: CallLimits) -> SharedLink | None:
        """Let the sends of this handler share its link; return None if that is not possible."""
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
            or tcp.is_closing()  # a closed transport of uvloop raises on every call, and hides the reason
            or write is None
            or receive is None
            or any(private(handler, name, cls._LOSS) is None for name in needed[:2])
        ):
            return None
        if any(getattr(handler, name, ABSENT) is ABSENT for name in needed[2:]):
            return None
        made = cls(handler, tcp)
        tcp.set_write_buffer_limits(high=ENDLESS)  # writes never wait, so frames do not interleave
        transport.write = write  # type: ignore[attr-defined]  # without the lock that the reader holds
        transport.receive_frame = made._receiving(receive, limits)  # type: ignore[attr-defined]
        handler._send_message_impl_async = made.send  # type: ignore[attr-defined]
        authenticator: Any = private(handler, "_cbs_authenticator", cls._CUT)
        update: Any = None if authenticator is None else private(authenticator, "update_token", cls._CUT)
        if update is not None:
            authenticator.update_token = partial(made._refreshed, authenticator, update)
        return made

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

    def abort(self) -> None:
        """End the refresh of the token, because the connection is dropped and no send needs it any more."""
        if self._refresh is not None:
            self._refresh.cancel()

    async def release(self) -> None:
        """Wait a moment for each task of a dropped connection."""
        running = {*self._endings} if self._refresh is None else {*self._endings, self._refresh}
        if running:
            await asyncio.wait(running, timeout=CANCEL_SECONDS)

    async def _read(self, sending: _Sending, handled: BaseException | None) -> None:
        self._is_reading = True
        try:
            while not sending.is_over:
                if self._endings:  # of a reader that was cancelled
                    await asyncio.wait(self._endings)
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

    def _receiving(self, receive: Callable[..., Any], limits: CallLimits) -> Callable[..., Any]:
        """Return a replacement for ``receive_frame`` of a transport, without the SDK's task per frame.

        Only the reading is limited: a frame that has arrived stays for the next read, whereas a frame whose processing
        is cancelled would be lost. Frames that end a link, session or connection are processed here, and not returned.
        """
        process: Any = private(self._handler._connection, "_process_incoming_frame", self._CUT)

        async def receive_frame(timeout: float | None = None, **options: object) -> tuple[Any, Any]:
            seconds = math.inf if timeout is None else min(timeout, MAX_READ_SECONDS)
            try:
                with limits.within(seconds):
                    found: tuple[Any, Any] = await receive(timeout=None, **options)
            except TimeoutError:
                return None, None  # as the SDK's
            frame = found[1]
            if frame is None or frame[0] not in ENDINGS or process is None:
                return found
            ending = _begin("sbpair-ending", process(*found))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            await _result_of(ending)
            return None, None

        return receive_frame

    async def _refreshed(self, authenticator: Any, update: Callable[[], Any]) -> None:  # noqa: ANN401 -- the SDK's
        """Replaces the SDK's update of the token, one for all sends; raises the same errors."""
        if self._refresh is None or self._refresh.done():
            self._refresh = _begin("sbpair-token", _update(authenticator, update))
        await _result_of(self._refresh)


async def _update(authenticator: Any, update: Callable[[], Any]) -> None:  # noqa: ANN401 -- the SDK's
    # The SDK takes the age of the last token for the duration of the refresh, and fails the sends that wait for it.
    put_at, authenticator._token_put_time = getattr(authenticator, "_token_put_time", None), None
    try:
        await update()
    except BaseException:
        authenticator._token_put_time = put_at
        raise


def _begin(name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run ``work`` in a task of its own, unaffected by the cancellation of any caller."""
    task = asyncio.get_running_loop().create_task(work, name=name, context=current.background())
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # marks it as retrieved: perhaps no send waits for it any more


async def _result_of(task: asyncio.Task[T]) -> T:
    """Return the result of a task, which continues if the caller is cancelled."""
    await asyncio.wait((task,))
    if task.cancelled():
        raise ServiceBusConnectionError(message="The connection was closed under a send.")
    return task.result()


def _tcp_of(transport: object) -> asyncio.WriteTransport | None:
    """Return the asyncio transport beneath the SDK's: TCP, TLS, or that of an aiohttp WebSocket."""
    writer = getattr(transport, "writer", None) or getattr(getattr(transport, "sock", None), "_writer", None)
    found = getattr(writer, "transport", None)
    return found if hasattr(found, "set_write_buffer_limits") else None
