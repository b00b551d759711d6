"""Fixtures for tests of programs that use Service Bus: a broker, a namespace a test, a pair, a clock ...

pytest loads this in every run of everybody who has sbpair installed: nothing heavy is imported before a
fixture is used, and nothing is done to tests that use none.
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
    from sbpair.testing.ledger import Ledger
    from sbpair.testing.pair import NamespacePair

_NUMBERS = itertools.count(1)


class DrivenClock:
    """Entity time of a test's namespaces: it runs, and can be set ahead."""

    def __init__(self, broker: Broker, clock: ShiftedClock) -> None:
        self._broker = broker
        self.clock = clock

    def advance(self, span: timedelta) -> None:
        """Set it ahead, and let happen what falls due. Raises ValueError for a span below 0."""
        self._broker.advance(span, clock=self.clock)


@pytest.fixture(scope="session")
def servicebus() -> Iterator[Broker]:
    """A broker for the whole run; tests have namespaces of their own in it."""
    from sbpair.broker import Broker

    with Broker({"shared": 0}) as broker:
        yield broker


@pytest.fixture
def servicebus_clock(servicebus: Broker) -> DrivenClock:
    """Entity time of this test's namespaces, to set ahead."""
    from sbpair.broker import ShiftedClock

    return DrivenClock(servicebus, ShiftedClock())


@pytest.fixture
def servicebus_namespace(servicebus: Broker, servicebus_clock: DrivenClock) -> Iterator[NamespaceControl]:
    """An empty namespace for this test alone."""
    name = f"test-{next(_NUMBERS)}"
    yield servicebus.add_namespace(name, clock=servicebus_clock.clock)
    servicebus.remove_namespace(name)


@pytest.fixture
def servicebus_pair(servicebus: Broker, servicebus_clock: DrivenClock) -> Iterator[NamespacePair]:
    """A primary and a secondary namespace for this test alone, paired clients, and a syphon."""
    from sbpair.testing.pair import NamespacePair

    name = f"pair-{next(_NUMBERS)}"
    primary = servicebus.add_namespace(name, clock=servicebus_clock.clock)
    secondary = servicebus.add_namespace(f"{name}-dr", clock=servicebus_clock.clock)
    with NamespacePair(servicebus, primary, secondary) as pair:
        yield pair
    servicebus.remove_namespace(secondary.name)
    servicebus.remove_namespace(primary.name)


@pytest.fixture
def servicebus_fault() -> Iterator[Callable[..., ActiveFault]]:
    """Sets a fault until the test ends: ``servicebus_fault(namespace, "orders", Withhold(), times=1)``."""
    with ExitStack() as faults:

        def set_fault(
            namespace: NamespaceControl, entity: str | None, effect: Effect, **limits: float
        ) -> ActiveFault:
            return faults.enter_context(namespace.fault(entity, effect, **limits))  # type: ignore[arg-type]

        yield set_fault


@pytest.fixture
def servicebus_ledger() -> Ledger:
    """Note what is sent, acknowledged and received; then ask what was lost."""
    from sbpair.testing.ledger import Ledger

    return Ledger()
