"""The blocks of the docs about journals and metrics, and the schema of the journal."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from tests.tools.source import (
    class_of,
    commented_members,
    documented_classes,
    documented_fields,
    private_bases,
    table,
)

EVENT_HOMES = (
    ("sender", "sbpair/pair/pairing/events.py"),
    ("syphon", "sbpair/pair/syphon/events.py"),
    ("syphon", "sbpair/pair/syphon/status.py"),
    ("asked for", "sbpair/pair/observation/messages.py"),
    ("processor", "sbpair/pair/processor/events.py"),
    ("broker", "sbpair/broker/entities/audit_recorder.py"),
    ("all", "sbpair/pair/observation/journal.py"),
)


NO_EVENTS = {
    "ProcessorEvent",
    "PairingEvent",
    "SyphonEvent",
    "SyphonStatus",
    "SideRefusal",
    "JournalCounters",
    "Group",
}


PLAIN_TYPES = {  # as JSON has them
    "tuple[str, ...]": "list[str]",
    "tuple[int, ...]": "list[int]",
    "Arrival": "str",
    "Removal": "str",
}


def journal_events() -> dict[str, tuple[str, dict[str, str], str]]:
    """Each event of the journal: who writes it, the type of each of its own fields, and what it says."""
    from sbpair.pair.observation.record import HEADER

    header = {name for name, *_ in HEADER}
    found = {}
    for who, path in EVENT_HOMES:
        for name, _, doc in documented_classes(path):
            if not _is_event(path, name) or name in NO_EVENTS:
                continue
            common = documented_fields(path, "ProcessorEvent") if who == "processor" else []
            fields = {
                field: PLAIN_TYPES.get(kind, kind)
                for field, kind, *_ in (*common, *documented_fields(path, name))
            }
            own = {field: kind for field, kind in fields.items() if field not in header}
            if own.get("backlog") == "str":  # as a record has it: its number, then its name
                own = {"backlog": "int | None", "backlog_queue": "str"} | {
                    field: kind for field, kind in own.items() if field != "backlog"
                }
            found[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()] = (who, own, doc)
    return found


def _is_event(path: str, name: str) -> bool:
    node = class_of(path, name)
    is_made = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    return is_made or any(_is_event(path, base) for base in private_bases(node))


def journal_schema() -> dict[str, dict[str, str]]:
    """The fields of each event of the journal, and the header's under ""."""
    from sbpair.pair.observation.record import HEADER

    header = {name: kind for name, kind, _ in HEADER}
    return {"": header} | {event: fields for event, (_, fields, _) in journal_events().items()}


def journal_header() -> str:
    from sbpair.pair.observation.record import HEADER

    return table(
        ("field", "type", "description"),
        [(f"`{name}`", f"`{kind}`", doc) for name, kind, doc in HEADER],
    )


def journal_event_fields() -> str:
    rows = [
        (f"`{event}`", who, ", ".join(f"`{name}: {kind}`" for name, kind in fields.items()), doc)
        for event, (who, fields, doc) in journal_events().items()
    ]
    return table(("event", "written by", "own fields", "meaning"), rows)


def metrics() -> str:
    from sbpair.pair.observation.metrics import BUILD_INFO, METRICS, READ, SEND_SECONDS

    shown = (*METRICS, *READ, SEND_SECONDS, BUILD_INFO)
    rows = [(f"`{m.name}`", ", ".join(f"`{label}`" for label in m.labels), m.help) for m in shown]
    return table(("metric", "labels", "meaning"), rows)


def syphon_metrics() -> str:
    counters = commented_members("sbpair/pair/syphon/status.py", "SyphonCounters")
    return table(
        ("metric", "meaning"),
        [
            (f"`sbpair_syphon_{name}{'' if name == 'pending' else '_total'}`", doc)
            for name, _, doc in counters
        ],
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "journal-header": journal_header,
    "journal-events": journal_event_fields,
    "metrics": metrics,
    "syphon-metrics": syphon_metrics,
}
