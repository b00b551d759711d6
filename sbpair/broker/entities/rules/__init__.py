"""The rules of a subscription: which messages does it take, and what does it write on its copies? (3.8)

expression --tokens--> words --parser--> tree --evaluation--> a function of a message's properties
"""

from __future__ import annotations

from .correlation_filter import CorrelationFilter
from .fixed_filter import FalseFilter, TrueFilter
from .rule import DEFAULT_RULE, Filter, Rule
from .rule_set import RuleSet
from .sql_action import SqlAction
from .sql_filter import SqlFilter

__all__ = [
    "DEFAULT_RULE",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "Rule",
    "RuleSet",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
]
