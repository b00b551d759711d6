"""Fault rules, and the engine that matches operations against the active ones.

set             after             after + lasting    after + every
 |----------------|=====================|.................|=====================|.....
                       the rule holds                          it holds again
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf, isfinite

from ..errors import InvalidArgumentError
from .effects import (
    EFFECTS,
    CutAfter,
    Delay,
    Disabled,
    Down,
    Effect,
    LateVisibility,
    LoseLock,
    Operation,
    Outage,
    PartitionDown,
    StandingEffect,
)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """An effect, the entities it applies to, and its limits. Raises InvalidArgumentError for contradictory settings.

    * ``entity``: a path, or a pattern with ``*``; None for all.
    * ``operation``: one that the effect applies to; None for its defaults.
    * ``nth``: only the n-th match, from 1.
    * ``times``: the maximum number of hits, at least 1.
    * ``probability``: of a hit, from 0 to 1; drawn from ``seed``.
    * ``after``: seconds of connection time from setting the rule until it first holds.
    * ``lasting``: seconds for which it holds; None for no end.
    * ``every``: seconds from one beginning to the next, more than ``lasting``; None for once.
    """

    effect: Effect
    entity: str | None = None
    operation: Operation | None = None
    nth: int | None = None
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    after: float = 0.0
    lasting: float | None = None
    every: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.effect, Effect):  # a class instead of an instance would never apply
            raise InvalidArgumentError(f"The fault is {self.effect!r}: use an effect such as Withhold().")
        for complaint in _complaints(self):
            raise InvalidArgumentError(f"The fault '{self.effect.name}': {complaint}.")

    @property
    def operations(self) -> frozenset[Operation]:
        """The operations that the rule applies to."""
        effect = self.effect
        return effect.usual & effect.applies_to if self.operation is None else frozenset({self.operation})

    def is_for(self, path: str) -> bool:
        """Whether the rule covers the entity at this path, compared without regard to case."""
        if self.entity is None:
            return True
        return fnmatchcase(path.casefold(), self.entity.casefold())

    def window(self, age: float) -> tuple[bool, float]:
        """Whether the rule holds ``age`` seconds after it was set, and the age at which that changes next."""
        if age < self.after:
            return False, self.after
        if self.lasting is None:
            return True, inf
        into = age - self.after
        rounds = int(into // self.every) if self.every is not None else 0
        begin = self.after + rounds * (self.every or 0.0)
        if age < begin + self.lasting:
            return True, begin + self.lasting
        return False, inf if self.every is None else begin + self.every


def _complaints(rule: FaultRule) -> list[str]:
    checks = [
        (
            _is_wrong_operation(rule),
            f"it applies to {_names(rule.effect)} only",
        ),
        (rule.nth is not None and rule.nth < 1, f"nth is {rule.nth}, use at least 1"),
        (rule.times is not None and rule.times < 1, f"times is {rule.times}, use at least 1"),
        (not 0 <= rule.probability <= 1, f"probability is {rule.probability}, use 0 to 1"),
        (_has_wrong_span(rule), "after, lasting and every must be seconds of 0 or more"),
        (_is_never_over(rule), "every needs lasting and must be longer"),
        (_counts_what_stands(rule), "a standing effect has no nth, times or probability"),
        (_lacks_its_entity(rule), f"entity is {rule.entity!r}, use one path"),
        (
            _has_no_entity(rule),
            f"entity is {rule.entity!r}, but it applies to the whole namespace: omit entity",
        ),
        *_settings_checks(rule.effect),
    ]
    return [complaint for is_wrong, complaint in checks if is_wrong]


def _is_wrong_operation(rule: FaultRule) -> bool:
    return rule.operation is not None and rule.operation not in rule.effect.applies_to


def _has_wrong_span(rule: FaultRule) -> bool:
    spans = (rule.after, rule.lasting, rule.every)
    return any(span is not None and not _is_span(span) for span in spans)


def _is_never_over(rule: FaultRule) -> bool:
    return rule.every is not None and (rule.lasting is None or rule.every <= rule.lasting)


def _counts_what_stands(rule: FaultRule) -> bool:
    counts = rule.nth is not None or rule.times is not None or rule.probability < 1
    return isinstance(rule.effect, StandingEffect) and counts


def _lacks_its_entity(rule: FaultRule) -> bool:
    is_of_one = isinstance(rule.effect, PartitionDown | Disabled)
    return is_of_one and (rule.entity is None or "*" in rule.entity)


def _has_no_entity(rule: FaultRule) -> bool:
    return isinstance(rule.effect, Down | CutAfter) and rule.entity not in (None, "*")


def _settings_checks(effect: Effect) -> list[tuple[bool, str]]:
    match effect:
        case Delay(seconds) | LateVisibility(seconds) | LoseLock(seconds):
            return [(not _is_span(seconds), f"seconds is {seconds}, use 0 or more")]
        case Down(how, delay):
            ways = [outage.value for outage in Outage]
            return [
                (how not in ways, f"how is '{how}', use one of {', '.join(ways)}"),
                (not _is_span(delay), f"delay is {delay}, use 0 or more"),
            ]
        case CutAfter(count, direction):
            return [
                (direction not in ("in", "out"), f"direction is '{direction}', use in or out"),
                (count < 0, f"count is {count}, use 0 or more"),
            ]
        case Disabled(status):
            barred = ("Disabled", "SendDisabled", "ReceiveDisabled")
            return [(status not in barred, f"status is '{status}', use one of {', '.join(barred)}")]
        case _:
            return []


def _is_span(seconds: float) -> bool:
    return isfinite(seconds) and seconds >= 0


def _names(effect: Effect) -> str:
    return ", ".join(sorted(operation.value for operation in effect.applies_to)) or "none"


class ActiveFault:
    """A fault rule that is set: ``seen`` counts matching operations, ``hits`` those it changed."""

    __slots__ = ("_operations", "_random", "hits", "rule", "seen", "set_at")

    def __init__(self, rule: FaultRule, now: float) -> None:
        self.rule = rule
        self._operations = rule.operations
        self.set_at = now
        self.seen = 0
        self.hits = 0
        self._random = random.Random(rule.seed)

    def __repr__(self) -> str:
        return f"ActiveFault({self.rule.effect!r}, hits={self.hits})"

    def holds(self, now: float) -> bool:
        """Whether the rule holds at ``now``."""
        return self.rule.window(now - self.set_at)[0]

    def next_change(self, now: float) -> float:
        """Return the time at which :meth:`holds` changes next; infinity for never."""
        return self.set_at + self.rule.window(now - self.set_at)[1]

    def covers(self, operation: Operation, path: str | None = None) -> bool:
        """Whether the fault may apply to this operation on the entity at ``path``; None for any."""
        return operation in self._operations and (path is None or self.rule.is_for(path))

    def meets(self, operation: Operation, path: str, now: float) -> bool:
        """Report one operation at ``now``; return whether the fault applies to it, which counts as a hit."""
        rule = self.rule
        if not self.covers(operation, path) or not self.holds(now):
            return False
        self.seen += 1
        if rule.nth is not None and self.seen != rule.nth:
            return False
        if rule.times is not None and self.hits >= rule.times:
            return False
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return False
        self.hits += 1
        return True


def effect_named(name: str) -> type[Effect]:
    """Return the effect of that name. Raises InvalidArgumentError, which lists the known names."""
    kind = EFFECTS.get(name)
    if kind is None:
        raise InvalidArgumentError(f"There is no fault '{name}'; there are: {', '.join(EFFECTS)}.")
    return kind


def operation_named(name: str) -> Operation:
    """Return the operation of that name. Raises InvalidArgumentError, which lists the known names."""
    names = [each.value for each in Operation]
    if name not in names:
        raise InvalidArgumentError(f"There is no operation '{name}'; there are: {', '.join(names)}.")
    return Operation(name)


class FaultEngine:
    """The faults set on one namespace; ``now`` is in seconds of connection time."""

    def __init__(self) -> None:
        self._active: list[ActiveFault] = []
        self.are_any = False
        """Whether a fault is set."""

    @property
    def active(self) -> list[ActiveFault]:
        """All faults that are set, the oldest first."""
        return list(self._active)

    def add(self, rule: FaultRule, now: float) -> ActiveFault:
        """Set a rule. When several apply to one operation, the rule set last wins."""
        active = ActiveFault(rule, now)
        self._active.append(active)
        self.are_any = True
        return active

    def remove(self, active: ActiveFault) -> None:
        """Clear a fault; does nothing when it is not set."""
        self._active = [other for other in self._active if other is not active]
        self.are_any = bool(self._active)

    def may_apply(self, operation: Operation, path: str | None = None) -> bool:
        """Whether a fault may apply, now or later, to this operation on the entity at ``path``; None for any."""
        return any(active.covers(operation, path) for active in self._active)

    def apply(self, operation: Operation, path: str, now: float) -> Effect | None:
        """Return the effect of the fault that applies to an operation on the entity at ``path``, or None."""
        for active in reversed(self._active):
            if active.meets(operation, path, now):
                return active.rule.effect
        return None

    def standing_now(self, now: float) -> list[ActiveFault]:
        """Return the faults with a standing effect that hold at ``now``, the oldest first."""
        return [
            active
            for active in self._active
            if isinstance(active.rule.effect, StandingEffect) and active.holds(now)
        ]

    def next_change(self, now: float) -> float:
        """Return the time at which :meth:`standing_now` changes next; infinity for never."""
        spans = (
            active.next_change(now)
            for active in self._active
            if isinstance(active.rule.effect, StandingEffect)
        )
        return min(spans, default=inf)
