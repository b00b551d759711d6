"""The incidents, and who meets them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from sbpair.broker.faults import Down, FaultRule, Lose, Operation, RejectWith, Throttle

from .ends import NAMES

PRIMARY, SECONDARY = NAMES
QUEUE = "orders"
BEFORE, AFTER = 5.0, 10.0  # healthy seconds before and after an incident, in which messages are sent too


@dataclass(frozen=True, slots=True)
class Scenario:
    """An incident of ``span`` seconds: the faults of each side. ``too_large``: every so manyth message is."""

    name: str
    title: str
    span: float
    faults: tuple[tuple[str, FaultRule], ...] = ()
    too_large: int = 0

    @property
    def seconds(self) -> float:
        """For how long messages are sent."""
        return BEFORE + self.span + AFTER


def _sends(effect: RejectWith | Lose | Throttle, share: float) -> tuple[tuple[str, FaultRule], ...]:
    return ((PRIMARY, FaultRule(effect, QUEUE, Operation.SEND, probability=share, seed=11)),)


def _down(how: str, *sides: str, **limits: float) -> tuple[tuple[str, FaultRule], ...]:
    return tuple((side, FaultRule(Down(how), **limits)) for side in sides)  # type: ignore[arg-type]


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("refuse", "the primary refuses, 90 s", 90.0, _down("refuse", PRIMARY)),
        Scenario("silent", "the primary is silent, 90 s", 90.0, _down("silent", PRIMARY)),
        Scenario(
            "rejected",
            "half of the sends rejected, 90 s",
            90.0,
            _sends(RejectWith("amqp:internal-error"), 0.5),
        ),
        Scenario("unanswered", "a fifth unanswered, 90 s", 90.0, _sends(Lose(), 0.2)),
        Scenario("busy", "busy for two of three, 60 s", 60.0, _sends(Throttle(), 0.67)),
        Scenario("flapping", "down 3 s of 6, 60 s", 60.0, _down("refuse", PRIMARY, lasting=3.0, every=6.0)),
        Scenario("both", "both refuse, 30 s", 30.0, _down("refuse", PRIMARY, SECONDARY)),
        Scenario("large", "one of ten messages is too large", 5.0, too_large=10),
    )
}
CONTESTANTS = {
    "sdk": "the SDK alone",
    "two_clients": "two clients",
    "breaker": "two clients and a breaker",
    "forwarder": "park and forward",
    "outbox": "outbox: SQLite and a relay",
    "paired": "sbpair",
    "spooled": "sbpair with a spool",
    "always": 'sbpair, `spool_policy="always"`',
}
"""By the name of their module."""
PAIRED = ("paired", "spooled", "always")
"""Those that need a syphon. They are played with the asyncio client too."""


def module_of(contestant: str) -> ModuleType:
    """The module of a contestant."""
    return import_module(f"{__package__}.contestants.{contestant}")
