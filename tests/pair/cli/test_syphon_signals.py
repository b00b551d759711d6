"""A signal that meets a line which is being written: the handler itself writes nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from unittest.mock import Mock

import pytest

from sbpair.pair.cli.syphon import run
from sbpair.pair.cli.syphon.run import SyphonRun


@pytest.mark.spec("X-31")
async def test_a_signal_is_logged_once_by_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler runs between two steps of any code, also of the logging that has begun a line."""
    said: list[str] = []
    monkeypatch.setattr(run, "say", said.append)
    command = SyphonRun(Mock(), patience=None)
    handler = command._signal_handler(asyncio.get_running_loop())

    for _ in range(2):  # the second one before the loop has seen the first
        handler(signal.SIGTERM, sys._getframe())

    assert said == []
    await asyncio.wait_for(command._shutdown.wait(), 10)
    await asyncio.sleep(0)
    assert said == ["stopping; a second signal exits at once"]
