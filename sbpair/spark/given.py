"""The options that were given with a format: by name, in any case, each checked once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})  # handed on to every sink


class Given:
    """What ``.option(...)`` said. Every refusal is a ValueError that names the format and the option."""

    def __init__(self, form: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._form = form
        self._options = {name.lower(): value for name, value in options.items()}
        by_key = {name.lower(): name for name in known}
        for name in sorted(self._options.keys() - by_key.keys() - SPARKS_OWN):
            near = difflib.get_close_matches(name, by_key, n=1, cutoff=0.5)
            hint = f"did you mean {by_key[near[0]]}?" if near else f"there are {', '.join(known)}"
            raise self.wrong(f"unknown option {name!r}; {hint}")

    def wrong(self, text: str) -> ValueError:
        """The error to raise; ``text`` holds no value that may be a secret."""
        return ValueError(f"{self._form}: {text}")

    def text(self, name: str) -> str | None:
        """The value, or None when it was not given or is empty."""
        return self._options.get(name.lower(), "").strip() or None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.wrong(f"the option {name} is missing")
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within a range."""
        value = self.text(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise self.wrong(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        return int(value)

    def seconds(self, name: str, default: float, least: float, most: float) -> float:
        """A number of seconds within a range."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not least <= number <= most:
            raise self.wrong(f"{name} must be a number of seconds from {least:g} to {most:g}, not {value!r}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of a few words, in any case."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise self.wrong(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def several(self, name: str) -> tuple[str, ...]:
        """A list with commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
