"""Wait for a condition that another thread, task or process brings about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds: the bound of every wait, far beyond what a wait takes


def wait_until(holds: Callable[[], object], within: float = PATIENCE) -> None:
    """Block this thread until ``holds()`` is true.

    Raises AssertionError: when it is still false after ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"the condition did not hold within {within:g} s"
        time.sleep(0.005)


async def until(holds: Callable[[], object], within: float = PATIENCE) -> None:
    """Let the event loop run until ``holds()`` is true.

    Raises TimeoutError: when it is still false after ``within`` seconds.
    """
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.005)


async def turns(count: int = 20) -> None:
    """Let the event loop take ``count`` turns: enough for what waits for nothing but its turn."""
    for _ in range(count):
        await asyncio.sleep(0)
