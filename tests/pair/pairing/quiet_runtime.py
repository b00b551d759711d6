"""A runtime that sends nothing, for the decisions that both runtimes share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sbpair import Failure, PairedNamespaceOptions
from sbpair.events import PairingEvent
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.pair import Result
from sbpair.pair.pairing.outcome import Classification
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.base_runtime import (
    BaseRuntime,
)

NOW = 1000.0
P, S = Side.PRIMARY, Side.SECONDARY
REFUSED = Classification(Failure.CONFIGURATION, "the key is wrong", is_of_namespace=True)


class Base(BaseRuntime):
    """A runtime that sends nothing and records its events in ``told``."""

    def __init__(self, **settings: Any) -> None:
        of_sdk = {name: settings.pop(name) for name in ("try_timeout", "retry") if name in settings}
        sides = (SdkNamespace(role, f"{role}.example", SdkSettings(**of_sdk)) for role in Side)
        super().__init__(*sides, "contoso", PairedNamespaceOptions(**settings), self._none, random.Random(7))
        self.told: list[PairingEvent] = []
        self.publications = self.limits_asked = self.timer_checks = 0
        self.is_locked = False
        self.on_event(self.told.append)

    def _none(self) -> Any:
        raise AssertionError("no administration is needed here")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        self.is_locked = True
        yield
        self.is_locked = False

    def publish(self) -> None:
        assert not self.is_locked
        self.publications += 1
        self.dispatcher.emit(self._happened())

    def _learn_limit(self) -> None:
        self.limits_asked += 1

    def _timers_changed(self) -> None:
        self.timer_checks += 1

    # what the runtimes above do with their own

    def hear(self, backlog: int | None, result: Result) -> None:
        self._hear(backlog, result)

    def next_timer(self) -> float | None:
        return self._timer()

    def happened(self) -> list[PairingEvent]:
        return list(self._happened())

    def flow(self, *given: Any) -> Any:
        return self._flow(*given)

    def flow_again(self, *given: Any) -> Any:
        return self._flow_again(*given)

    def check_room(self, *given: Any) -> None:
        self._check_room(*given)

    def sized(self, sizes: Any) -> None:
        self._sized(sizes)
