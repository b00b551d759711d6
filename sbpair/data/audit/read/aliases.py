"""Other names of namespaces: journals of one incident may call a namespace by its port, its host or an alias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .mentions import MentionContext


@dataclass(frozen=True)
class Aliases:
    """The names of namespaces by their other names, both in lower case.

    Raises ValueError when a name is also an alias: its meaning would depend on the order.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lowered = {alias.lower(): name.lower() for alias, name in self.names.items()}
        for alias, name in lowered.items():
            if not alias or not name or name in lowered:
                raise ValueError(
                    f"invalid alias {alias}={name}: both sides must be names that are not aliases"
                )
        object.__setattr__(self, "names", lowered)

    def name(self, label: str | None) -> str | None:
        """Return the name of the namespace that a journal calls ``label``, in lower case."""
        return None if label is None else self.names.get(label.lower(), label.lower())

    def in_context(self, context: MentionContext) -> MentionContext:
        """Return ``context`` with the names of its namespaces."""
        if not self.names:
            return context
        return replace(context, primary=self.name(context.primary), secondary=self.name(context.secondary))
