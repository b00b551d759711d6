"""Transports and sockets that know the test which opened them: the warning of one left open comes in a later test."""

from __future__ import annotations

import os
import socket
from asyncio.selector_events import _SelectorTransport
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest


def name_origins(patched: pytest.MonkeyPatch) -> None:
    """From now on the ``repr`` of a transport or socket, which is in the warning, names the test that opened it."""
    _name(patched, _SelectorTransport)
    _name(patched, socket.socket)


def _name(patched: pytest.MonkeyPatch, kind: type[Any]) -> None:
    begin: Callable[..., None] = kind.__init__
    describe: Callable[[object], str] = kind.__repr__
    opened_in: dict[
        int, str
    ] = {}  # by identity: a socket has no attributes, and its weak references end first

    @wraps(begin)
    def opened(self: Any, *args: object, **options: object) -> None:
        opened_in[id(self)] = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        begin(self, *args, **options)

    def described(self: Any) -> str:
        return f"{describe(self)} opened in {opened_in.get(id(self), 'no test')}"

    patched.setattr(kind, "__init__", opened)
    patched.setattr(kind, "__repr__", described)
