"""Land topics in a lake: every committed record once, in Parquet files by topic and day.

    land(spark, LandPlan("orders", "localhost:9092", Origin(("orders",)), "cp", "lake"))

Invariant: the lake holds a prefix of each partition's committed records, each record once, even
after a crash of any process. The table `rejected` holds records that could not be decoded.

With `format = "delta"`, Delta's jar writes the tables. Delta keeps a transaction log and recognises
a repeated write by `txnAppId` and `txnVersion`, so Delta itself skips a replayed batch.
"""

import threading
from typing import Any

from tidelog.apps.pipeline.decoding import json_values
from tidelog.apps.pipeline.decoding.value_columns import decoded_columns, with_value_columns
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import Lake, LakeError
from tidelog.apps.pipeline.lake.compaction import Compaction
from tidelog.apps.pipeline.plan import DATE, RECORD_COLUMNS, LandPlan
from tidelog.apps.pipeline.report import OnProgress, Progress, Report
from tidelog.apps.pipeline.streaming import Run, source_frame

MB = 1 << 20
UTC_DAY = (
    "date_from_unix_date(cast("
    "(unix_micros(timestamp) - pmod(unix_micros(timestamp), 86400000000)) div 86400000000 as int))"
)
"""The UTC day of a timestamp, as in every lake; `to_date` would use the session's time zone."""
SOURCE_CLASS = "org.apache.spark.sql.delta.sources.DeltaDataSource"


def land(
    spark: Any,
    plan: LandPlan,
    stop: threading.Event | None = None,
    on_progress: OnProgress = lambda _progress: None,
) -> Report:
    """Land all available records, or land without end, depending on the plan's trigger.

    Setting `stop` ends the run after the current batch. Raises BadPlan, LakeError, and the
    exceptions of Spark.
    """
    if plan.decode is not None:
        decoded_columns(plan.decode, (*RECORD_COLUMNS, DATE, "reason"))
    frame = source_frame(spark, plan.bootstrap, plan.origin, includeHeaders="true")
    run = Run(plan, stop or threading.Event(), on_progress)
    if plan.table_format == "delta":
        require_delta(spark)
        return run.execute(frame, DeltaLanding(plan))
    if plan.decode is not None and plan.decode.format == "json":
        frame = json_values.with_decoded(frame, plan.decode)
    from tidelog.apps.pipeline.lake.staging_source import register_staging

    register_staging(spark)
    with Lake(plan.path, plan.overlap) as lake:
        compaction = Compaction(lake, plan.checkpoint, plan.compact_files, plan.file_mb * MB)
        report = run.execute(frame, Landing(plan, lake, compaction))
        compaction.finish(spark, report)
        out, rejected = (lake.totals.get(table, 0) for table in (layout.DATA, layout.REJECTED))
        report.totals = {"rows_in": out + rejected, "rows_out": out, "rejected": rejected}
    return report


class Landing:
    """Writes micro-batches to a lake."""

    def __init__(self, plan: LandPlan, lake: Lake, compaction: Compaction) -> None:
        self._plan = plan
        self._lake = lake
        self._compaction = compaction

    def process(self, frame: Any, batch: int, query: str) -> Progress:
        """Write and commit a batch, unless the lake already has it."""
        from tidelog.apps.pipeline.lake.staging_source import stage

        if self._lake.is_committed(query, batch):
            return Progress(batch, 0, 0)
        self._compaction.run(frame.sparkSession)
        files = stage(frame, self._lake.staging, self._plan.file_mb * MB, self._plan.decode)
        self._lake.commit(query, batch, files)
        out = sum(file.rows for file in files if file.table == layout.DATA)
        rejected = sum(file.rows for file in files if file.table == layout.REJECTED)
        return Progress(batch, out + rejected, out, rejected=rejected)


def require_delta(spark: Any) -> None:
    """Check that Delta's jar is installed. Raises LakeError if it is missing."""
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    try:
        loader.loadClass(SOURCE_CLASS)
    except Exception:  # noqa: BLE001 - py4j's error for any Java exception
        raise LakeError(
            'format = "delta" needs Delta\'s jar: run with --conf'
            " spark.jars.packages=io.delta:delta-spark_2.13:VERSION, where VERSION is a release"
            f' for Spark {spark.version}, or set format = "parquet"'
        ) from None


class DeltaLanding:
    """Writes micro-batches to two Delta tables, `data` and `rejected`."""

    def __init__(self, plan: LandPlan) -> None:
        self._plan = plan

    def process(self, frame: Any, batch: int, query: str) -> Progress:
        """Write a batch; Delta skips it if it was written before."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        rows = with_value_columns(frame, self._plan.decode, DATE, "reason").withColumn(
            DATE, sql.expr(UTC_DAY)
        )
        observed = Observation()
        counts = (sql.expr("count(1) as rows"), sql.expr("count_if(bad) as bad"))
        good = rows.observe(observed, *counts).where("not bad").drop("bad")
        self._write(good, "data", batch, query)
        found = observed.get
        if found["bad"]:
            own = [name for name in RECORD_COLUMNS if name in rows.columns]
            bad = (
                rows.where("bad")
                .select(*own, DATE)
                .withColumn("reason", sql.lit("does not fit the schema"))
            )
            self._write(bad, "rejected", batch, query)
        out = found["rows"] - found["bad"]
        return Progress(batch, found["rows"], out, rejected=found["bad"])

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
