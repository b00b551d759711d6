"""A blocking call in its own daemon thread, which keeps neither the event loop nor the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")


class NoThreadError(RuntimeError):
    """The system cannot create a thread."""


async def in_daemon_thread(call: Callable[[], Result], name: str) -> Result:
    """Return the result of ``call``, run in a new thread; if the caller is cancelled, the thread runs on.

    Raises the exception of ``call`` (RuntimeError for StopIteration, as a generator does), and NoThreadError when the
    system cannot create a thread.
    """
    import asyncio  # late: a blocking client does without

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(cast("Result", result))
        else:
            done.set_exception(error)

    def run() -> None:
        result: Result | None = None
        error: Exception | None = None
        try:
            result = call()
        except StopIteration as raised:  # no future can carry it, and the caller would wait for ever
            error = RuntimeError(f"{name} raised StopIteration")
            error.__cause__ = raised
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:  # the loop has closed: there is no waiting caller
            return

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThreadError(str(error)) from error
    return await done
