"""``format("sbpair-journal")``, registered by Spark itself."""

from sbpair.data.spark.journal_source import JournalDataSource as DefaultSource

__all__ = ["DefaultSource"]
