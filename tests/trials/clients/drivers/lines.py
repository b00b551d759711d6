"""The protocol of the drivers: one JSON object a line, a command in and its answer out, one at a time.

    {"do": "open", "connection_string": "...", "secondary": "...", "queue": "orders", "ca_file": "...",
     "tls_port": null}                                  once or more often: the last one counts
    {"do": "send", "id": "m1", "limit": 15}        {"do": "complete", "id": "m1", "limit": 15}
    {"do": "receive", "wait": 5, "limit": 15}      at most one message

    {"outcome": "ok", "id": "m1", "copies": 0}     {"outcome": "error", "error": "ServiceBusError", "text": "..."}

Times are seconds. ``id`` answers a receive, null without a message; ``copies`` a send: how many more the client itself
says may exist. With ``tls_port`` the client speaks TLS to that port, and trusts ``ca_file``. A driver ends with its
input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

MAX_TEXT = 300  # characters of an error that are reported

Command = dict[str, Any]


def serve(open_driver: Callable[[Command], Any]) -> None:
    """Carry out the commands with a blocking driver, which has a method for each, and end the process."""
    does: Mapping[str, Callable[[Command], None]] = {}
    for command in commands():
        try:
            if command["do"] == "open":
                does = _methods(open_driver(command))
                answer()
            else:
                does[command["do"]](command)
        except Exception as error:
            answer_error(error)
    os._exit(0)  # closing waits for a broker that may be gone


async def serve_async(open_driver: Callable[[Command], Any]) -> None:
    """As :func:`serve`, with a driver whose methods are coroutines."""
    does: Mapping[str, Callable[[Command], Awaitable[None]]] = {}
    source = commands()
    while (command := await asyncio.to_thread(next, source, None)) is not None:
        try:
            if command["do"] == "open":
                does = _methods(open_driver(command))
                answer()
            else:
                await does[command["do"]](command)
        except Exception as error:
            answer_error(error)
    os._exit(0)  # closing waits for a broker that may be gone


def _methods(driver: Any) -> dict[str, Any]:
    return {"send": driver.send, "receive": driver.receive, "complete": driver.complete}


def commands() -> Iterator[Command]:
    """The commands on standard input."""
    for line in iter(sys.stdin.readline, ""):
        yield json.loads(line)


def answer(message_id: str | None = None, copies: int = 0) -> None:
    """Answer that the command succeeded."""
    _print({"outcome": "ok", "id": message_id, "copies": copies})


def answer_error(error: BaseException) -> None:
    """Answer that the command failed."""
    text = " ".join(str(error).split())[:MAX_TEXT]
    _print({"outcome": "error", "error": type(error).__name__, "text": text})


def _print(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)
