"""Transports of asyncio that know the test which opened them: the warning of one left open comes in a later test."""

from __future__ import annotations

import os
from asyncio.selector_events import _SelectorTransport
from functools import wraps

import pytest


def name_origins(patched: pytest.MonkeyPatch) -> None:
    """From now on the ``repr`` of a transport, which is in the warning, names the test that opened it."""
    begin, describe = _SelectorTransport.__init__, _SelectorTransport.__repr__

    @wraps(begin)
    def opened(self: _SelectorTransport, *args: object, **options: object) -> None:
        self._opened_in = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        begin(self, *args, **options)

    def described(self: _SelectorTransport) -> str:
        return f"{describe(self)} opened in {self._opened_in}"

    patched.setattr(_SelectorTransport, "__init__", opened)
    patched.setattr(_SelectorTransport, "__repr__", described)
