"""The public API for Spark: `format("tidelog")` to read and write topics.

    from tidelog.spark import register, spark_session
    spark = spark_session()         # or your own session, and then register(spark)
    brokers = "localhost:9092,localhost:9093,localhost:9094"
    spark.read.format("tidelog").option("kafka.bootstrap.servers", brokers)...

Invariant: importing this module does not import pyspark.
"""

from typing import Any

from tidelog.apps.spark.session import NoJava, spark_session
from tidelog.apps.spark.source.checkpoint import lag
from tidelog.apps.spark.source.data_loss import read_report

__all__ = ["NoJava", "lag", "read_report", "register", "spark_session"]


def register(spark: Any) -> None:
    """Register `format("tidelog")` in a session that `spark_session` did not start.

    Spark may find the format without it. But only a registered format can be used by several
    streaming queries that start at the same time.
    """
    from tidelog.apps.spark import data_source

    data_source.register(spark)
