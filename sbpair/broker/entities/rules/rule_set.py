"""The rules of one subscription, and what they make of a message.

rules without an action    one copy, however many of them take the message
a rule with an action      a copy of its own, with its name as the property RuleName
a rule that fails          the message as it came, to be dead-lettered if the subscription says so
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .message_properties import PropertyChanges, LazyProperties
from .rule import CorrelationFilter, Rule, SqlFilter
from .values import EvaluationError

RULE_NAME = "RuleName"


@dataclass(slots=True)
class RuleOutcome:
    """What the rules want of a message: a plain copy, copies with changes, and why a rule failed."""

    is_taken: bool = False
    changes: list[PropertyChanges] = field(default_factory=list)
    failure: str | None = None


@dataclass(slots=True)
class FilterCounts:
    """How many filters of the kinds that are limited there are, in all subscriptions of a topic."""

    sql: int = 0
    correlation: int = 0

    def add(self, rules: RuleSet, sign: int = 1) -> None:
        """The rules of a subscription came (1) or went (-1)."""
        self.sql += sign * rules.sql_filters
        self.correlation += sign * rules.correlation_filters


class RuleSet:
    """The rules by name, in any case; the partitions of a subscription share one.

    ``on_change`` is called after each change, if it is set. ``counts``: those of its topic, once it has one.
    """

    def __init__(self, first: Rule | None = None) -> None:
        self._rules: dict[str, Rule] = {}
        self.accepts_all = False  # as they are: the messages need not be read
        self._plain = self.sql_filters = self.correlation_filters = 0
        self.on_change: Callable[[], None] | None = None
        self.counts: FilterCounts | None = None
        if first is not None:
            self.put(first)

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[Rule]:
        return (self._rules[key] for key in sorted(self._rules))

    def get(self, name: str) -> Rule | None:
        """The rule of that name, or None."""
        return self._rules.get(name.casefold())

    def put(self, rule: Rule) -> None:
        """Add the rule, or replace the one of its name."""
        if (before := self.get(rule.name)) is not None:
            self._count(before, -1)
        self._rules[rule.name.casefold()] = rule
        self._count(rule, 1)
        self._changed()

    def drop(self, name: str) -> None:
        """Take a rule away that is there."""
        self._count(self._rules.pop(name.casefold()), -1)
        self._changed()

    def evaluate_message(self, properties: LazyProperties) -> RuleOutcome:
        """What the rules want of a message."""
        verdict = RuleOutcome()
        for rule in self._rules.values():
            try:
                if rule.filter.matches(properties):
                    self._apply(rule, properties, verdict)
            except EvaluationError as error:
                verdict.failure = verdict.failure or f"The rule '{rule.name}' failed: {error}."
        return verdict

    def _apply(self, rule: Rule, properties: LazyProperties, verdict: RuleOutcome) -> None:
        if rule.action is None:
            verdict.is_taken = True
            return
        changes = rule.action.changes(properties.get())
        changes.user[RULE_NAME] = rule.name
        changes.removed.discard(RULE_NAME)
        verdict.changes.append(changes)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _count(self, rule: Rule, change: int) -> None:
        if self.counts is not None:
            self.counts.add(self, -1)
        self._plain += change * rule.accepts_all
        self.sql_filters += change * isinstance(rule.filter, SqlFilter)
        self.correlation_filters += change * isinstance(rule.filter, CorrelationFilter)
        self.accepts_all = 0 < self._plain == len(self._rules)
        if self.counts is not None:
            self.counts.add(self)
