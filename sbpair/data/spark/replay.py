"""Resend the messages that an audit found lost, from an archive of sent messages.

missing (path, message_id)  +  archive (message_id, body, ...)  ->  format("sbpair"), with the same message ids
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .outgoing import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTITY, ID = "entity_path", "message_id"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The numbers of messages missing, and found in the archive, and whether these were sent."""

    missing: int
    archived: int
    sent: bool


def to_send(missing: DataFrame, archive: DataFrame) -> DataFrame:
    """One row for each missing message found in the archive, addressed to the entity it was lost on.

    Columns of the archive that are not message columns are ignored. If the archive has a column ``entity_path``,
    it must match too. Raises ValueError for an archive without ``message_id`` or ``body``.
    """
    for name in (ID, "body"):
        if name not in archive.columns:
            raise ValueError(
                f"the archive has no column {name}; its columns are {', '.join(archive.columns)}"
            )
    wanted = missing.selectExpr(f"{ID}", f"path AS {ENTITY}").distinct()
    known = [name for name in archive.columns if name in COLUMNS]
    on = [name for name in (ID, ENTITY) if name in known]
    return archive.select(known).join(wanted, on).dropDuplicates([ID, ENTITY])


def replay(
    spark: SparkSession, audit: str, archive: str, options: Mapping[str, str], *, dry_run: bool
) -> Replayed:
    """Send the missing messages of an audit.

    ``audit`` is the output directory of the audit, ``archive`` a path of Parquet files, ``options`` those of
    ``format("sbpair")`` for writing. With ``dry_run`` messages are only counted. Raises ValueError as
    :func:`to_send` does.
    """
    missing = spark.read.parquet(f"{audit}/missing").where(f"{ID} IS NOT NULL").persist()
    rows = to_send(missing, spark.read.parquet(archive)).persist()
    counted = missing.select(ID, "path").distinct().count(), rows.count()
    is_sent = not dry_run and counted[1] > 0
    if is_sent:
        rows.write.format("sbpair").options(**options).mode("append").save()
    return Replayed(*counted, is_sent)
