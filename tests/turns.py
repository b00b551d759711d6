"""An event loop whose turns are permuted from a seed: what happens to happen first today may happen second tomorrow.

    --permute-turns SEED

asyncio runs what is ready in the order in which it became so. Nobody promises that order to two tasks: it is that of
two packets, or of two lines that a later change swaps. With the option, in every loop of the process,

* a task that goes on may be late: after others, after callbacks, or by a turn, as if it had one ``await`` more;
* sockets that are ready in one turn are served in any order;
* a read brings any part of what has arrived, so that what was written at once comes in several chunks;
* a loop with a real clock is late by up to a few milliseconds: timers that are due one after the other come together.

What asyncio promises stays: callbacks of ``call_soon``, and the first steps of tasks, keep their order, and no task
overtakes a callback. All draws come from the seed and the name of the test, so that a failure comes again; in a loop
with real sockets as far as they let it.
"""

from __future__ import annotations

import asyncio
from asyncio.base_events import BaseEventLoop
from asyncio.selector_events import _SelectorSocketTransport
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from selectors import DefaultSelector
from typing import Any
from unittest.mock import patch

from sbpair.pair.client.backoff import RANDOM

HELD_BACK = 0.2  # the share of steps of tasks that wait for the next turn
SIZES = (60, 150, 400, 2_000, 2**18, 2**18)  # bytes that one read of a socket brings at most
LATE = 0.003  # seconds by which a loop that waits may be late for its timers


class Turn(deque[Any]):
    """The callbacks that are ready in a loop, which asks for their number once in each turn, when it begins."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def __bool__(self) -> bool:
        return super().__len__() > 0

    def __len__(self) -> int:
        """Let some of the tasks that are ready be late; return how many callbacks this turn runs."""
        ready = [self.popleft() for _ in range(super().__len__())]  # other threads may append meanwhile
        now, held, draw = [], [], self._random.random
        for place, each in enumerate(ready):
            if not is_wakeup(each):
                now.append((float(place), place, each))
            elif draw() < HELD_BACK:
                held.append(each)
            else:
                now.append((place + draw() * len(ready), place, each))
        now.sort()
        self.extendleft(reversed([each for _, _, each in now] + held))
        return len(now)


def is_wakeup(handle: asyncio.Handle) -> bool:
    """Whether a callback is a step of a task, but not its first: tasks begin in the order in which they are made."""
    task = getattr(handle._callback, "__self__", None)
    return isinstance(task, asyncio.Task) and getattr(task.get_coro(), "cr_suspended", False)


class Seeded:
    """The random numbers of one test: those of each loop that it makes."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.began("")

    def began(self, test: str) -> None:
        """Begin with the loops of another test."""
        self.test, self._loops = test, 0
        self.network = Random(f"{self.seed}/{test}")
        RANDOM.seed(f"{self.seed}/{test}")  # from which pauses are drawn

    def next_loop(self) -> Random:
        """Return the random numbers of the next loop."""
        self._loops += 1
        return Random(f"{self.seed}/{self.test}/{self._loops}")

    def size_of_read(self) -> int:
        """Return the most bytes that the next read of a socket brings."""
        return self.network.choice(SIZES)


_in_use: list[Seeded] = []


@contextmanager
def permuted(seeded: Seeded) -> Iterator[None]:
    """Permute the turns of the loops that are made in this block, and take the reads of sockets apart."""
    make = BaseEventLoop.__init__

    def make_permuted(loop: Any) -> None:
        make(loop)
        _permute(loop, seeded.next_loop())

    _in_use.append(seeded)
    size = property(lambda transport: seeded.size_of_read())
    try:
        with (
            patch.object(BaseEventLoop, "__init__", make_permuted),
            patch.object(_SelectorSocketTransport, "max_size", size),
        ):
            yield
    finally:
        _in_use.remove(seeded)


def pieces(data: bytes) -> list[bytes]:
    """Take data apart as reads of a socket do: for a network in memory. In one piece unless turns are permuted."""
    if not _in_use:
        return [data]
    found, at = [], 0
    while at < len(data):
        size = _in_use[-1].size_of_read()
        found.append(data[at : at + size])
        at += size
    return found


def at_turn(loop: Any, turn: int, act: Callable[[], object]) -> None:
    """Call ``act`` at the beginning of the turn of the loop that is so many turns away."""
    selector, left = loop._selector, turn
    select = selector.select

    def counted(timeout: float | None = None) -> object:
        nonlocal left
        left -= 1
        if left >= 0:
            return select(timeout)
        selector.select = select
        act()
        return select(0)

    selector.select = counted


def _permute(loop: Any, random: Random) -> None:
    loop._ready = Turn(random)
    serve, run_forever = loop._process_events, loop.run_forever

    def serve_in_any_order(events: list[Any]) -> None:
        random.shuffle(events)
        serve(events)

    def run_late() -> None:
        loop.run_forever = run_forever  # from now on
        if type(loop._selector) is not DefaultSelector:  # a virtual clock, whose tests know each instant
            run_forever()
            return
        select = loop._selector.select

        def select_late(timeout: float | None = None) -> Any:
            return select(timeout + random.random() * LATE if timeout else timeout)

        loop._selector.select = select_late
        run_forever()

    loop._process_events, loop.run_forever = serve_in_any_order, run_late
