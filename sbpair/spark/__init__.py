"""Spark data sources and sinks: audit journals, read and write messages, drain backlogs.

    from sbpair.spark import build_session, register

    spark = build_session("audit")
    register(spark)
    events = spark.read.format("sbpair-journal").load("/var/lib/sbpair")

Importing this package raises SparkMissingError without the extra ``sbpair[spark]``. Nothing outside it imports pyspark.
"""

from __future__ import annotations

from sbpair.data.spark.requirements import SparkMissingError, require

require()

from sbpair.data.spark.session import build_session, register  # noqa: E402  (require() has checked for pyspark)

__all__ = ["SparkMissingError", "build_session", "register"]
