"""The audit as a job: read the journals, audit them, write the results.

DIR/*.jsonl  ->  OUT/messages OUT/writers OUT/duplicates OUT/order OUT/waits OUT/missing   (Parquet)
                 OUT/report.html  OUT/summary.json

No other module of the audit performs I/O.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from .audit import SKEW, audit, journals
from .report import headline, page
from .summary import Summary, summarise
from .verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT, SUMMARY = "report.html", "summary.json"


def run(spark: SparkSession, journal: Path, out: Path, *, skew: float = SKEW) -> Summary:
    """Audit the journals in ``journal`` and write everything to ``out``, over what an earlier run wrote.

    Raises OSError when ``out`` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    events = journals(spark, str(journal)).persist()
    found = audit(events, skew=skew)

    def kept(name: str, table: DataFrame) -> DataFrame:
        """The table as it was written: what comes of it reads only the columns it needs."""
        place = str(out / name)
        table.write.mode("overwrite").parquet(place)
        return spark.read.schema(table.schema).parquet(place)

    of_writers = found.writers
    found = replace(found, writers=kept("writers", of_writers), messages=kept("messages", found.messages))
    few = {name: getattr(found, name).persist() for name in ("duplicates", "order", "waits")}
    summary = summarise(found, **few)
    for name, table in (few | {"missing": found.missing()}).items():
        table.write.mode("overwrite").parquet(str(out / name))
    (out / REPORT).write_text(page(summary), encoding="utf-8")
    (out / SUMMARY).write_text(as_json(summary) + "\n", encoding="utf-8")
    for table in (*few.values(), of_writers, events):
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
