"""Adding, updating and removing the rules of a subscription; additions and updates count as use."""

from __future__ import annotations

from ..errors import EntityAlreadyExistsError, EntityNotFoundError, TooManyEntitiesError
from .rules import CorrelationFilter, Rule, SqlFilter
from .stored_message import Instant
from .topic import Subscription

MAX_SQL_FILTERS, MAX_CORRELATION_FILTERS = 2_000, 100_000  # in all subscriptions of a topic


def find_rule(subscription: Subscription, name: str) -> Rule:
    """Return a rule by name. Raises EntityNotFoundError."""
    rule = subscription.rules.get(name)
    if rule is None:
        raise EntityNotFoundError(rule_path(subscription, name))
    return rule


def add_rule(subscription: Subscription, rule: Rule, now: Instant) -> Rule:
    """Add a rule to a subscription and return it.

    Raises EntityAlreadyExistsError, TooManyEntitiesError, PartitionUnavailableError.
    """
    if subscription.rules.get(rule.name) is not None:
        raise EntityAlreadyExistsError(rule_path(subscription, rule.name))
    return _put(subscription, rule, now)


def update_rule(subscription: Subscription, rule: Rule, now: Instant) -> Rule:
    """Replace the rule with the same name.

    Raises EntityNotFoundError, TooManyEntitiesError, PartitionUnavailableError.
    """
    find_rule(subscription, rule.name)
    return _put(subscription, rule, now)


def remove_rule(subscription: Subscription, name: str) -> Rule:
    """Remove a rule and return it; a subscription without rules receives nothing.

    Raises EntityNotFoundError, PartitionUnavailableError.
    """
    rule = find_rule(subscription, name)
    subscription.check_manageable()
    subscription.rules.drop(name)
    return rule


def rule_path(subscription: Subscription, name: str) -> str:
    """Return the path of a rule."""
    return f"{subscription.path}/Rules/{name[:100]}"


def _put(subscription: Subscription, rule: Rule, now: Instant) -> Rule:
    subscription.check_manageable()
    _check_filters(subscription, rule)
    subscription.rules.put(rule)
    subscription.touch(now)
    return rule


def _check_filters(subscription: Subscription, rule: Rule) -> None:
    """Raise TooManyEntitiesError if ``rule`` would exceed the topic's limit for its kind of filter."""
    topic, before = subscription.topic, subscription.rules.get(rule.name)
    for kind, held, limit in (
        (SqlFilter, topic.filters.sql, MAX_SQL_FILTERS),
        (CorrelationFilter, topic.filters.correlation, MAX_CORRELATION_FILTERS),
    ):
        is_additional = isinstance(rule.filter, kind) and not (before and isinstance(before.filter, kind))
        if is_additional and held >= limit:
            raise TooManyEntitiesError(f"{kind.__name__}s on '{topic.path}'", limit)
