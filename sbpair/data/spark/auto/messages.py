"""``format("sbpair")``, registered by Spark itself."""

from sbpair.data.spark.message_source import MessageDataSource as DefaultSource

__all__ = ["DefaultSource"]
