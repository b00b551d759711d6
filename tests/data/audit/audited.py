"""A local audit, and its tables as rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow.dataset as ds

from sbpair.audit import Engine, Summary, audit
from sbpair.data.audit.job import TABLES


@dataclass(frozen=True)
class Audited:
    """The result of an audit, and the directory of its tables."""

    summary: Summary
    out: Path

    def rows(self, table: str) -> list[SimpleNamespace]:
        found = ds.dataset(self.out / table, format="parquet").to_table().to_pylist()
        return [SimpleNamespace(**row) for row in found]

    def plain(self) -> dict[str, list[tuple[object, ...]]]:
        """All tables, with all columns, in an order that does not depend on the engine."""
        return {
            table: sorted((tuple(vars(row).items()) for row in self.rows(table)), key=repr)
            for table in TABLES
        }


def audited(journals: Path, out: Path, *, engine: Engine | None = None, skew: float = 1.0) -> Audited:
    return Audited(audit(journals, out, engine=engine, skew=skew), out)
