"""An event loop in its own thread, whose owner waits until it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any


def serve_in_loop(
    serve: Callable[[Future[None]], Coroutine[Any, Any, None]],
    started: Future[None],
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run ``serve(started)`` in a new event loop: the target of a thread whose owner waits for ``started``.

    ``serve`` resolves ``started`` as soon as it serves. An error before that, for example no file descriptor for the
    loop, becomes the exception of ``started``. An error after that is raised.
    """
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve(started))
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
