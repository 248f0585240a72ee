"""Spark looks for modules named `pyspark_…` and registers their `DefaultSource`."""

from tidelog.apps.spark.data_source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
