"""Aggregate topics by event-time windows into a table and a topic, each result once.

    aggregate(spark, AggregatePlan("per-minute", "localhost:9092", Origin(("orders",)), "cp",
              "1 minute", "5 minutes", {"orders": "count(*)"}, "table", "orders-per-minute"))

A window is written when the watermark has passed its end, and never changes afterwards.

Invariants: the table commits a batch first, as a lake does. The topic is then written from the
committed files, under the query's id and the batch's number. So a replay sends the same rows, and
the sink skips those it already has. Every input row is in a window, late, or rejected.
"""

import os
import threading
from dataclasses import replace
from typing import Any

from tidelog.apps.pipeline.decoding.value_columns import with_value_columns
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.lake.tidying import Tidying
from tidelog.apps.pipeline.lake.writing import BY_WINDOW
from tidelog.apps.pipeline.land import MB
from tidelog.apps.pipeline.late_rows import LATE, BatchRange, LateRows
from tidelog.apps.pipeline.plan import AggregatePlan, BadPlan
from tidelog.apps.pipeline.report import Progress, Report, Tell
from tidelog.apps.pipeline.streaming import Run, batch_frame, source_frame

ROWS_PER_TASK = 200_000
_WINDOW = "window"


def aggregate(
    spark: Any,
    plan: AggregatePlan,
    stop: threading.Event | None = None,
    tell: Tell = lambda _progress: None,
) -> Report:
    """Aggregate all available records, or aggregate without end, depending on the plan's trigger.

    Setting `stop` ends the run after the current batch. Raises BadPlan, LakeRefuses, and the
    exceptions of Spark.
    """
    from tidelog.apps.pipeline.lake.staging_source import register_staging, stage

    register_staging(spark)
    rows = decoded_rows(source_frame(spark, plan.bootstrap, plan.origin), plan)

    def read(place: BatchRange) -> tuple[Any, Any]:
        again = batch_frame(spark, plan.bootstrap, plan.origin, place.starting, place.ending)
        frame = decoded_rows(again, plan)
        return frame, late_of(frame, plan, place.watermark_ms)

    late_path = os.path.join(plan.table, LATE)
    with Lake(plan.table) as table, Lake(late_path, "accept", gaps=True) as late_lake:
        counts = LateRows(plan, late_lake, read, lambda f, to: stage(f, to, plan.file_mb * MB))
        if table.query:
            counts.catch_up(table.query)
        tidying = Tidying(table, plan.checkpoint, plan.compact_files, plan.file_mb * MB)
        work = Windows(plan, table, tidying)
        run = Run(spark, plan, stop or threading.Event(), tell)

        def after(spoken: dict[str, Any], progress: Progress) -> Progress:
            counted = counts.count(spoken["id"], progress.batch, spoken)
            return replace(progress, **counted._asdict())

        report = run.go(windows_of(rows, plan), work, after=after)
        tidying.finish(spark, report)
        report.notes += counts.notes
        report.totals = {**counts.totals._asdict(), "rows_out": table.totals.get(layout.DATA, 0)}
    return report


def decoded_rows(frame: Any, plan: AggregatePlan) -> Any:
    """Add the columns of the values, and a flag `bad`: not decoded, or without an event time."""
    from pyspark.sql import functions as sql

    frame = with_value_columns(frame, plan.decode)
    if plan.event_time not in frame.columns:
        raise BadPlan("aggregate.event_time", f"there is no column {plan.event_time}")
    kind = frame.schema[plan.event_time].dataType.simpleString()
    if kind != "timestamp":
        raise BadPlan("aggregate.event_time", f"{plan.event_time} is {kind}, not a timestamp")
    return frame.withColumn("bad", sql.expr(f"bad or `{plan.event_time}` is null"))


def windows_of(rows: Any, plan: AggregatePlan) -> Any:
    """Return the streaming aggregate, which also observes the counts of its input rows."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sql

    seen = rows.observe(
        "input", sql.count(sql.lit(1)).alias("rows"), sql.expr("count_if(bad) as bad")
    )
    good = seen.where("not bad").withWatermark(plan.event_time, plan.watermark)
    window = sql.window(plan.event_time, plan.window, plan.slide)
    try:
        results = [sql.expr(text).alias(name) for name, text in plan.columns.items()]
        grouped = good.groupBy(window.alias(_WINDOW), *plan.group_by).agg(*results)
        return grouped.selectExpr(
            f"{_WINDOW}.start as window_start",
            f"{_WINDOW}.end as window_end",
            *(f"`{name}`" for name in (*plan.group_by, *plan.columns)),
        )
    except AnalysisException as error:
        first = str(error).strip().splitlines()[0]
        raise BadPlan("aggregate.columns", first) from None


def late_of(rows: Any, plan: AggregatePlan, watermark_ms: int) -> Any:
    """Return the valid rows that arrived after one of their windows was closed."""
    from pyspark.sql import functions as sql

    time = sql.unix_micros(sql.col(plan.event_time))
    window, slide = plan.window_ms * 1000, plan.slide_ms * 1000
    first_start = (sql.floor((time - sql.lit(window)) / sql.lit(slide)) + 1) * sql.lit(slide)
    closed = first_start + sql.lit(window) <= sql.lit(watermark_ms * 1000)
    return rows.where(sql.expr("not bad") & closed).drop("bad")


class Windows:
    """Writes batches of finished windows to a table and a topic."""

    def __init__(self, plan: AggregatePlan, table: Lake, tidying: Tidying) -> None:
        self._plan = plan
        self._table = table
        self._tidying = tidying

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Write a batch to the table and the topic, unless they already have it."""
        from tidelog.apps.pipeline.lake.staging_source import stage

        if self._table.is_committed(query, batch):
            # The table has the rows, but Spark must still run the query to update its window state.
            frame.write.format("noop").mode("overwrite").save()
        else:
            self._tidying.tidy(frame.sparkSession)
            files = stage(frame, self._table.staging, self._plan.file_mb * MB, by=BY_WINDOW)
            self._table.commit(query, batch, files)
        rows = sum(self._table.rows_of_last_batch().values())
        if rows and self._plan.topic is not None:
            self._send(frame.sparkSession, batch, query, rows)
        return Progress(batch, 0, rows)

    def _send(self, spark: Any, batch: int, query: str, rows: int) -> None:
        """Send the batch's files to the topic, under an id by which the sink detects a replay."""
        from pyspark.sql import functions as sql

        columns = ["window_start", "window_end", *self._plan.group_by, *self._plan.columns]
        utc = {"timeZone": "UTC", "ignoreNullFields": "false"}
        files = spark.read.parquet(*self._table.files_of_last_batch())
        key = sql.to_json(sql.struct("window_start", *self._plan.group_by), utc).alias("key")
        value = sql.to_json(sql.struct(*columns), utc).alias("value")
        sent = files.select(key, value).repartition(rows // ROWS_PER_TASK + 1, "key")
        writer = sent.sortWithinPartitions("key").write.format("tidelog").mode("append")
        for name, text in self._plan.sink.items():
            writer = writer.option(name, text)
        (
            writer.option("kafka.bootstrap.servers", self._plan.bootstrap)
            .option("topic", self._plan.topic)
            .option("txnAppId", query)
            .option("txnVersion", str(batch))
            .save()
        )
