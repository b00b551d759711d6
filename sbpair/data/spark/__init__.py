"""Spark data sources and sinks. Raises SparkMissingError without the extra ``sbpair[spark]``."""

from .requirements import require

require()
