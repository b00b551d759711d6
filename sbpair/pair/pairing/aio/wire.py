"""The connections under an asyncio SDK sender: opened in our way, ended when a call hangs, and freed.

Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sbpair.pair.auth.dialling import connect_in_loop, hand_over
from sbpair.pair.envelope.copies import private

from ..shared.sdk_dialling import dialled, is_ours, replace_in_sdk
from ..shared.wire import FRAMES, BaseWire, check_size
from .limits import CallLimits
from .shared_link import SharedLink

TRANSPORTS = "azure.servicebus._pyamqp.aio._transport_async"


async def _open_connection(
    host: str,
    port: int,
    *,
    family: int = 0,
    proto: int = 0,
    **more: Any,  # noqa: ANN401
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not is_ours.get():
        return await asyncio.open_connection(host, port, family=family, proto=proto, **more)
    wire = await connect_in_loop(host, port)
    try:
        streams = await asyncio.open_connection(sock=wire, **more)
    except BaseException:
        hand_over(wire, is_taken=False)
        raise
    hand_over(wire, is_taken=True)
    return streams


replace_in_sdk(TRANSPORTS, asyncio, "open_connection", _open_connection)


class AsyncWire(BaseWire["asyncio.Future[object]"]):
    """The connections under one asyncio SDK sender, so that they can be ended.

    Unless ``is_plain``, several sends can share the link. An error of one send then does not close the link under the
    others, as it would with the SDK alone.
    """

    _LOSS = "a connection may stay open for a while after its call was ended"
    _OPEN, _READY = "open_async", "client_ready_async"
    _KEEP_ALIVE = asyncio.Future

    def __init__(self, sender: object, *, is_plain: bool = False) -> None:
        super().__init__(sender)
        self.is_shared = False
        """Whether sends share the link in the way of shared_link.py, and only wait for their answers.

        Known once the link is open.
        """
        self.limits = CallLimits()
        self._links: list[SharedLink] = []
        self._is_plain = is_plain
        self._is_in_doubt = False
        if not is_plain and private(sender, "_close_handler", "one failed send ends all others on its link"):
            sender._close_handler = self._defer_close  # type: ignore[attr-defined]

    @property
    def can_share(self) -> bool:
        """Whether several sends may be in progress at once; known once the link is open."""
        return self._is_plain or self.is_shared

    def is_open(self) -> bool:
        return super().is_open() and not self._is_in_doubt

    def let_close(self) -> None:
        """Let the SDK close the link again; call when no send is in progress."""
        vars(self._sender).pop("_close_handler", None)

    def _limit(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        async def read_bounded(
            size: int, *, initial: bool = False, buffer: memoryview | None = None
        ) -> memoryview:
            view: memoryview = await read(size, initial=initial, buffer=buffer)
            if initial:
                check_size(view, limit)
            return view

        return read_bounded

    async def _defer_close(self) -> None:
        self._is_in_doubt = True

    def abort(self) -> None:
        """Drop the connections without notifying the peer; a waiting call raises."""
        for transport in self._all_transports():
            inner = getattr(getattr(transport, "writer", None), "transport", None)
            if inner is not None:
                inner.abort()
        for task in self._keep_alive:
            task.cancel()
        for link in self._links:
            link.abort()

    async def release(self) -> None:
        """Close everything that the SDK leaves open."""
        self.abort()
        for transport in self._all_transports():
            session = getattr(transport, "session", None)  # of aiohttp, for a WebSocket
            if session is not None:
                await session.close()
        await asyncio.gather(*self._keep_alive, return_exceptions=True)
        self._keep_alive.clear()
        for link in self._links:
            await link.release()
        self._links.clear()
        self._forget()

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        async def open_and_remember(connection: object = None) -> None:
            try:
                with dialled():
                    await opening(connection=connection)
            finally:
                self._opened(handler)

        return open_and_remember

    def _opened(self, handler: object) -> None:
        super()._opened(handler)
        if not self._is_plain:
            link = SharedLink.of(handler, self._transports[-1], self.limits)
            self.is_shared = link is not None
            if link is not None:
                self._links.append(link)

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        async def is_ready() -> bool:
            for _ in range(FRAMES):
                if await ready():
                    vars(handler).pop(self._READY, None)
                    return True
            return False

        return is_ready
