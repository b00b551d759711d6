"""The blocks of the docs about the processor."""

from __future__ import annotations

from collections.abc import Callable

from tests.tools.source import documented_fields, event_table, option_row, table


def processor_options() -> str:
    fields = documented_fields("sbpair/pair/processor/options.py", "ProcessorOptions")
    return table(("option", "type", "default", "description"), [option_row(*field) for field in fields])


def processor_counters() -> str:
    fields = documented_fields("sbpair/pair/processor/status.py", "ProcessorCounters")
    return table(("counter", "meaning"), [(f"`{name}`", doc) for name, _, _, doc in fields])


def processor_events() -> str:
    return event_table("sbpair/pair/processor/events.py", "ProcessorEvent", "`at`, `path` and `side`")


BLOCKS: dict[str, Callable[[], str]] = {
    "processor-options": processor_options,
    "processor-counters": processor_counters,
    "processor-events": processor_events,
}
