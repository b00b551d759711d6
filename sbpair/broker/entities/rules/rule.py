"""Rules of a subscription: a filter, and an optional action on the copy of a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ...errors import InvalidRule
from .message_properties import MessageProperties, PropertyChanges, LazyProperties
from .values import Value, kind_of

if TYPE_CHECKING:
    from .evaluation import Condition, Step


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes every message."""

    def matches(self, properties: LazyProperties) -> bool:
        """True."""
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes no message."""

    def matches(self, properties: LazyProperties) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Takes the messages that have every value named here, in the same case; None is not looked at.

    Raises InvalidRule when it names nothing.
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
            raise InvalidRule("The correlation filter names no property: one at least is needed.")

    @property
    def system(self) -> dict[str, str]:
        """The message's own properties that it names, by their names in lower case."""
        named = ((name, getattr(self, name)) for name in SYSTEM_FIELDS)
        return {name.replace("_", ""): value for name, value in named if value is not None}

    def matches(self, properties: LazyProperties) -> bool:
        """Whether the message has all of it. Raises EvaluationError for one that cannot be read."""
        found = properties.get()
        return all(_equal(found.system.get(name), value) for name, value in self.system.items()) and all(
            _equal(found.of_user(name), value) for name, value in self.properties.items()
        )


SYSTEM_FIELDS = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")


def _equal(found: Value, wanted: Value) -> bool:
    return found is not None and kind_of(found) == kind_of(wanted) and found == wanted


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Takes the messages for which ``expression`` is true; ``parameters`` (``@name``) stand in it for values.

    Raises InvalidRule for an expression that cannot be read.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .evaluation import compile_predicate  # late: a namespace without SQL does not load the language
        from .parser import parse_filter

        object.__setattr__(self, "_condition", compile_predicate(parse_filter(self.expression, self.parameters)))

    def matches(self, properties: LazyProperties) -> bool:
        """Whether it takes the message; unknown is no. Raises EvaluationError."""
        return self._condition(properties.get()) is True


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties, each statement seeing what those before it wrote.

    Raises InvalidRule for an expression that cannot be read, or that writes what cannot be written.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _steps: tuple[Step, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .evaluation import steps_of  # late: a namespace without SQL does not load the language

        object.__setattr__(self, "_steps", steps_of(self.expression, self.parameters))

    def changes(self, properties: MessageProperties) -> PropertyChanges:
        """What it writes on a message with these properties. Raises EvaluationError."""
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
    """A rule; ``created_at`` in milliseconds since the epoch. Raises InvalidRule for such a name."""

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: int = 0

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME or not _NAME.fullmatch(self.name):
            raise InvalidRule(
                f"The rule name {self.name[:100]!r} is not allowed: 1 to {MAX_NAME} letters, digits, "
                "'.', '-' and '_'; it begins and ends with a letter or a digit."
            )

    @property
    def accepts_all(self) -> bool:
        """It takes every message as it is."""
        return self.action is None and isinstance(self.filter, TrueFilter)
