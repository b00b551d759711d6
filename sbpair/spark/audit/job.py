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
    """Audit the journals in ``journal`` and write the results to ``out``, replacing those of an earlier run.

    ``skew`` is in seconds, as for :func:`audit`. Raises OSError when ``out`` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    events = journals(spark, str(journal)).persist()
    found = audit(events, skew=skew)

    def written(name: str, table: DataFrame) -> DataFrame:
        """Write the table and read it back: Parquet lets later queries read only the columns they need."""
        place = str(out / name)
        table.write.mode("overwrite").parquet(place)
        return spark.read.schema(table.schema).parquet(place)

    of_writers = found.writers
    found = replace(
        found, writers=written("writers", of_writers), messages=written("messages", found.messages)
    )
    small = {name: getattr(found, name).persist() for name in ("duplicates", "order", "waits")}
    summary = summarise(found, **small)
    for name, table in (small | {"missing": found.missing()}).items():
        table.write.mode("overwrite").parquet(str(out / name))
    (out / REPORT).write_text(page(summary), encoding="utf-8")
    (out / SUMMARY).write_text(as_json(summary) + "\n", encoding="utf-8")
    for table in (*small.values(), of_writers, events):
        table.unpersist()
    return summary


def as_json(summary: Summary) -> str:
    """The summary as JSON on one line, without the data of the figures."""
    fields = asdict(summary)
    del fields["flow"], fields["step"]
    fields["verdicts"] = _by_name(summary.verdicts)
    fields["entities"] = [
        {"primary": each.primary, "path": each.path, "verdicts": _by_name(each.verdicts)}
        for each in summary.entities
    ]
    fields["headline"], fields["is_conserved"] = headline(summary), summary.is_conserved
    return json.dumps(fields, default=_plain)


def _by_name(verdicts: dict[Verdict, int]) -> dict[str, int]:
    return {verdict.value: count for verdict, count in verdicts.items()}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return str(value.value) if isinstance(value, Enum) else str(value)
