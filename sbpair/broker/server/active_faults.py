"""Begins and ends standing faults on a running namespace when the fault rules say so."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from math import inf
from typing import Protocol

from ..clock import ClockReading
from ..entities.partition import Health
from ..errors import BrokerError, PortUnavailableError
from ..faults import ActiveFault, Disabled, Down, Effect, FaultRule, FrontEndCache, Outage, PartitionDown
from ..frontends.namespace_frontend import NamespaceFrontend

RETRY = 1.0  # seconds until binding a taken port is retried

_LOGGER = logging.getLogger("sbpair.broker")

FaultTarget = tuple[type[Effect], str, int]
"""The target of a standing fault: the kind of effect, the entity, and the partition."""


class Host(Protocol):
    """The parts of a namespace server that standing faults use."""

    frontend: NamespaceFrontend

    def read_clocks(self) -> ClockReading: ...
    def end_turn(self) -> None: ...
    def take_down(self, outage: Outage, delay: float = ...) -> None: ...
    def bring_up(self) -> None: ...


class ActiveFaults:
    """The standing faults in effect on one namespace.

    A fault overlays its target and leaves the stored state unchanged. Of several faults on one target, the one set
    last is visible; when it ends, the one set before it is visible again.
    """

    def __init__(self, server: Host) -> None:
        self._server = server
        self._begun: set[ActiveFault] = set()
        self._shown: dict[FaultTarget, ActiveFault] = {}
        self._timer: asyncio.TimerHandle | None = None

    def apply(self) -> dict[ActiveFault, BrokerError]:
        """Begin and end the faults that are due, and schedule the next call.

        Returns the errors of the faults that could not begin; such an error does not hold back other faults.
        """
        server = self._server
        now = server.read_clocks().idle
        standing = server.frontend.faults.standing_now(now)
        refused: dict[ActiveFault, BrokerError] = {}
        again = inf
        try:
            uppermost = {_target_of(active.rule): active for active in standing}
            for target in [target for target in self._shown if target not in uppermost]:
                try:
                    self._lift(self._shown[target].rule)
                    del self._shown[target]
                except PortUnavailableError as error:  # stays down until the port is free
                    _LOGGER.warning("%s", error)
                    again = RETRY
            for target, active in uppermost.items():
                if self._shown.get(target) is not active:
                    try:
                        self._impose(active.rule)
                        self._shown[target] = active
                    except BrokerError as error:
                        refused[active] = error
            self._count(set(standing) - refused.keys())
            server.end_turn()
        finally:
            self._arm(min(server.frontend.faults.next_change(now) - now, again))
        return refused

    def stop(self) -> None:
        """End all faults. Raises PortUnavailableError when the namespace's port was taken during its outage."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with ExitStack() as ends:
            ends.callback(self._shown.clear)
            for active in self._shown.values():
                ends.callback(self._lift, active.rule)

    def _count(self, standing: set[ActiveFault]) -> None:
        """Count a hit for each fault that begins, including those covered by another."""
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
        """Begin a fault. Raises BrokerError when the entity or the partition does not exist."""
        path, server = rule.entity or "", self._server
        match rule.effect:
            case Down(how, delay):
                server.take_down(Outage(how), delay)
            case PartitionDown(index, throttled):
                self._set_health(path, index, Health.THROTTLED if throttled else Health.DOWN)
            case Disabled(status):
                server.frontend.namespace.impose_status(path, status, server.read_clocks().entity)
            case FrontEndCache():
                server.frontend.namespace.impose_front_end_cache(True)
            case _:
                raise TypeError(f"{rule.effect!r} is not a standing effect")

    def _lift(self, rule: FaultRule) -> None:
        """End a fault. Raises PortUnavailableError when the namespace's port was taken during its outage."""
        path, server = rule.entity or "", self._server
        if isinstance(rule.effect, Down):
            server.bring_up()
            return
        with suppress(BrokerError):  # deleted meanwhile
            match rule.effect:
                case PartitionDown(index):
                    self._set_health(path, index, Health.UP)
                case FrontEndCache():
                    server.frontend.namespace.impose_front_end_cache(False)
                case Disabled():
                    server.frontend.namespace.impose_status(path, None, server.read_clocks().entity)

    def _set_health(self, path: str, index: int, health: Health) -> None:
        server = self._server
        server.frontend.namespace.set_health(path, index, health, server.read_clocks().entity)


def _target_of(rule: FaultRule) -> FaultTarget:
    index = rule.effect.index if isinstance(rule.effect, PartitionDown) else 0
    path = "" if isinstance(rule.effect, FrontEndCache) else rule.entity or ""  # it holds for all of them
    return type(rule.effect), path.casefold(), index
