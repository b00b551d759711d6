"""A command ends orderly by a signal on an event loop that takes no handlers for signals, as those of Windows."""

from __future__ import annotations

import asyncio
import signal

import pytest

from sbpair.pair.cli import signals


async def test_a_signal_stops_the_command_where_the_event_loop_has_no_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", refuse)
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    try:
        stop = signals.stop_on_signal()
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
