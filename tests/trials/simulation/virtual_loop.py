"""An event loop with a virtual clock: it jumps to the next timer as soon as nothing is left to do.

Everything that runs on it, including the syphon's own tasks, sees one time: the loop's, and by :func:`one_time`
that of the ``time`` module too. No socket is opened: ``create_connection`` asks the network of the simulation.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from .network import Network

EPOCH = 1_900_000_000.0  # seconds: where the wall clock of the simulation stands at its second 0
MOST_TURNS = 400_000  # of the loop in one run: more is a hot loop


class StuckError(Exception):
    """Nothing is left to do and nothing will ever happen; or something happens for ever at one instant."""


class _Jump(selectors.SelectSelector):
    """Waits by setting the clock ahead."""

    def __init__(self, loop: VirtualLoop, most_turns: int) -> None:
        super().__init__()
        self._loop = loop
        self._turns = 0
        self._most_turns = most_turns

    def select(self, timeout: float | None = None) -> list[Any]:
        self._turns += 1
        if self._turns > self._most_turns:
            raise StuckError(
                f"more than {self._most_turns} turns of the loop by second {self._loop.time():.3f}"
            )
        if timeout is None:
            raise StuckError(f"nothing is left to wait for at second {self._loop.time():.3f}")
        self._loop.seconds += timeout
        return []


@dataclass
class Dialled:
    """Stands for the socket of a connection that its protocol does not have yet."""

    host: str

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


async def dial(host: str, port: int) -> Dialled:
    """Stands for the way in which our client opens sockets."""
    return Dialled(host)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of one run; ``network`` is set before anything connects."""

    network: Network

    def __init__(self, most_turns: int = MOST_TURNS) -> None:
        self.seconds = 0.0
        super().__init__(_Jump(self, most_turns))

    def time(self) -> float:
        return self.seconds

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str = "",
        *_: object,
        sock: Dialled | None = None,
        **__: object,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self.network.connect(protocol_factory, host if sock is None else sock.host)


@contextmanager
def one_time(loop: VirtualLoop) -> Iterator[None]:
    """Let the ``time`` module tell the loop's time, so that nothing under test sees another clock."""
    with ExitStack() as stack:
        for name, told in (
            ("time", lambda: EPOCH + loop.seconds),
            ("monotonic", loop.time),
            ("clock_gettime", lambda clock: loop.time()),
            ("time_ns", lambda: round(EPOCH * 1e9) + round(loop.seconds * 1e9)),
        ):
            stack.enter_context(patch.object(time, name, told))
        stack.enter_context(patch("sbpair.pair.client.connection.connect_in_loop", dial))
        yield
