"""Readers for the JSON of the dashboard's requests."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InvalidArgumentError
from .broker import Broker
from .control import NamespaceControl

Row = dict[str, object]
Given = Mapping[str, object]


def text_of(given: Given, name: str) -> str:
    """Return a string, "" if it is missing. Raises InvalidArgumentError for anything else."""
    value = given.get(name, "")
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} must be a string.")
    return value


def whole_of(given: Given, name: str) -> int:
    """Return a whole number from 0. Raises InvalidArgumentError for anything else."""
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidArgumentError(f"{name} must be a whole number.")
    return value


def namespace_of(broker: Broker, given: Given) -> NamespaceControl:
    """Return the namespace that a request names. Raises InvalidArgumentError when there is none of that name."""
    return broker.namespace(text_of(given, "namespace"))
