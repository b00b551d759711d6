"""References to secrets: ``env:NAME`` and ``file:PATH`` name a value stored elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

MAX_FILE = 65_536  # bytes


def resolve(value: str, name: str) -> str:
    """Return the text that ``value`` refers to, or ``value`` itself if it is not a reference.

    ``name`` is the option's name in errors. Raises ValueError when the variable is not set or empty, or the
    file cannot be read; the error names it and never its content.
    """
    kind, _, where = value.partition(":")
    if kind == "env":
        return _from_environment(where, name)
    if kind == "file":
        return _from_file(Path(where), name)
    return value.strip()


def _from_environment(variable: str, name: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ValueError(f"{name}: the environment variable {variable!r} is not set or empty")
    return value


def _from_file(path: Path, name: str) -> str:
    text = read_text(path, name, MAX_FILE).strip()
    if not text:
        raise ValueError(f"{name}: {path} is empty")
    return text


def read_text(path: Path, name: str, most: int) -> str:
    """Read a UTF-8 file of at most ``most`` bytes; ``name`` is the option's name in errors.

    Raises ValueError naming the file when it cannot be read, is larger, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise ValueError(f"{name}: {path} is larger than {most} bytes")
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{name}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {path} is not UTF-8 text") from error
