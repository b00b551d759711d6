"""The rules of a subscription: filters that select messages, actions that change its copies.

expression --tokens--> words --parser--> tree --evaluation--> a function of a message's properties
"""

from __future__ import annotations

from .rule import DEFAULT_RULE, CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from .rule_set import FilterCounts, RuleSet

__all__ = [
    "DEFAULT_RULE",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "FilterCounts",
    "Rule",
    "RuleSet",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
]
