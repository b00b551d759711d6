"""How many entities may a namespace have? (Q-19)"""

from __future__ import annotations

from ..errors import TooManyEntities
from .entity import Entity
from .kinds import AnySubscription
from .layout import Layout
from .rules import CorrelationFilter, Rule, SqlFilter

MOST_ENTITIES = 10_000  # queues and topics
MOST_SUBSCRIPTIONS = 2_000  # of one topic (3.8)
MOST_SQL_FILTERS, MOST_CORRELATION_FILTERS = 2_000, 100_000  # likewise


class Limits:
    """The entities of a namespace, counted as they come and go; a partitioned one counts among all."""

    __slots__ = ("_all", "_most_partitioned", "_partitioned")

    def __init__(self, layout: Layout) -> None:
        self._most_partitioned = layout.most_partitioned
        self._all = self._partitioned = 0

    def check(self, is_partitioned: bool) -> None:
        """Raises TooManyEntities when there is no room for one more."""
        if self._all >= MOST_ENTITIES:
            raise TooManyEntities("queues and topics", MOST_ENTITIES)
        most = self._most_partitioned
        if is_partitioned and most is not None and self._partitioned >= most:
            raise TooManyEntities("partitioned entities", most)

    def check_subscriptions(self, path: str, held: int) -> None:
        """Raises TooManyEntities when the topic at ``path`` has no room for one more."""
        if held >= MOST_SUBSCRIPTIONS:
            raise TooManyEntities(f"subscriptions of '{path}'", MOST_SUBSCRIPTIONS)

    def count(self, entity: Entity, change: int) -> None:
        """One came (1) or went (-1); a subscription belongs to its topic."""
        if not isinstance(entity, AnySubscription):
            self._all += change
            self._partitioned += change * entity.description.enable_partitioning


def check_rules(subscription: AnySubscription, rule: Rule) -> None:
    """Raises TooManyEntities when the topic has no room for one more filter of that kind (3.8)."""
    topic, before = subscription.topic, subscription.rules.get(rule.name)
    counts = [each.rules for each in topic.subscriptions.values()]
    for kind, held, most in (
        (SqlFilter, sum(rules.sql_filters for rules in counts), MOST_SQL_FILTERS),
        (CorrelationFilter, sum(rules.correlation_filters for rules in counts), MOST_CORRELATION_FILTERS),
    ):
        is_another = isinstance(rule.filter, kind) and not (before and isinstance(before.filter, kind))
        if is_another and held >= most:
            raise TooManyEntities(f"{kind.__name__}s on '{topic.path}'", most)
