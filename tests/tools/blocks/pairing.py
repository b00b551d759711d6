"""The blocks of the docs about the paired clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from tests.tools.source import (
    commented_members,
    documented_fields,
    error_table,
    event_table,
    option_row,
    table,
)


def transitions() -> str:
    """The state diagram, drawn from the machine's own table."""
    from sbpair.pair.pairing.decide.health import TRANSITIONS, EntityState

    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, cause), after in TRANSITIONS.items():
        arrows.setdefault((before.name, after.name), []).append(cause.value)
    drawn = [f"    {a} --> {b}: {',<br/>or '.join(causes)}" for (a, b), causes in arrows.items()]
    start = next(iter(EntityState)).name
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start}", *drawn, "```", ""])


def states() -> str:
    rows = [
        (f"`{name}`", doc)
        for name, _, doc in commented_members("sbpair/pair/pairing/decide/health.py", "EntityState")
    ]
    return table(("state", "behaviour of sends"), rows)


def events() -> str:
    return event_table("sbpair/pair/pairing/events.py", "PairingEvent", "`at` and `path`")


def options() -> str:
    fields = documented_fields("sbpair/pair/pairing/options.py", "PairedNamespaceOptions")
    return table(("option", "type", "default", "description"), [option_row(*field) for field in fields])


def observation_options() -> str:
    fields = documented_fields("sbpair/pair/pairing/options.py", "ObservationOptions")
    return table(("option", "type", "default", "description"), [option_row(*field) for field in fields])


def errors() -> str:
    return error_table("sbpair/pair/envelope/errors.py", "sbpair/pair/pairing/errors.py")


def failures() -> str:
    rows = commented_members("sbpair/pair/pairing/outcome.py", "Failure")
    return table(("kind", "effect on the message"), [(value, doc) for _, value, doc in rows])


def outcomes() -> str:
    """How errors are judged: the classes, then the conditions of a bare ServiceBusError."""
    from sbpair.pair.pairing.request.classify import BY_CLASS, BY_CONDITION

    return "\n".join(
        (
            _grouped("errors", {_qualified(error): verdict for error, verdict in BY_CLASS.items()}),
            "A bare `ServiceBusError` is judged by the AMQP condition inside it:\n",
            _grouped("conditions", BY_CONDITION),
        )
    )


def _grouped(title: str, judged: Mapping[str, tuple[Enum, str]]) -> str:
    groups: dict[tuple[Enum, str], list[str]] = {}
    for name, verdict in judged.items():
        groups.setdefault(verdict, []).append(f"`{name}`")
    order = list(type(next(iter(groups))[0]))
    rows = sorted(groups.items(), key=lambda row: order.index(row[0][0]))
    return table(
        ("kind", "why", title), [(str(kind.value), why, ", ".join(names)) for (kind, why), names in rows]
    )


def _qualified(error: type[BaseException]) -> str:
    package = error.__module__.partition(".")[0]
    return error.__name__ if package in ("builtins", "azure") else f"{error.__module__}.{error.__name__}"


BLOCKS: dict[str, Callable[[], str]] = {
    "transitions": transitions,
    "states": states,
    "events": events,
    "options": options,
    "observation-options": observation_options,
    "errors": errors,
    "failures": failures,
    "outcomes": outcomes,
}
