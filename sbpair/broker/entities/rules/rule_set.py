"""The rules of one subscription, and the copies of a message that they produce.

rules without an action    one copy, however many of them match
a rule with an action      a copy of its own, with the rule's name in the property RuleName
a rule that fails          the original message is dead-lettered if the subscription is configured to do so
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .message_properties import LazyProperties, PropertyChanges
from .rule import CorrelationFilter, Rule, SqlFilter
from .values import EvaluationError

RULE_NAME = "RuleName"


@dataclass(slots=True)
class RuleOutcome:
    """The result for one message: whether to store an unchanged copy, the changes for other copies, and a failure."""

    is_selected: bool = False
    changes: list[PropertyChanges] = field(default_factory=list)
    failure: str | None = None


@dataclass(slots=True)
class FilterCounts:
    """The number of filters by limited kind, in all subscriptions of a topic."""

    sql: int = 0
    correlation: int = 0

    def add(self, rules: RuleSet, sign: int = 1) -> None:
        """Count the rules of a subscription that were added (``sign`` 1) or removed (-1)."""
        self.sql += sign * rules.sql_filters
        self.correlation += sign * rules.correlation_filters


class RuleSet:
    """The rules of a subscription, shared by its partitions; names are case-insensitive.

    ``on_change``, if set, is called after each change. ``counts``, if set, are the topic's filter counts to
    update.
    """

    def __init__(self, first: Rule | None = None) -> None:
        self._rules: dict[str, Rule] = {}
        self.accepts_all = False  # whether all messages match unchanged, so that they need not be decoded
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
        """Return a rule by name, or None."""
        return self._rules.get(name.casefold())

    def put(self, rule: Rule) -> None:
        """Add a rule, or replace the one with the same name."""
        if (before := self.get(rule.name)) is not None:
            self._count(before, -1)
        self._rules[rule.name.casefold()] = rule
        self._count(rule, 1)
        self._changed()

    def drop(self, name: str) -> None:
        """Remove a rule. Raises KeyError if the name is unknown."""
        self._count(self._rules.pop(name.casefold()), -1)
        self._changed()

    def evaluate_message(self, properties: LazyProperties) -> RuleOutcome:
        """Apply the rules to a message."""
        outcome = RuleOutcome()
        for rule in self._rules.values():
            try:
                if rule.filter.matches(properties):
                    self._apply(rule, properties, outcome)
            except EvaluationError as error:
                outcome.failure = outcome.failure or f"The rule '{rule.name}' failed: {error}."
        return outcome

    def _apply(self, rule: Rule, properties: LazyProperties, outcome: RuleOutcome) -> None:
        if rule.action is None:
            outcome.is_selected = True
            return
        changes = rule.action.changes(properties.get())
        changes.user[RULE_NAME] = rule.name
        changes.removed.discard(RULE_NAME)
        outcome.changes.append(changes)

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
