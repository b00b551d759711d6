"""Which messages arrived more than once, and is each copy explained (G-4)?

Every copy but one needs an ambiguity: a send whose answer was lost, an application that sent again, or a
message the syphon forwarded twice because its lock was lost in between.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def duplicates(messages: DataFrame) -> DataFrame:
    """The messages with two copies or more: ``copies, explained, is_explained``."""
    sent_again = F.greatest(F.expr("accepted_by_primary + parked + spooled - left_spool") - 1, F.lit(0))
    forwarded_again = F.greatest(F.expr("forwarded - parked"), F.lit(0))
    found = messages.where("copies > 1").withColumn(
        "explained", F.col("ambiguities") + sent_again + forwarded_again
    )
    return found.select(
        "primary", "path", "message_id", "copies", "ambiguities", "parked", "forwarded", "explained",
        (F.col("copies") - 1 <= F.col("explained")).alias("is_explained"),
    )  # fmt: skip
