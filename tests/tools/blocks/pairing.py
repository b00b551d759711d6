"""The blocks of the docs about the paired clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


OPTION_GROUPS = {
    "Basic, and stable": (
        *("failover_interval", "ping_primary_interval", "operation_timeout", "backlog_queue_count"),
        *("assume_backlogs_exist", "spool", "spool_policy", "ordering", "enable_syphon", "observation"),
    ),
    "When an entity fails over, and when it returns": (
        *("suspect_policy", "attempt_timeout", "slow_after", "failover_share", "return_over"),
        *("failover_on_busy_after", "classifier", "probe", "fault_pair_on_refusal"),
    ),
    "What is parked, and how": ("headroom", "ttl_policy", "spill_on_quota", "primary_namespace_name"),
    "Bounds of the spool": ("spool_max_messages", "spool_max_bytes"),
    "The syphon of this process": ("land", "land_after"),
}
"""The options of a paired client by subject; those of the first group are what most programs need."""


def options() -> str:
    """A table for each group. Raises KeyError for an option that is in no group."""
    fields = {
        field[0]: option_row(*field)
        for field in documented_fields("sbpair/pair/pairing/options.py", "PairedNamespaceOptions")
    }
    tables = [
        f"### {name}\n\n{_options([fields.pop(each) for each in of])}" for name, of in OPTION_GROUPS.items()
    ]
    if fields:
        raise KeyError(f"in no group of OPTION_GROUPS: {', '.join(fields)}")
    return "\n".join(tables)


def observation_options() -> str:
    fields = documented_fields("sbpair/pair/pairing/options.py", "ObservationOptions")
    return _options([option_row(*field) for field in fields])


def _options(rows: Sequence[Sequence[str]]) -> str:
    return table(("option", "type", "default", "description"), rows)


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
