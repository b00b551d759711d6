"""``format("sbpair-syphon")``, registered by Spark itself."""

from sbpair.data.spark.syphon_source import SyphonDataSource as DefaultSource

__all__ = ["DefaultSource"]
