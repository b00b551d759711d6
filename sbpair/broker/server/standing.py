"""The faults that stand: which began, which ended, and when to look again? The rules decide; this does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf
from typing import Protocol

from ..entities.partition import Health
from ..errors import BrokerError
from ..faces.moment import Moment
from ..faces.namespace_face import NamespaceFace
from ..faults import ActiveFault, Disabled, Down, FaultRule, Outage, PartitionDown


class Host(Protocol):
    """What the standing faults need of the station they are for."""

    face: NamespaceFace

    def moment(self) -> Moment: ...
    def settle(self) -> None: ...
    def take_down(self, outage: Outage, delay: float = ...) -> None: ...
    def bring_up(self) -> None: ...


class StandingFaults:
    """What stands on one namespace now."""

    def __init__(self, station: Host) -> None:
        self._station = station
        self._begun: dict[ActiveFault, Callable[[], None]] = {}  # and how to end it
        self._timer: asyncio.TimerHandle | None = None

    def apply(self) -> dict[ActiveFault, BrokerError]:
        """Begin and end what the time has come for, and see when to be called back.

        Returns why each of those that cannot begin cannot: it keeps no other from its time.
        """
        station = self._station
        now = station.moment().idle
        wanted = station.face.faults.standing(now)
        refused: dict[ActiveFault, BrokerError] = {}
        try:
            for active in [active for active in self._begun if active not in wanted]:
                self._begun.pop(active)()
            for active in wanted:
                if active not in self._begun:
                    try:
                        self._begun[active] = self._begin(active.rule)
                        active.hits += 1
                    except BrokerError as error:
                        refused[active] = error
            station.settle()
        finally:
            self._arm(station.face.faults.next_change(now) - now)
        return refused

    def stop(self) -> None:
        """End everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with ExitStack() as ends:
            ends.callback(self._begun.clear)
            for end in self._begun.values():
                ends.callback(end)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds < inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, seconds), self.apply)

    def _begin(self, rule: FaultRule) -> Callable[[], None]:
        match rule.effect:
            case Down(how, delay):
                self._station.take_down(Outage(how), delay)
                return self._station.bring_up
            case PartitionDown(index, throttled):
                path = rule.entity or ""
                self._set_health(path, index, Health.THROTTLED if throttled else Health.DOWN)
                return lambda: self._restore_health(path, index)
            case Disabled(status):
                was = self._set_status(rule.entity or "", status)
                return lambda: self._restore_status(rule.entity or "", was)
            case _:
                raise TypeError(f"{rule.effect!r} does not stand")

    def _set_health(self, path: str, index: int, health: Health) -> None:
        station = self._station
        station.face.namespace.set_health(path, index, health, station.moment().entity)

    def _restore_health(self, path: str, index: int) -> None:
        with suppress(BrokerError):  # deleted meanwhile
            self._set_health(path, index, Health.UP)

    def _set_status(self, path: str, status: str) -> str:
        """Give the entity a status, and return the one it had. Raises EntityNotFound."""
        namespace, now = self._station.face.namespace, self._station.moment().entity
        queue = namespace.queue(path)
        was, wanted = queue.description.status, replace(queue.description, status=status)
        namespace.update_queue(path, wanted, now)
        return was

    def _restore_status(self, path: str, status: str) -> None:
        with suppress(BrokerError):  # deleted meanwhile
            self._set_status(path, status)
