"""An asyncio sender of the SDK with a scripted peer, for the pool of senders."""

from __future__ import annotations

import asyncio


class Sender:
    """An asyncio SDK sender with a scripted peer: it opens, fails, or hangs until ``gate`` is set."""

    def __init__(self, error: BaseException | None = None, *, hangs: bool = False) -> None:
        self._error = error
        self._handler = None
        self._running = False
        self.gate = asyncio.Event()
        if not hangs:
            self.gate.set()
        self.is_entered = asyncio.Event()
        self.closings: list[str] = []

    def _create_handler(self, auth: object) -> None: ...

    async def _close_handler(self) -> None: ...

    async def __aenter__(self) -> Sender:
        self.is_entered.set()
        await self.gate.wait()
        if self._error is not None:
            raise self._error
        self._running = True
        return self

    async def close(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.closings.append(task.get_name())
        self._running = False
