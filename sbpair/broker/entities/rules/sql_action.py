"""What an action writes on the copy of a message, in SQL: ``SET`` and ``REMOVE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .message_properties import MessageProperties, PropertyChanges
from .values import Value

if TYPE_CHECKING:
    from .action_steps import Step


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties, each statement seeing what those before it wrote.

    Raises InvalidRule for an expression that cannot be read, or that writes what cannot be written.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _steps: tuple[Step, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .action_steps import steps_of  # late: a namespace without SQL does not load the language

        object.__setattr__(self, "_steps", steps_of(self.expression, self.parameters))

    def changes(self, properties: MessageProperties) -> PropertyChanges:
        """What it writes on a message with these properties. Raises EvaluationError."""
        written, changes = properties.copy(), PropertyChanges()
        for step in self._steps:
            step(written, changes)
        return changes
