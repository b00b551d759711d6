"""Conversion of a state to JSON and back. Reading executes nothing: it creates only a few known types."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import Enum
from importlib import import_module
from typing import Any

import numpy as np

OURS = "sbpair.data.audit."
TAG, VALUE = "!", "="
FACTORIES: dict[str, type] = {each.__name__: each for each in (list, dict, set, int, float, Counter)}
FROM_TEXT: dict[str, Callable[[Any], object]] = {
    "datetime": datetime.fromisoformat,
    "timedelta": lambda seconds: timedelta(seconds=seconds),
    "bytes": base64.b64decode,
    "array": lambda text: np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False),
    "tuple": lambda values: tuple(map(_build, values)),
    "set": lambda values: set(map(_build, values)),
    "frozenset": lambda values: frozenset(map(_build, values)),
    "dict": lambda pairs: {_build(key): _build(value) for key, value in pairs},
    "Counter": lambda pairs: Counter({_build(key): value for key, value in pairs}),
    "defaultdict": lambda found: defaultdict(
        FACTORIES[found[0]], [(_build(key), _build(value)) for key, value in found[1]]
    ),
}


def dumps(content: object) -> bytes:
    """Return ``content`` as JSON. Raises TypeError for a type that has no plain form."""
    return json.dumps(_plain(content), separators=(",", ":")).encode()


def loads(text: bytes) -> object:
    """Return the content that :func:`dumps` encoded. Raises ValueError for any other text."""
    try:
        return _build(json.loads(text))
    except (KeyError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError(f"not a state of a daily audit: {error!r}") from error


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return _with_tag(_name_of(type(value)), value.name)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_plain(each) for each in value]
    for kind, tag, convert in BY_TYPE:
        if type(value) is kind:
            return _with_tag(tag, convert(value))
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _with_tag(_name_of(type(value)), [_plain(each) for each in value])
    return _with_tag(_name_of(type(value)), {name: _plain(part) for name, part in _parts(value)})


def _with_tag(tag: str, value: object) -> dict[str, object]:
    return {TAG: tag, VALUE: value}


def _pairs(value: dict[Any, Any]) -> list[object]:
    return [[_plain(key), _plain(each)] for key, each in value.items()]


def _array_text(array: np.ndarray[Any, Any]) -> str:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


BY_TYPE: tuple[tuple[type, str, Callable[[Any], object]], ...] = (
    (datetime, "datetime", datetime.isoformat),
    (timedelta, "timedelta", timedelta.total_seconds),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (np.ndarray, "array", _array_text),
    (tuple, "tuple", lambda value: [_plain(each) for each in value]),
    (set, "set", lambda value: [_plain(each) for each in value]),
    (frozenset, "frozenset", lambda value: [_plain(each) for each in value]),
    (dict, "dict", _pairs),
    (Counter, "Counter", _pairs),
    (defaultdict, "defaultdict", lambda value: [value.default_factory.__name__, _pairs(value)]),
)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The attributes of an instance, in its dictionary and its slots."""
    yield from getattr(value, "__dict__", {}).items()
    for each in type(value).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _name_of(kind: type) -> str:
    if not kind.__module__.startswith(OURS):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no plain form")
    return f"{kind.__module__}:{kind.__qualname__}"


def _build(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_build(each) for each in value]
    if not isinstance(value, dict):
        return value
    tag, content = value[TAG], value[VALUE]
    if tag in FROM_TEXT:
        return FROM_TEXT[tag](content)
    kind = _type_named(tag)
    if issubclass(kind, Enum):
        return kind[content]
    if issubclass(kind, tuple):
        return tuple.__new__(kind, map(_build, content))
    built = object.__new__(kind)
    for name, part in content.items():
        object.__setattr__(built, name, _build(part))
    return built


def _type_named(name: str) -> type:
    module, _, path = name.partition(":")
    if not module.startswith(OURS):
        raise ValueError(f"{name!r} is not a type of the audit")
    kind: Any = import_module(module)
    for part in path.split("."):
        kind = getattr(kind, part)
    if not isinstance(kind, type) or not kind.__module__.startswith(OURS):
        raise ValueError(f"{name!r} is not a type of the audit")
    return kind
