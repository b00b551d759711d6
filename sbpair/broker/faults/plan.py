"""Fault plans: tables (TOML, or JSON over HTTP) that describe fault rules and scenarios.

    seed = 7

    [[fault]]
    namespace = "contoso"
    entity = "orders"
    effect = "reject"
    condition = "com.microsoft:server-busy"
    times = 3

    [[fault]]
    namespace = "contoso"
    scenario = "flapping"

Unknown keys and invalid values raise an error that names them, so a plan is never applied in part.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import InvalidArgumentError
from .effects import Effect, Operation
from .rule import FaultRule, effect_named, operation_named
from .scenarios import scenario_named

_LIMITS: dict[str, tuple[type, ...]] = {
    "entity": (str,),
    "operation": (str,),
    "nth": (int,),
    "times": (int,),
    "probability": (float, int),
    "seed": (int,),
    "after": (float, int),
    "lasting": (float, int),
    "every": (float, int),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
}
_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A rule and the name of the namespace that it applies to."""

    namespace: str
    rule: FaultRule


def read_plan(text: str) -> list[PlannedFault]:
    """Return the faults of a TOML plan; each has its own seed. Raises InvalidArgumentError, which names the setting."""
    try:
        plan = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"The plan is not TOML: {error}.") from None
    return _of_plan(plan)


def posted_faults(body: object) -> list[PlannedFault]:
    """Return the faults of a whole plan, ``{"fault": [...]}``, or of one table, as :func:`planned_faults`."""
    if isinstance(body, Mapping) and "fault" in body:
        return _of_plan({str(key): value for key, value in body.items()})
    return planned_faults(body)


def _of_plan(plan: dict[str, object]) -> list[PlannedFault]:
    seed = plan.pop("seed", 0)
    faults = plan.pop("fault", [])
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InvalidArgumentError(f"seed is {seed!r:.60}: use a whole number.")
    if plan:
        raise InvalidArgumentError(f"A plan has only seed and [[fault]] tables: remove {', '.join(plan)}.")
    if not isinstance(faults, list):
        raise InvalidArgumentError("fault is not a list: write [[fault]] tables.")
    planned: list[PlannedFault] = []
    for table in faults:
        planned += planned_faults(table, seed + 1000 * len(planned))
    return planned


def planned_faults(table: object, seed: int = 0) -> list[PlannedFault]:
    """Return the faults of one table, which names an effect or a scenario.

    ``seed``: used unless the table sets one. Raises InvalidArgumentError, which names the setting.
    """
    if not isinstance(table, Mapping):
        raise InvalidArgumentError("A fault must be a table of settings.")
    given = {str(key): value for key, value in table.items()}
    namespace = _text(given, "namespace")
    if "scenario" in given:
        scenario = scenario_named(_text(given, "scenario"))
        limits = _check_settings(given, {"entity": (str,), "seed": (int,)}, f"scenario '{scenario.name}'")
        entity = limits.get("entity")
        rules = scenario.of(entity if isinstance(entity, str) else None, _whole(limits.get("seed"), seed))
        return [PlannedFault(namespace, rule) for rule in rules]
    return [PlannedFault(namespace, _rule(given, seed))]


def _rule(given: dict[str, object], seed: int) -> FaultRule:
    kind = effect_named(_text(given, "effect"))
    known = {**_LIMITS, **{field.name: _TYPES[str(field.type)] for field in fields(kind)}}
    taken = _check_settings(given, known, f"fault '{kind.name}'")
    limits = {name: taken.pop(name) for name in _LIMITS if name in taken}
    effect: Effect = kind(**taken)
    operation = limits.pop("operation", None)
    limits.setdefault("seed", seed)
    return FaultRule(effect, operation=_operation(operation), **limits)  # type: ignore[arg-type]


def _operation(name: object) -> Operation | None:
    if name is None:
        return None
    return operation_named(str(name))


def _text(given: dict[str, object], name: str) -> str:
    value = given.pop(name, None)
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"A fault needs the string '{name}', not {value!r:.60}.")
    return value


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _check_settings(
    given: dict[str, object], known: Mapping[str, tuple[type, ...]], of: str
) -> dict[str, object]:
    for name, value in given.items():
        if name not in known:
            raise InvalidArgumentError(f"The {of} has no setting '{name}'; it has: {', '.join(known)}.")
        kinds = known[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InvalidArgumentError(f"The {of}: {name} is {value!r:.60}: use {_WORDS[kinds[0]]}.")
    return dict(given)
