"""The blocks of the docs that the entries of the contract already say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sbpair.contract.book import SUBJECTS, entries, of_subject
from sbpair.contract.entry import Entry
from tests.contract.sabotages import SABOTAGES
from tests.tools.proofs import rows_of
from tests.tools.source import DOCS, table

LEARN = "https://learn.microsoft.com/azure/service-bus-messaging"
ARTICLE = re.compile(r"\b[a-z]+(?:-[a-z]+)+\b")
"""An article of the service's documentation in the source of an entry."""

PROMISES = {
    "No loss": ("G-1", "G-2", "G-20"),
    "At least once": ("G-3", "G-20"),
    "Bounded duplicates": ("G-4",),
    "Recognisable duplicates": ("G-5",),
    "Fidelity": ("G-16", "G-22"),
    "Bounded waiting": ("G-18",),
    "One entity at a time": ("G-11",),
    "No early failover": ("G-12",),
    "Any k - 1 of k backlog queues may fail": ("G-19",),
    "Poison does not block": ("G-21",),
}
"""The promises of the page of guarantees, with the requirements that they sum up."""

NONE = "nothing: the client keeps it whatever the service does"


def resting_on(requirements: Iterable[str]) -> list[Entry]:
    """The entries without which one of these requirements breaks."""
    wanted = set(requirements)
    return [each for each in entries() if wanted & set(each.breaks)]


def promises() -> str:
    """The promises of the page of guarantees, and what each assumes of the service."""
    rows = [(name, _listed(resting_on(ids)) or NONE) for name, ids in PROMISES.items()]
    return table(("promise", "assumes"), rows)


def by_promise() -> str:
    """The requirements, and the entries that each rests on."""
    found: dict[tuple[str, int], list[Entry]] = {}
    for each in entries():
        for name in each.breaks:
            letter, _, number = name.partition("-")
            found.setdefault((letter, int(number)), []).append(each)
    pages = _pages()
    return table(
        ("requirement", "entries"),
        [
            (_linked(f"{letter}-{n}", pages), _listed(resting))
            for (letter, n), resting in sorted(found.items())
        ],
    )


def all_entries() -> str:
    """Every entry by subject: what is assumed, what breaks, and where it comes from."""
    parts, pages = [], _pages()
    for subject, title in SUBJECTS.items():
        rows = [
            (
                each.id,
                each.sentence,
                ", ".join(_linked(name, pages) for name in each.breaks),
                ARTICLE.sub(lambda found: f"[{found[0]}]({LEARN}/{found[0]})", each.source),
            )
            for each in of_subject(subject)
        ]
        parts.append(f"### {title}\n\n{table(('entry', 'assumption', 'breaks', 'source'), rows)}")
    return "\n".join(parts)


def sabotages() -> str:
    """The brokers that are wrong in one thing, the entries that find it out, and what these say."""
    rows = [
        (name if first else "", entry, f"`{said}`")
        for name, sabotage in SABOTAGES.items()
        for first, (entry, said) in zip((True, *[False] * 99), sabotage.shows.items(), strict=False)
    ]
    return table(("a broker on which", "differs", "and says"), rows)


def mutants() -> str:
    """What share of the changes that nobody wrote for an entry is found, by area of the broker, and what is missed."""
    measured = json.loads((DOCS / "evidence" / "contract.json").read_text("utf-8"))
    areas = measured["areas"]
    counts = {name: _counts(area) for name, area in areas.items()}
    together = map(sum, zip(*counts.values(), strict=True))
    rows = [_share(name, *each) for name, each in (*counts.items(), ("together", together))]
    missed = [
        (f"`{each['module']}`, `{each['function']}`", each["shows"], each["missed"])
        for area in areas.values()
        for each in area["missed"]
    ]
    return (
        f"{table(('area', 'changes', 'visible', 'found', 'share'), rows)}\n"
        f"Missed are:\n\n{table(('in', 'what shows it', 'why no entry does'), missed)}"
    )


def _counts(area: Mapping[str, Any]) -> tuple[int, int, int]:
    return area["hidden"], area["found"], len(area["missed"])


def _share(name: str, hidden: int, found: int, missed: int) -> tuple[str, ...]:
    visible = found + missed
    return name, f"{hidden + visible}", f"{visible}", f"{found}", f"{found / (visible or 1):.0%}"


def _listed(found: Iterable[Entry]) -> str:
    return ", ".join(each.id for each in found)


def _pages() -> dict[str, str]:
    """The page of each requirement, as seen from the pages of evidence."""
    return {
        row.id: f"../spec/{page.name}"
        for page in sorted((DOCS / "spec").glob("*.md"))
        for row in rows_of(page.read_text("utf-8"))
    }


def _linked(name: str, pages: dict[str, str]) -> str:
    return f"[{name}]({pages[name]})"


BLOCKS: dict[str, Callable[[], str]] = {
    "contract-by-promise": by_promise,
    "contract-entries": all_entries,
    "contract-mutants": mutants,
    "contract-promises": promises,
    "contract-sabotages": sabotages,
}
