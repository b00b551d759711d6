"""A filter that names the values which a message has to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ...errors import InvalidRule
from .message_properties import Reading
from .values import Value, kind_of


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

    def matches(self, reading: Reading) -> bool:
        """Whether the message has all of it. Raises EvaluationError for one that cannot be read."""
        found = reading.properties()
        return all(_same(found.system.get(name), value) for name, value in self.system.items()) and all(
            _same(found.of_user(name), value) for name, value in self.properties.items()
        )


SYSTEM_FIELDS = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")


def _same(found: Value, wanted: Value) -> bool:
    return found is not None and kind_of(found) == kind_of(wanted) and found == wanted
