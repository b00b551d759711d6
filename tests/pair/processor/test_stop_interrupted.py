"""A signal raises an exception in stop(): the next stop ends the processor, and it can be entered again."""

from __future__ import annotations

import threading

import pytest

from sbpair import PairedServiceBusClient
from sbpair.pair.processor.blocking import PairedServiceBusProcessor
from sbpair.processor import ProcessorOptions
from tests.interrupts import Interrupt, at_signals, interrupted_after
from tests.pair.processor.pair import Pair
from tests.pair.runtimes import runtime_of
from tests.waiting import PATIENCE

INSIDE = {PairedServiceBusProcessor.stop.__code__, PairedServiceBusProcessor._stop.__code__}


@pytest.mark.spec("B-16")
def test_an_interrupted_stop_can_be_repeated_and_the_processor_restarted(
    pair: Pair,
) -> None:
    pair.secondary.create_queue("orders")
    with PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string, pair.secondary.connection_string
    ) as client:
        processor = client.get_queue_processor("orders", print, options=ProcessorOptions())
        places, was_interrupted = 0, True
        while was_interrupted:
            places += 1
            processor.__enter__()
            try:
                with interrupted_after(places, INSIDE, at_signals()):
                    processor.stop()
                was_interrupted = False
            except Interrupt:
                again = threading.Thread(target=processor.stop, daemon=True)
                again.start()
                again.join(PATIENCE)
                assert not again.is_alive(), f"interrupted at place {places}"
        assert places > 10
        assert not [each.name for each in threading.enumerate() if each.name.startswith("sbpair-processor")]


@pytest.mark.spec("B-16")
def test_a_failed_stop_raises_once_and_leaves_the_processor_stopped(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.secondary.create_queue("orders")
    with PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string, pair.secondary.connection_string
    ) as client:
        processor = client.get_queue_processor("orders", print)
        processor.__enter__()
        core = runtime_of(processor)
        assert core is not None
        stop = core.stop

        async def failing() -> None:
            await stop()
            raise OSError("the disk is full")

        monkeypatch.setattr(core, "stop", failing)
        with pytest.raises(OSError, match="the disk is full"):
            processor.stop()
        processor.stop()
        with processor:
            pass
