"""The scenarios in real time, as a table: what the two sides do, who sends, how much, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sbpair.broker.faults import DetachLink, Down, FaultRule, Operation, RejectWith, Throttle, Withhold

ENTITY = "orders"
SCALED: Mapping[str, Any] = {
    "failover_interval": timedelta(seconds=3),
    "ping_primary_interval": timedelta(seconds=1),
    "operation_timeout": timedelta(seconds=6),
}
"""The options of a client that goes through an incident in seconds in place of minutes."""

HINT = 2.0  # seconds that a broker without room asks to wait

Figures = Mapping[str, Any]
Bar = Callable[[Mapping[str, Figures]], bool]
"""Whether the figures, by contestant, are what is promised."""


def _always(figures: Mapping[str, Figures]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Scenario:
    """One incident.

    ``primary`` and ``secondary`` are the faults of the sides, from the first second on; ``primary_room`` and
    ``secondary_room`` the messages that a side takes in a second. ``rate`` is the sends in a second, None for one after
    the other from each of ``workers``. ``parked`` messages wait on the secondary for a syphon, at ``parked_rate`` in a
    second, or at once. ``token_away`` is when the token service goes and comes back.
    """

    name: str
    title: str
    contestants: tuple[str, ...] = ("pair",)
    primary: tuple[FaultRule, ...] = ()
    secondary: tuple[FaultRule, ...] = ()
    primary_room: int | None = None
    secondary_room: int | None = None
    rate: float | None = 20.0
    workers: int = 20
    seconds: float = 20.0
    timeout: float = 6.0
    options: Mapping[str, Any] = field(default_factory=lambda: SCALED)
    parked: int = 0
    parked_rate: float | None = None
    token_life: float | None = None
    token_away: tuple[float, float] = (0.0, 0.0)
    promise: str = ""
    bar: Bar = _always

    @property
    def plain(self) -> Scenario:
        """The same for another process, which does not judge."""
        return replace(self, bar=_always)


def _share(effect: Any, share: float, operation: Operation = Operation.SEND) -> tuple[FaultRule, ...]:
    return (FaultRule(effect, ENTITY, operation, probability=share, seed=1),)


def _rejected(share: float, *, defaults: bool = False) -> Scenario:
    interval = 60.0 if defaults else 3.0
    return Scenario(
        f"rejected-{share * 100:.0f}{'-defaults' if defaults else ''}",
        f"the primary rejects {share:.0%}" + (", default options" if defaults else ""),
        ("pair", "pair redirect") if defaults else ("sdk", "pair", "pair redirect"),
        primary=_share(RejectWith("amqp:internal-error"), share),
        seconds=150.0 if defaults else 20.0,
        timeout=60.0 if defaults else 6.0,
        options={} if defaults else SCALED,
        promise="fails over within two intervals and a second; with redirect nobody gets an error",
        bar=lambda figures: (  # half open, the primary is asked once a second
            all(
                (each["failed_over_at"] or 1e9) <= 2 * interval + 1
                for name, each in figures.items()
                if name != "sdk"
            )
            and figures["pair redirect"]["raised"] == 0
        ),
    )


def _one_answer(rate: float) -> Scenario:
    return Scenario(
        f"lost-answer-{rate:g}",
        f"one answer to the syphon is lost, {rate:g} messages/s",
        ("syphon",),
        primary=(FaultRule(Withhold(), ENTITY, Operation.SEND, after=5.0, times=1),),
        rate=0.0,
        seconds=40.0,
        parked=int(rate * 30),
        parked_rate=rate,
        promise="at most five messages later than 8 s",
        bar=lambda figures: figures["syphon"]["late"] <= 5 and figures["syphon"]["home"] >= int(rate * 30),
    )


SCENARIOS = {
    each.name: each
    for each in (
        _rejected(0.8),
        _rejected(0.95),
        Scenario(
            "busy-20",
            "a healthy primary answers busy to 20 %, and to wait 2 s",
            ("sdk", "pair"),
            primary=_share(Throttle(), 0.2),
            rate=None,
            workers=120,
            seconds=60.0,
            timeout=60.0,
            options={},
            promise="a stored message costs at most the time that it costs the bare SDK, within the 5 % that 14,000 "
            "sends differ by chance",
            bar=lambda figures: figures["pair"]["time_each"] <= 1.05 * figures["sdk"]["time_each"],
        ),
        Scenario(
            "unanswered-20",
            "a fifth of the sends is stored and never answered, default options, 20 s for a send",
            ("sdk", "pair", "asyncio"),
            primary=_share(Withhold(), 0.2),
            workers=60,
            timeout=20.0,
            options={},
            promise="nobody gets an error, p99 is at most 3 s",
            bar=lambda figures: all(
                figures[name]["raised"] == 0 and figures[name]["p99"] <= 3.0 for name in ("pair", "asyncio")
            ),
        ),
        _one_answer(2.0),
        _one_answer(5.0),
        Scenario(
            "small-secondary",
            "the primary refuses, the secondary takes 20 of 40 sends/s; 10 s for a send",
            primary=(FaultRule(Down("refuse")),),
            secondary_room=20,
            rate=40.0,
            workers=450,
            seconds=30.0,
            timeout=10.0,
            options=SCALED | {"suspect_policy": "redirect"},
            promise="no send raises while it has more time than the 2 s that the service asks it to wait; at most 100 "
            "withdrawals",
            bar=lambda figures: (
                figures["pair"]["raised_after"] >= 10 - HINT and figures["pair"]["withdrawals"] <= 100
            ),
        ),
        Scenario(
            "both-silent",
            "both sides are silent, 40 sends/s, 6 s for a send",
            primary=(FaultRule(Down("silent")),),
            secondary=(FaultRule(Down("silent")),),
            rate=40.0,
            workers=300,
            seconds=30.0,
            promise="40 sends/s get 40 answers/s, each in its time",
            bar=lambda figures: figures["pair"]["answers_per_s"] >= 39 and figures["pair"]["longest"] <= 7.5,
        ),
        Scenario(
            "no-identity",
            "the managed identity is away for 32 s, tokens live for 12 s",
            ("sdk", "pair with a spool, redirect"),
            rate=10.0,
            workers=12,
            seconds=60.0,
            token_life=12.0,
            token_away=(5.0, 37.0),
            promise="none raises",
            bar=lambda figures: figures["pair with a spool, redirect"]["raised"] == 0,
        ),
        Scenario(
            "live-first",
            "the primary takes 100/s, live traffic 20/s, while 2,500 come home",
            ("pair with a syphon",),
            primary_room=100,
            rate=20.0,
            workers=150,
            seconds=40.0,
            parked=2500,
            promise="at most 1 % of the live sends raise, p99 is at most one pause of the 2 s that the service asks "
            "for, at least 800 home",
            bar=lambda figures: all(
                each["raised"] <= 0.01 and each["p99"] <= HINT + 0.1 and each["home"] >= 800
                for each in figures.values()
            ),
        ),
        Scenario(
            "detached-50",
            "half of the sends detach their link",
            ("sdk", "pair", "asyncio"),
            primary=_share(DetachLink(), 0.5),
            workers=20,
            seconds=30.0,
            options=SCALED | {"failover_share": 1.0},
            promise="both raise half as often as the bare SDK, or a little more; asyncio no more than blocking, within "
            "the 3 % that 600 sends differ by chance",
            bar=lambda figures: (
                max(figures["pair"]["raised"], figures["asyncio"]["raised"]) <= 0.6 * figures["sdk"]["raised"]
                and figures["asyncio"]["raised"] <= figures["pair"]["raised"] + 0.03
            ),
        ),
    )
}
DEFAULTS = {each.name: each for each in (_rejected(0.8, defaults=True), _rejected(0.95, defaults=True))}
