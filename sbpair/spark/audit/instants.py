"""How does an instant come out of Spark? As microseconds: collected as it is, it would be in local time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(name: str) -> Column:
    """The column ``name``, of timestamps, as microseconds since 1970."""
    return F.unix_micros(name).alias(name)


def moment(micros: int) -> datetime:
    """That instant, in UTC."""
    return EPOCH + timedelta(microseconds=micros)
