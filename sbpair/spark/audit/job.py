"""Read the journals, audit them, write what was found: the only file of the audit that does I/O.

DIR/*.jsonl  ->  OUT/messages OUT/writers OUT/duplicates OUT/order OUT/waits OUT/missing   (Parquet)
                 OUT/report.html  OUT/summary.json
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from .audit import SKEW, audit
from .report import headline, page
from .summary import Summary, summarise
from .verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT, SUMMARY = "report.html", "summary.json"


def run(spark: SparkSession, journal: Path, out: Path, *, skew: float = SKEW) -> Summary:
    """Audit the journals in ``journal`` and write everything to ``out``, over what an earlier run wrote.

    Raises OSError when ``out`` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    events = spark.read.format("sbpair-journal").load(str(journal)).persist()
    found = audit(events, skew=skew)
    tables = {
        "messages": found.messages,
        "writers": found.writers,
        "duplicates": found.duplicates,
        "order": found.order,
        "waits": found.waits,
        "missing": found.missing(),
    }
    for table in tables.values():
        table.persist()  # each is counted, shown and written
    summary = summarise(found, events)
    for name, table in tables.items():
        table.write.mode("overwrite").parquet(str(out / name))
    (out / REPORT).write_text(page(summary), encoding="utf-8")
    (out / SUMMARY).write_text(as_json(summary) + "\n", encoding="utf-8")
    for table in (*tables.values(), events):
        table.unpersist()
    return summary


def as_json(summary: Summary) -> str:
    """The summary on one line, for machines; without the flow, which is for the eye."""
    said = asdict(summary)
    del said["flow"], said["step"]
    said["verdicts"] = _by_name(summary.verdicts)
    said["entities"] = [
        {"primary": each.primary, "path": each.path, "verdicts": _by_name(each.verdicts)}
        for each in summary.entities
    ]
    said["headline"], said["is_conserved"] = headline(summary), summary.is_conserved
    return json.dumps(said, default=_plain)


def _by_name(verdicts: dict[Verdict, int]) -> dict[str, int]:
    return {verdict.value: count for verdict, count in verdicts.items()}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return str(value.value) if isinstance(value, Enum) else str(value)
