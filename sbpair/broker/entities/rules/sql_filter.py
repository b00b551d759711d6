"""A filter that says in SQL which messages it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .message_properties import Reading
from .values import Value

if TYPE_CHECKING:
    from .evaluation import Judge


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Takes the messages for which ``expression`` is true; ``parameters`` (``@name``) stand in it for values.

    Raises InvalidRule for an expression that cannot be read.
    """

    expression: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    _judge: Judge = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from .evaluation import judge  # late: a namespace without SQL does not load the language
        from .parser import parse_filter

        object.__setattr__(self, "_judge", judge(parse_filter(self.expression, self.parameters)))

    def matches(self, reading: Reading) -> bool:
        """Whether it takes the message; unknown is no. Raises EvaluationError."""
        return self._judge(reading.properties()) is True
