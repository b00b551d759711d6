"""The blocks of the docs about the syphon."""

from __future__ import annotations

from collections.abc import Callable

from tests.tools.source import (
    commented_members,
    documented_classes,
    documented_fields,
    event_table,
    option_row,
    table,
)


def syphon_options() -> str:
    fields = documented_fields("sbpair/pair/syphon/options.py", "SyphonOptions")
    return table(("option", "type", "default", "description"), [option_row(*field) for field in fields])


def syphon_events() -> str:
    return event_table("sbpair/pair/syphon/events.py", "SyphonEvent", "`at`")


def syphon_errors() -> str:
    import sbpair.syphon

    rows = [
        (f"`{name}`", f"`{base}`", doc)
        for name, base, doc in documented_classes("sbpair/pair/client/errors.py")
        if name in sbpair.syphon.__all__
    ]
    return table(("error", "is a", "what happened"), rows)


def syphon_counters() -> str:
    rows = commented_members("sbpair/pair/syphon/status.py", "SyphonCounters")
    return table(("counter", "meaning"), [(f"`{name}`", doc) for name, _, doc in rows])


def syphon_states() -> str:
    rows = commented_members("sbpair/pair/syphon/status.py", "SyphonState")
    return table(("state", "meaning"), [(f"`{value}`", doc) for _, value, doc in rows])


def dead_letter_reasons() -> str:
    from sbpair.pair.syphon.forward.in_flight import DEAD_LETTER_REASONS

    reasons: dict[str, list[str]] = {}
    for condition, reason in DEAD_LETTER_REASONS.items():
        reasons.setdefault(reason, []).append(f"`{condition}`")
    return table(
        ("dead-letter reason", "the primary answered"), [(f"`{r}`", ", ".join(c)) for r, c in reasons.items()]
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "syphon-options": syphon_options,
    "syphon-counters": syphon_counters,
    "syphon-errors": syphon_errors,
    "syphon-events": syphon_events,
    "syphon-states": syphon_states,
    "dead-letter-reasons": dead_letter_reasons,
}
