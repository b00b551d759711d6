"""The result of a run: a headline, one self-contained page, and JSON without names of namespaces or secrets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape

from sbpair import __version__
from sbpair.pair.ground.html_parts import STYLE, Row, section, table

from .book import SUBJECTS
from .entry import Finding, Price, Verdict

FORMAT = 1  # of the JSON
KINDS = {
    "sends": "messages sent",
    "pings": "pings sent",
    "receives": "messages received",
    "management": "requests to management nodes",
    "blocks": "more for large messages, of which each 64 KB counts",
}


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended; ``at`` in UTC, ``tiers`` by side as far as they are known."""

    run: str
    at: datetime
    tiers: dict[str, str]
    price: Price
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(each.verdict for each in self.findings)


def headline(result: Result) -> str:
    """Return the result in one line."""
    counts = result.counts
    told = [f"{counts[verdict]} {words}" for verdict, words in (
        (Verdict.HOLDS, "hold"), (Verdict.DIFFERS, "differ"), (Verdict.UNKNOWN, "are unknown")
    ) if counts[verdict]]  # fmt: skip
    return f"of {len(result.findings)} entries {', '.join(told)}" if told else "nothing was checked"


def as_json(result: Result) -> dict[str, object]:
    """Return the result as plain values, in a stable form that can be sent to the project."""
    return {
        "format": FORMAT,
        "sbpair": __version__,
        "at": result.at.isoformat(timespec="seconds"),
        "run": result.run,
        "tiers": result.tiers,
        "planned": asdict(result.price),
        "seconds": round(result.seconds, 1),
        "findings": [
            {
                "id": each.entry.id,
                "sentence": each.entry.sentence,
                "breaks": list(each.entry.breaks),
                "verdict": each.verdict.value,
                "seen": each.seen,
                "seconds": round(each.seconds, 1),
            }
            for each in result.findings
        ],
    }


def page(result: Result) -> str:
    """Return the result as one self-contained HTML page."""
    differs = [each for each in result.findings if each.verdict is Verdict.DIFFERS]
    kind = "bad" if differs or not result.counts[Verdict.HOLDS] else "ok"
    tiers = ", ".join(f"{side}: {tier}" for side, tier in result.tiers.items())
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'><title>sbpair verify</title>",
        f"<style>{STYLE}</style><h1>Does the service keep the contract?</h1>",
        f"<p class='verdict {kind}'>{escape(headline(result))}</p>",
        f"<p><small>{escape(tiers)}; run {result.run}, {result.at:%Y-%m-%d %H:%M:%S} UTC, {result.seconds:.0f} s, "
        f"sbpair {__version__}</small></p>",
        section("What differs, and which promises fall", _table(differs)),
        section("Operations", _prices(result.price)),
        *(section(title, _table(_of(result, subject))) for subject, title in SUBJECTS.items()),
        "</html>",
    ]
    return "".join(parts)


def _of(result: Result, subject: str) -> list[Finding]:
    return [each for each in result.findings if each.entry.subject == subject]


def _table(findings: Sequence[Finding]) -> str:
    rows: list[Row] = [
        (
            (each.entry.id, each.verdict.value, each.entry.sentence, each.seen, ", ".join(each.entry.breaks)),
            each.verdict is Verdict.DIFFERS,
        )
        for each in findings
    ]
    return table(("entry", "verdict", "assumption", "seen", "breaks"), rows) if rows else ""


def _prices(price: Price) -> str:
    rows: list[Row] = [((words, asdict(price)[kind]), False) for kind, words in KINDS.items()]
    return table(("kind", "planned"), [*rows, (("total", price.total), False)])
