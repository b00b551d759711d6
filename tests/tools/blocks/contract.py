"""The blocks of the docs that the entries of the contract already say."""

from __future__ import annotations

from collections.abc import Callable

from sbpair.contract.book import SUBJECTS, entries, of_subject
from tests.tools.source import table


def by_promise() -> str:
    """The requirements of guarantees, and the entries that each rests on."""
    found: dict[tuple[str, int], list[str]] = {}
    for each in entries():
        for name in each.falls:
            letter, _, number = name.partition("-")
            if letter in "GPCO":
                found.setdefault((letter, int(number)), []).append(each.id)
    return table(
        ("promise", "entries"),
        [(f"{letter}-{n}", ", ".join(ids)) for (letter, n), ids in sorted(found.items())],
    )


def all_entries() -> str:
    """Every entry by subject: what is assumed, what falls, and where it comes from."""
    parts = []
    for subject, title in SUBJECTS.items():
        rows = [(each.id, each.sentence, ", ".join(each.falls), each.source) for each in of_subject(subject)]
        parts.append(f"### {title}\n\n{table(('entry', 'assumption', 'falls', 'source'), rows)}")
    return "\n".join(parts)


BLOCKS: dict[str, Callable[[], str]] = {"contract-by-promise": by_promise, "contract-entries": all_entries}
