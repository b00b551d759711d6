"""The name of one side's host: a failed look-up is remembered for a moment, not repeated for each link."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from sbpair.pair.auth.held_failure import HeldFailure
from sbpair.pair.ground.own_copy import own_copy

from ..request.classify import is_of_name


class HostName:
    """What is remembered of the name of one host. Thread-safe."""

    def __init__(self, rng: Random | None = None) -> None:
        self._failure = HeldFailure(rng or Random())

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Opens a link within this context. Raises the error of an earlier look-up while that is held."""
        held = self._failure.at(time.monotonic())
        if held is not None:
            raise own_copy(held)
        try:
            yield
        except Exception as error:
            if is_of_name(error):
                self._failure.failed(error, time.monotonic())
            raise
        self._failure.succeeded()
