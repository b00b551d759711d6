"""Modules that a wheel installs at the top level as ``pyspark_sbpair*``, where Spark looks for data sources.

Spark imports every installed module whose name begins with ``pyspark_`` and registers its ``DefaultSource``, one a
module; ``format("sbpair")`` then works without :func:`sbpair.spark.register`. It finds neither modules of an editable
install nor those in a zip given by ``--py-files``.
"""
