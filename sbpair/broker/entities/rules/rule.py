"""Rules of a subscription: a filter, and an optional action on the copy of a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ...errors import InvalidRuleError, InvalidRuleNameError
from .message_properties import LazyProperties, MessageProperties, PropertyChanges
from .values import Value, kind_of

if TYPE_CHECKING:
    from .evaluation import Condition, Step


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""

    def matches(self, properties: LazyProperties) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""

    def matches(self, properties: LazyProperties) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Matches messages whose properties equal all of the given ones, case-sensitively; None is not compared.

    Raises InvalidRuleError when no property is given.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.system and not self.properties:
            raise InvalidRuleError("The correlation filter has no property: give at least one.")

    @property
    def system(self) -> dict[str, str]:
        """The given system properties, by their names in lower case without underscores."""
        named = ((name, getattr(self, name)) for name in SYSTEM_FIELDS)
        return {name.replace("_", ""): value for name, value in named if value is not None}

    def matches(self, properties: LazyProperties) -> bool:
        """Whether the message has all of the properties.

        Raises EvaluationError when they cannot be decoded.
        """
        found = properties.get()
        return all(_equal(found.system.get(name), value) for name, value in self.system.items()) and all(
            _equal(found.of_user(name), value) for name, value in self.properties.items()
        )


SYSTEM_FIELDS = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")


def _equal(found: Value, wanted: Value) -> bool:
    return found is not None and kind_of(found) == kind_of(wanted) and found == wanted


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Matches messages for which ``expression`` is true.

    ``parameters`` are the values of its ``@name`` references.

    Raises InvalidRuleError when the expression is not valid.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .evaluation import compile_predicate  # imported late: not needed without SQL rules
        from .parser import parse_filter

        object.__setattr__(
            self, "_condition", compile_predicate(parse_filter(self.expression, self.parameters))
        )

    def matches(self, properties: LazyProperties) -> bool:
        """Whether the expression is true; unknown counts as false. Raises EvaluationError."""
        return self._condition(properties.get()) is True


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties; each statement sees the changes of earlier ones.

    Raises InvalidRuleError when the expression is not valid, or changes a property that cannot be changed.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _steps: tuple[Step, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .evaluation import compile_action  # imported late: not needed without SQL rules

        object.__setattr__(self, "_steps", compile_action(self.expression, self.parameters))

    def changes(self, properties: MessageProperties) -> PropertyChanges:
        """Return the changes to a message with these properties. Raises EvaluationError."""
        written, changes = properties.copy(), PropertyChanges()
        for step in self._steps:
            step(written, changes)
        return changes


DEFAULT_RULE = "$Default"
MAX_NAME = 50
_NAME = re.compile(r"[A-Za-z0-9$](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a subscription; ``created_at`` is in milliseconds since the epoch.

    Raises InvalidRuleError when the name is not valid.
    """

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: int = 0

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME or not _NAME.fullmatch(self.name):
            kind = InvalidRuleNameError if 0 < len(self.name) <= MAX_NAME else InvalidRuleError
            raise kind(
                f"The rule name {self.name[:100]!r} is not allowed: use 1 to {MAX_NAME} letters, digits, "
                "'.', '-' and '_', beginning and ending with a letter or digit."
            )

    @property
    def accepts_all(self) -> bool:
        """Whether the rule selects every message without changing it."""
        return self.action is None and isinstance(self.filter, TrueFilter)
