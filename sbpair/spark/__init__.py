"""The data pipeline, in Spark: journals audited; messages read, written, and brought home.

    from sbpair.spark import build_session, register

    spark = build_session("audit")
    register(spark)
    events = spark.read.format("sbpair-journal").load("/var/lib/sbpair")

Needs the extra ``sbpair[spark]``; nothing outside this package imports pyspark.
"""

from __future__ import annotations

from .requirements import SparkMissing, require

require()

from .session import build_session, register  # noqa: E402  (pyspark is there from here on)

__all__ = ["SparkMissing", "build_session", "register"]
