"""What can a rule read of a message, and what has an action written?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..stored_message import StoredMessage
from .values import EvaluationError, Value


class HeaderOutgrown(EvaluationError):
    """The header would be larger than a message's may be (3.9)."""


class MessageProperties:
    """A message's own properties (``system``, by their names in lower case) and its sender's (``user``)."""

    __slots__ = ("_names", "system", "user")

    def __init__(self, system: Mapping[str, Value], user: Mapping[str, Value]) -> None:
        self.system = dict(system)
        self.user = dict(user)
        self._names: dict[str, str] | None = None

    def name_of(self, name: str) -> str | None:
        """How the sender spelt a property: as asked for, else the first that differs in case alone."""
        if name in self.user:
            return name
        if self._names is None:
            self._names = {}
            for each in self.user:
                self._names.setdefault(each.casefold(), each)
        return self._names.get(name.casefold())

    def of_user(self, name: str) -> Value:
        """The sender's property of that name in any case; None, unknown, for one that is not there."""
        spelt = self.name_of(name)
        return None if spelt is None else self.user[spelt]

    def copy(self) -> MessageProperties:
        """The same, for an action to write on."""
        return MessageProperties(self.system, self.user)

    def set_user(self, name: str, value: Value) -> str:
        """Set the sender's property; returns how it is spelt."""
        spelt = self.name_of(name) or name
        self.user[spelt] = value
        self._names = None
        return spelt

    def remove_user(self, name: str) -> str | None:
        """Take the sender's property away; returns how it was spelt, None where there was none."""
        spelt = self.name_of(name)
        if spelt is not None:
            del self.user[spelt]
            self._names = None
        return spelt


@dataclass(slots=True)
class PropertyChanges:
    """What is to be written on a copy: the sender's properties set and removed, the message's own set."""

    user: dict[str, Value] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    system: dict[str, Value] = field(default_factory=dict)


class MessageForm(Protocol):
    """Reads and writes the properties in a stored message's bytes."""

    def read(self, message: StoredMessage) -> MessageProperties:
        """Its properties. Raises EvaluationError for bytes that do not read as properties."""

    def write(self, message: StoredMessage, changes: PropertyChanges) -> None:
        """Write ``changes`` on the message.

        Raises EvaluationError for what cannot be written, and HeaderOutgrown.
        """

    def outgrows(self, message: StoredMessage, changes: Mapping[str, object]) -> bool:
        """Whether its header would be larger than it may be with these application properties set (3.9)."""


class Reading:
    """A message about to be published: its properties are read when the first rule asks, once."""

    __slots__ = ("_form", "_message", "_outcome")

    def __init__(self, message: StoredMessage, form: MessageForm) -> None:
        self._message = message
        self._form = form
        self._outcome: MessageProperties | EvaluationError | None = None

    def properties(self) -> MessageProperties:
        """The properties. Raises EvaluationError, each time."""
        if self._outcome is None:
            try:
                self._outcome = self._form.read(self._message)
            except EvaluationError as error:
                self._outcome = error
        if isinstance(self._outcome, EvaluationError):
            raise self._outcome
        return self._outcome
