"""What is only half down: shares of sends rejected, throttled, late or never answered; tokens that do not come.

The rules are those of the broker itself, for both programs: a syphon meets them on its links, and a sender, which has
no link here, in its exchange. What they did to whom is noted, since an answer that is late or lost leaves its program
in doubt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch
from zlib import crc32

from sbpair.broker.access import OpenAccess
from sbpair.broker.auth import Grant
from sbpair.broker.errors import BrokerError
from sbpair.broker.faults import (
    Delay,
    DetachLink,
    Effect,
    EndingEffect,
    FaultEngine,
    FaultRule,
    Lose,
    Operation,
    RejectWith,
    Throttle,
    Withhold,
)
from sbpair.pair.auth.credential import SIGNATURE, SharedKey, Token, TokenUnavailableError, expiry_of, sign
from sbpair.pair.syphon.forward.waiting import LATE_AFTER

from .network import HOST
from .plan import HEALED, PRIMARY, SECONDARY, WORKLOAD, Fault, Kind, Shape

if TYPE_CHECKING:
    from .world import World

TOKEN_LIVES = (20, 60, 180)  # seconds
ANSWERED_WITHIN = LATE_AFTER  # seconds: an answer that comes by then leaves nothing unsure (H-12)
SLOWEST = 70  # seconds until an answer comes: longer than operation_timeout
LONGEST_HINT = 20  # seconds
SHARES = (20, 50, 80, 95)  # of 100 operations
SMALL_SHARES = (5, 5, 20, 30, 40, 45, 67)  # of 100 operations: those at which an entity may stay

_REACHED = {
    RejectWith: "rejection by share",
    Throttle: "busy with a hint",
    Delay: "late answer",
    Withhold: "answer withheld",
    Lose: "send lost",
    DetachLink: "link detached in a send",
}


# -- what is drawn


def drawn_grey(rng: Random, shape: Shape) -> Shape:
    """The same world with more traffic for its hot entity, and with tokens that do not live long."""
    return replace(shape, burst=rng.randint(15, 60), token_life=rng.choice((None, *TOKEN_LIVES)))


def drawn_half(rng: Random, shape: Shape, backlogs: tuple[str, ...], plan: list[Fault]) -> list[Fault]:
    """One to four faults that hit a share of the operations, half of them while a primary comes back."""
    returns = [fault.at + fault.span for fault in plan if (fault.kind, fault.target) == (Kind.DOWN, PRIMARY)]
    drawn = []
    for index in range(rng.randint(1, 5)):
        kind = rng.choice(HALVES)
        at = rng.uniform(5, 60) if index == 0 else rng.uniform(0, WORKLOAD)
        if returns and rng.random() < 0.5:
            at = max(rng.choice(returns) - rng.uniform(0, 5), 0.0)
        span = min(rng.uniform(10, 100), HEALED - at)
        hosts = [f"syphon-{each}" for each in range(shape.syphons)]
        senders = [f"client-{each}" for each in range(shape.clients)]
        side = rng.choice((PRIMARY, PRIMARY, SECONDARY))
        target = {
            Kind.NO_TOKEN: f"{rng.choice((*hosts, *senders))} {side}",
        }.get(kind, shape.hot if rng.random() < 0.7 else rng.choice((*backlogs, *shape.twins)))
        drawn.append(Fault(kind, target, at, span, _drawn_count(rng, kind)))
    return drawn


def drawn_trouble(rng: Random, shape: Shape) -> tuple[Shape, list[Fault]]:
    """The same world, mostly redirecting, whose hot entity is in trouble that is seldom bad enough to fail over."""
    drawn = rng.choice((_drawn_flaps, _drawn_pauses, _drawn_old_failures, _drawn_share))(rng, shape.hot)
    shape = replace(shape, redirects_suspects=rng.random() < 0.7, burst=max(shape.burst, rng.randint(10, 30)))
    return shape, [fault for fault in drawn if fault.at < WORKLOAD]


def _drawn_flaps(rng: Random, path: str) -> list[Fault]:
    """Up and down in turn."""
    up, down, at = rng.uniform(2, 20), rng.uniform(1, 15), rng.uniform(2, 30)
    count = rng.randint(2, 6)
    return [Fault(Kind.SHARE, path, at + index * (up + down), down, 100) for index in range(count)]


def _drawn_pauses(rng: Random, path: str) -> list[Fault]:
    """A healthy entity that stops for a while, again and again."""
    period, span, at = rng.uniform(15, 60), rng.uniform(2, 8), rng.uniform(2, 30)
    return [Fault(Kind.PAUSED, path, at + index * period, span) for index in range(rng.randint(2, 5))]


def _drawn_old_failures(rng: Random, path: str) -> list[Fault]:
    """One bad second now and then, and later a blip."""
    period, at, count = rng.uniform(4, 20), rng.uniform(2, 20), rng.randint(1, 4)
    old = [Fault(Kind.SHARE, path, at + index * period, 1.0, 100) for index in range(count)]
    return [*old, Fault(Kind.SHARE, path, at + count * period, rng.uniform(1, 15), 100)]


def _drawn_share(rng: Random, path: str) -> list[Fault]:
    """A share of the sends fails, for long."""
    kind = rng.choice((Kind.LOSSY, Kind.LOSSY, Kind.UNANSWERED, Kind.SHARE, Kind.THROTTLED))
    return [Fault(kind, path, rng.uniform(2, 40), rng.uniform(30, 100), rng.choice(SMALL_SHARES))]


def _drawn_count(rng: Random, kind: Kind) -> int:
    if kind is Kind.DETACH_IN_SEND:
        return rng.randint(1, 8)
    return rng.choice(SHARES)


HALVES = (
    Kind.SHARE,
    Kind.SHARE,
    Kind.THROTTLED,
    Kind.SLOW,
    Kind.UNANSWERED,
    Kind.UNANSWERED,
    Kind.NO_TOKEN,
    Kind.DETACH_IN_SEND,
    Kind.DETACH_IN_SEND,
)

BY_RULE = frozenset((*HALVES, Kind.LOSSY, Kind.PAUSED)) - {Kind.NO_TOKEN}
"""The kinds that a rule of the broker carries out."""


# -- what happens


class WatchedFaults(FaultEngine):
    """The faults of one namespace, which tells the world of each operation that it changes."""

    def __init__(self, world: World, side: str) -> None:
        super().__init__()
        self._world, self._side = world, side

    def apply(self, operation: Operation, path: str, now: float) -> Effect | None:
        effect = super().apply(operation, path, now)
        if effect is not None:
            self._struck(operation, effect)
        return effect

    def _struck(self, operation: Operation, effect: Effect) -> None:
        world, host = self._world, self._world.network.actor
        what = _REACHED.get(type(effect))
        is_late = isinstance(effect, Delay) and effect.seconds > ANSWERED_WITHIN
        if is_late or isinstance(effect, (Withhold, EndingEffect)):
            world.disturb(host, effect.seconds if isinstance(effect, Delay) else 0.0)
        if what is not None and host:
            program = host.partition("-")[0]
            what = f"{program}'s {what}" if operation is Operation.SEND else f"{program}'s settlement: {what}"
            world.history.reached[what] += 1


class ShortAccess(OpenAccess):
    """Takes any token, and a signature only for as long as it is valid."""

    def verify(self, token: str, now_s: int) -> Grant:
        expires = expiry_of(token)
        grant = super().verify(token, now_s)
        return grant if expires is None else replace(grant, expires=expires)


def begin_half(world: World, fault: Fault) -> None:
    """Set the rule of a fault at every side that has its entity."""
    rng = Random(crc32(str(fault).encode()))
    effect: Effect
    match fault.kind:
        case Kind.SHARE:
            effect = RejectWith("amqp:internal-error")
        case Kind.THROTTLED:
            seconds = rng.randint(1, LONGEST_HINT)
            hint = f"Please wait {seconds} seconds and try again."
            effect = Throttle(description=hint if rng.random() < 0.7 else "The service is busy.")
        case Kind.LOSSY:
            effect = Lose()
        case Kind.PAUSED:
            effect = Delay(fault.span)
        case Kind.SLOW:
            effect = Delay(rng.uniform(1, SLOWEST))
        case Kind.DETACH_IN_SEND:
            effect = DetachLink(carried_out=True)
        case _:
            effect = Withhold()
    sides = (SECONDARY,) if fault.target in world.backlogs else (PRIMARY, SECONDARY)
    is_share = fault.kind not in (Kind.DETACH_IN_SEND, Kind.PAUSED)
    is_settled = (
        fault.target in world.backlogs and isinstance(effect, (Delay, Withhold)) and rng.random() < 0.5
    )
    operations = (Operation.SEND, Operation.SETTLE) if is_settled else (Operation.SEND,)
    for side in sides:
        if side == SECONDARY and fault.target not in (*world.backlogs, *world.shape.twins):
            continue
        for operation in operations:
            rule = FaultRule(
                effect,
                fault.target,
                operation,
                times=fault.count if fault.kind is Kind.DETACH_IN_SEND else None,
                probability=fault.count / 100 if is_share else 1.0,
                seed=rng.getrandbits(30),
                lasting=fault.span,
            )
            try:
                world.servers[side].frontend.set_fault(rule, world.now)
            except BrokerError:  # the backlog was deleted
                world.history.note(world.now, "plan", "no such entity", "", fault.target)


@contextmanager
def token_service(world: World) -> Iterator[None]:
    """Sign tokens that live as long as the shape says, and none for a program whose token service is away."""
    told = SharedKey.token

    async def token(self: SharedKey, audience: str) -> Token:
        host, side = HOST.get(), audience.split("/")[2].partition(":")[0]
        if world.is_active(Kind.NO_TOKEN, f"{host} {side}") is not None:
            world.history.reached[f"{host.partition('-')[0]} without a token"] += 1
            raise TokenUnavailableError("the token service is away, as the plan says")
        if world.shape.token_life is None:
            return await told(self, audience)
        policy, key = self._read()
        expires = int(time.time()) + world.shape.token_life
        return Token(sign(audience, policy, key, expires), SIGNATURE, expires)

    with patch.object(SharedKey, "token", token):
        yield
