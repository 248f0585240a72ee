"""Land topics in Delta tables, if Delta's jar is installed.

Delta keeps a transaction log and recognises a repeated write by `txnAppId` and `txnVersion`, so
Delta itself skips a replayed batch. Invariant: records that cannot be decoded go to a separate
table, `rejected`.
"""

from typing import Any

from tidelog.apps.pipeline.decoding.value_columns import with_value_columns
from tidelog.apps.pipeline.lake.commit import LakeRefuses
from tidelog.apps.pipeline.plan import DATE, RECORD_COLUMNS, LandPlan
from tidelog.apps.pipeline.report import Progress

UTC_DAY = (
    "date_from_unix_date(cast("
    "(unix_micros(timestamp) - pmod(unix_micros(timestamp), 86400000000)) div 86400000000 as int))"
)
"""The UTC day of a timestamp, as in every lake; `to_date` would use the session's time zone."""
SOURCE_CLASS = "org.apache.spark.sql.delta.sources.DeltaDataSource"


def require_delta(spark: Any) -> None:
    """Check that Delta's jar is installed. Raises LakeRefuses if it is missing."""
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    try:
        loader.loadClass(SOURCE_CLASS)
    except Exception:  # noqa: BLE001 - py4j's error for any Java exception
        raise LakeRefuses(
            f"Delta's jar is not there: add --conf spark.jars.packages=io.delta:... for Spark"
            f' {spark.version}, if there is one, or take format = "parquet"'
        ) from None


class DeltaLanding:
    """Writes micro-batches to two Delta tables, `data` and `rejected`."""

    def __init__(self, plan: LandPlan) -> None:
        self._plan = plan

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Write a batch; Delta skips it if it was written before."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        rows = with_value_columns(frame, self._plan.decode, DATE, "reason").withColumn(
            DATE, sql.expr(UTC_DAY)
        )
        seen = Observation()
        counts = (sql.expr("count(1) as rows"), sql.expr("count_if(bad) as bad"))
        good = rows.observe(seen, *counts).where("not bad").drop("bad")
        self._write(good, "data", batch, query)
        told = seen.get
        if told["bad"]:
            own = [name for name in RECORD_COLUMNS if name in rows.columns]
            bad = (
                rows.where("bad")
                .select(*own, DATE)
                .withColumn("reason", sql.lit("not a value of the schema"))
            )
            self._write(bad, "rejected", batch, query)
        out = told["rows"] - told["bad"]
        return Progress(batch, told["rows"], out, rejected=told["bad"])

    def _write(self, frame: Any, table: str, batch: int, query: str) -> None:
        (
            frame.write.format("delta")
            .mode("append")
            .partitionBy("topic", DATE)
            .option("txnAppId", f"{query}-{table}")
            .option("txnVersion", str(batch))
            .option("mergeSchema", "true")
            .save(f"{self._plan.path}/{table}")
        )
