"""The faults that stand: which began, which ended, and when to look again? The rules decide; this does it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from math import inf
from typing import Protocol

from ..entities.partition import Health
from ..errors import BrokerError, PortUnavailable
from ..faces.moment import Moment
from ..faces.namespace_face import NamespaceFace
from ..faults import ActiveFault, Disabled, Down, Effect, FaultRule, Outage, PartitionDown

RETRY = 1.0  # seconds until a port that was taken is asked for again

_LOGGER = logging.getLogger("sbpair.broker")

Place = tuple[type[Effect], str, int]
"""What a standing fault lies over: what it does, the entity, and which partition of it."""


class Host(Protocol):
    """What the standing faults need of the station they are for."""

    face: NamespaceFace

    def moment(self) -> Moment: ...
    def settle(self) -> None: ...
    def take_down(self, outage: Outage, delay: float = ...) -> None: ...
    def bring_up(self) -> None: ...


class StandingFaults:
    """What stands on one namespace now.

    A fault lies over what it strikes and changes nothing of it: a stored status stays what it is. Where
    several lie over the same, the one set last shows; when that ends, the one below it does.
    """

    def __init__(self, station: Host) -> None:
        self._station = station
        self._begun: set[ActiveFault] = set()
        self._shown: dict[Place, ActiveFault] = {}
        self._timer: asyncio.TimerHandle | None = None

    def apply(self) -> dict[ActiveFault, BrokerError]:
        """Begin and end what the time has come for, and see when to be called back.

        Returns why each of those that cannot begin cannot: it keeps no other from its time.
        """
        station = self._station
        now = station.moment().idle
        standing = station.face.faults.standing(now)
        refused: dict[ActiveFault, BrokerError] = {}
        again = inf
        try:
            uppermost = {_place_of(active.rule): active for active in standing}
            for place in [place for place in self._shown if place not in uppermost]:
                try:
                    self._lift(self._shown[place].rule)
                    del self._shown[place]
                except PortUnavailable as error:  # it stays down until the port is free
                    _LOGGER.warning("%s", error)
                    again = RETRY
            for place, active in uppermost.items():
                if self._shown.get(place) is not active:
                    try:
                        self._impose(active.rule)
                        self._shown[place] = active
                    except BrokerError as error:
                        refused[active] = error
            self._count(set(standing) - refused.keys())
            station.settle()
        finally:
            self._arm(min(station.face.faults.next_change(now) - now, again))
        return refused

    def stop(self) -> None:
        """End everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with ExitStack() as ends:
            ends.callback(self._shown.clear)
            for active in self._shown.values():
                ends.callback(self._lift, active.rule)

    def _count(self, standing: set[ActiveFault]) -> None:
        """A hit for each that begins, also beneath another."""
        for active in standing - self._begun:
            active.hits += 1
        self._begun = standing

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds < inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, seconds), self.apply)

    def _impose(self, rule: FaultRule) -> None:
        """Raises BrokerError where the entity is not there, or has no such partition."""
        path, station = rule.entity or "", self._station
        match rule.effect:
            case Down(how, delay):
                station.take_down(Outage(how), delay)
            case PartitionDown(index, throttled):
                self._set_health(path, index, Health.THROTTLED if throttled else Health.DOWN)
            case Disabled(status):
                station.face.namespace.impose_status(path, status, station.moment().entity)
            case _:
                raise TypeError(f"{rule.effect!r} does not stand")

    def _lift(self, rule: FaultRule) -> None:
        """Raises PortUnavailable."""
        path, station = rule.entity or "", self._station
        if isinstance(rule.effect, Down):
            station.bring_up()
            return
        with suppress(BrokerError):  # deleted meanwhile
            match rule.effect:
                case PartitionDown(index):
                    self._set_health(path, index, Health.UP)
                case Disabled():
                    station.face.namespace.impose_status(path, None, station.moment().entity)

    def _set_health(self, path: str, index: int, health: Health) -> None:
        station = self._station
        station.face.namespace.set_health(path, index, health, station.moment().entity)


def _place_of(rule: FaultRule) -> Place:
    index = rule.effect.index if isinstance(rule.effect, PartitionDown) else 0
    return type(rule.effect), (rule.entity or "").casefold(), index
