"""The audit on Spark: the same work as :mod:`sbpair.audit` on one machine, done by executors; and live queries.

tasks  --mapInArrow-->  packets  --shuffle by part-->  mapInArrow  -->  tables, and results for the driver

from sbpair.audit import audit
from sbpair.spark.audit import SparkEngine

summary = audit("/mnt/journals", "/mnt/audit", engine=SparkEngine(spark))
"""

from __future__ import annotations

from sbpair.data.spark.audit.engine import SparkEngine

__all__ = ["SparkEngine"]
