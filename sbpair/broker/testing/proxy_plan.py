"""Plans of `sbpair proxy`: the faults that a proxy starts with, and each rule and cut that its control accepts.

    rtt = 0.02                  # seconds added to each round trip; bandwidth: bytes a second; slice: bytes a write

    [[rule]]                    # a FrameRule: every = true in place of nth acts on each match
    action = "drop"
    performative = "disposition"
    direction = "out"
    address = "orders"
    nth = 1

    [[cut]]                     # the next new connection, after this many bytes
    direction = "in"
    bytes = 400

Unknown keys and invalid values raise BadConfigurationError, which names the file, the key and what is expected. Pure.

"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from sbpair.broker.configuration import BadConfigurationError
from sbpair.broker.configuration.table import Table

from .frames import IN, OUT, PERFORMATIVES, Action, FrameRule

ACTIONS = tuple(each.value for each in Action if each is not Action.KILL)  # kill is for tests on this machine
MAX_SECONDS = 86_400.0
MAX_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class LineSettings:
    """How the proxy forwards: ``rtt`` in seconds, ``bandwidth`` in bytes a second, ``slice`` in bytes a write."""

    rtt: float = 0.0
    bandwidth: float | None = None
    slice: int | None = None


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """The rules and faults that a proxy starts with."""

    line: LineSettings = LineSettings()
    rules: tuple[FrameRule, ...] = ()
    cuts: tuple[tuple[str, int], ...] = ()


def read_proxy_plan(file: str, text: str) -> ProxyPlan:
    """Return the plan in a TOML file. Raises BadConfigurationError."""
    try:
        table = Table(file, "", tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfigurationError(f"{file}: expected TOML: {error}") from None
    rules = tuple(rule_of(each) for each in table.list_tables("rule"))
    cuts = tuple(cut_of(each) for each in table.list_tables("cut"))
    return ProxyPlan(line_of(table), rules, cuts)


def line_of(table: Table) -> LineSettings:
    """Read the settings of the line, and reject any other key that is left. Raises BadConfigurationError."""
    rtt, bandwidth = _number(table, "rtt", MAX_SECONDS), _number(table, "bandwidth", MAX_BYTES, least=1)
    size = table.whole("slice", range(1, MAX_BYTES + 1))
    table.end()
    return LineSettings(rtt or 0.0, bandwidth, size)


def rule_of(table: Table) -> FrameRule:
    """Read one rule. Raises BadConfigurationError."""
    action = _one_of(table, "action", ACTIONS)
    if action is None:
        raise table.wrong("action", f"one of {', '.join(ACTIONS)}")
    performative = _one_of(table, "performative", tuple(PERFORMATIVES.values()))
    direction = direction_of(table)
    address, nth = (
        table.text("address", "the path of an entity, or a pattern"),
        table.whole("nth", range(1, 2**31)),
    )
    every, after = _flag(table, "every"), _flag(table, "after")
    seconds = _number(table, "seconds", MAX_SECONDS)
    if every and nth is not None:
        raise table.wrong("every", "every or nth, not both")
    if (seconds is not None) != (action == Action.DELAY.value):
        raise table.wrong("seconds", f"the seconds of a {Action.DELAY.value}, and for no other action")
    table.end()
    return FrameRule(
        Action(action),
        performative,
        direction,
        address,
        None if every else nth or 1,
        seconds or 0.0,
        None,
        after,
    )


def cut_of(table: Table) -> tuple[str, int]:
    """Read one cut of the next connection: its direction and after how many bytes. Raises BadConfigurationError."""
    direction, count = direction_of(table), table.whole("bytes", range(MAX_BYTES + 1))
    if direction is None:
        raise table.wrong("direction", f"{IN} (from the client) or {OUT}")
    if count is None:
        raise table.wrong("bytes", "a whole number of bytes")
    table.end()
    return direction, count


def direction_of(table: Table) -> str | None:
    """Read a direction, None without one. Raises BadConfigurationError."""
    return _one_of(table, "direction", (IN, OUT))


def _one_of(table: Table, key: str, allowed: tuple[str, ...]) -> str | None:
    expected = f"one of {', '.join(allowed)}"
    value = table.text(key, expected)
    if value is not None and value not in allowed:
        raise table.wrong(key, f"{expected}, not {value!r:.60}")
    return value


def _flag(table: Table, key: str) -> bool:
    value = table.take(key)
    if value is not None and not isinstance(value, bool):
        raise table.wrong(key, f"true or false, not {value!r:.60}")
    return bool(value)


def _number(table: Table, key: str, most: float, *, least: float = 0) -> float | None:
    value = table.take(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise table.wrong(key, f"a number from {least:g} to {most:g}, not {value!r:.60}")
    return float(value)
