"""One rule of a subscription: which messages, and what is written on the copy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...errors import InvalidRule
from .correlation_filter import CorrelationFilter
from .fixed_filter import FalseFilter, TrueFilter
from .sql_action import SqlAction
from .sql_filter import SqlFilter

DEFAULT_RULE = "$Default"
LONGEST_NAME = 50
_NAME = re.compile(r"[A-Za-z0-9$](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; ``created_at`` in milliseconds since the epoch. Raises InvalidRule for such a name."""

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: int = 0

    def __post_init__(self) -> None:
        if len(self.name) > LONGEST_NAME or not _NAME.fullmatch(self.name):
            raise InvalidRule(
                f"The rule name {self.name[:100]!r} is not allowed: 1 to {LONGEST_NAME} letters, digits, "
                "'.', '-' and '_'; it begins and ends with a letter or a digit."
            )

    @property
    def takes_all(self) -> bool:
        """It takes every message as it is."""
        return self.action is None and isinstance(self.filter, TrueFilter)
