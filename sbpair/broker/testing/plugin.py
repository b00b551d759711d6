"""pytest fixtures for programs that use Service Bus: a broker, namespaces, a pair, a clock, faults, a ledger.

pytest loads this module in every run where sbpair is installed, so heavy imports wait until a fixture is used,
and tests that use no fixture are unaffected.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sbpair.broker import ActiveFault, Broker, Effect, NamespaceControl, ShiftedClock
    from sbpair.broker.testing.ledger import Ledger
    from sbpair.broker.testing.pair import NamespacePair
    from sbpair.broker.testing.processor import Handler, RunningProcessor
    from sbpair.pair.processor.options import ProcessorOptions

_NUMBERS = itertools.count(1)


class DrivenClock:
    """Entity time of a test's namespaces. It runs, and can be advanced."""

    def __init__(self, broker: Broker, clock: ShiftedClock) -> None:
        self._broker = broker
        self.clock = clock

    def advance(self, span: timedelta) -> None:
        """Advance the clock and run everything that falls due. Raises ValueError if ``span`` is negative."""
        self._broker.advance(span, clock=self.clock)


@pytest.fixture(scope="session")
def servicebus() -> Iterator[Broker]:
    """A broker for the whole run; each test has its own namespaces in it."""
    from sbpair.broker import Broker

    with Broker({"shared": 0}) as broker:
        yield broker


@pytest.fixture
def servicebus_clock(servicebus: Broker) -> DrivenClock:
    """The entity clock of this test's namespaces."""
    from sbpair.broker import ShiftedClock

    return DrivenClock(servicebus, ShiftedClock())


@pytest.fixture
def servicebus_namespace(servicebus: Broker, servicebus_clock: DrivenClock) -> Iterator[NamespaceControl]:
    """An empty namespace, private to this test."""
    name = f"test-{next(_NUMBERS)}"
    yield servicebus.add_namespace(name, clock=servicebus_clock.clock)
    servicebus.remove_namespace(name)


@pytest.fixture
def servicebus_pair(servicebus: Broker, servicebus_clock: DrivenClock) -> Iterator[NamespacePair]:
    """A primary and a secondary namespace, private to this test, with paired clients and a syphon."""
    from sbpair.broker.testing.pair import NamespacePair

    name = f"pair-{next(_NUMBERS)}"
    primary = servicebus.add_namespace(name, clock=servicebus_clock.clock)
    secondary = servicebus.add_namespace(f"{name}-dr", clock=servicebus_clock.clock)
    with NamespacePair(servicebus, primary, secondary) as pair:
        yield pair
    servicebus.remove_namespace(secondary.name)
    servicebus.remove_namespace(primary.name)


@pytest.fixture
def servicebus_processor(servicebus_pair: NamespacePair) -> Iterator[Callable[..., RunningProcessor]]:
    """Runs a processor on this test's pair until the test ends: `servicebus_processor("orders", handler)`."""
    from sbpair.broker.testing.processor import RunningProcessor

    with ExitStack() as running:

        def process(
            path: str, handler: Handler | None = None, options: ProcessorOptions | None = None
        ) -> RunningProcessor:
            return running.enter_context(RunningProcessor(servicebus_pair, path, handler, options))

        yield process


@pytest.fixture
def servicebus_fault() -> Iterator[Callable[..., ActiveFault]]:
    """Injects a fault until the test ends: ``servicebus_fault(namespace, "orders", Withhold(), times=1)``."""
    with ExitStack() as faults:

        def set_fault(
            namespace: NamespaceControl, entity: str | None, effect: Effect, **limits: float
        ) -> ActiveFault:
            return faults.enter_context(namespace.fault(entity, effect, **limits))  # type: ignore[arg-type]

        yield set_fault


@pytest.fixture
def servicebus_ledger() -> Ledger:
    """A ledger to record what was sent, acknowledged and received, and to check for loss and duplicates."""
    from sbpair.broker.testing.ledger import Ledger

    return Ledger()
