"""How long did messages wait in the backlogs?

From the sender's clock to the syphon's: an estimate, as good as the two clocks agree.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

QUANTILES = (0.5, 0.95, 0.99, 1.0)


def waits(messages: DataFrame) -> DataFrame:
    """One row for each backlog of each primary: ``messages, p50, p95, p99, longest``, in seconds."""
    waited = messages.where("forwarded > 0 AND parked_at IS NOT NULL").withColumn(
        "seconds", F.expr("GREATEST(0D, timestampdiff(MICROSECOND, parked_at, forwarded_at) / 1e6D)")
    )
    percentiles = F.percentile_approx("seconds", list(QUANTILES), 10_000)
    return waited.groupBy("primary", "backlog").agg(
        F.count("*").alias("messages"),
        *(percentiles[n].alias(name) for n, name in enumerate(("p50", "p95", "p99", "longest"))),
    )
