"""Aggregate topics by event-time windows into a table and a topic, each result once.

    aggregate(spark, AggregatePlan("per-minute", "localhost:9092", Origin(("orders",)), "cp",
              "1 minute", "5 minutes", {"orders": "count(*)"}, "table", "orders-per-minute"))

A window is written when the watermark has passed its end, and never changes afterwards.

Invariants: the table commits a batch first, as a lake does. The topic is then written from the
committed files, under the query's id and the batch's number. So a replay sends the same rows, and
the sink skips the rows that it already has. Every input row is in a window, late, or rejected.
"""

import json
import os
import threading
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.apps.pipeline.decoding.value_columns import with_value_columns
from tidelog.apps.pipeline.failure import is_missing_records, one_line
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import NO_BATCH, Lake, last_committed
from tidelog.apps.pipeline.lake.compaction import Compaction
from tidelog.apps.pipeline.lake.durable import read_json, write_json
from tidelog.apps.pipeline.lake.writing import BY_WINDOW
from tidelog.apps.pipeline.land import MB
from tidelog.apps.pipeline.plan import AggregatePlan, BadPlan
from tidelog.apps.pipeline.report import OnProgress, Progress, Report
from tidelog.apps.pipeline.streaming import Run, batch_frame, source_frame, write_topic

ROWS_PER_TASK = 200_000
_WINDOW = "window"
LATE = "late"
"""The folder of the late rows: a separate lake inside the table's folder."""


def aggregate(
    spark: Any,
    plan: AggregatePlan,
    stop: threading.Event | None = None,
    on_progress: OnProgress = lambda _progress: None,
) -> Report:
    """Aggregate all available records, or aggregate without end, depending on the plan's trigger.

    Setting `stop` ends the run after the current batch. Raises BadPlan, LakeError, and the
    exceptions of Spark.
    """
    from tidelog.apps.pipeline.lake.staging_source import register_staging

    register_staging(spark)
    rows = decoded_rows(source_frame(spark, plan.bootstrap, plan.origin), plan)
    late_path = os.path.join(plan.table, LATE)
    with Lake(plan.table) as table, Lake(late_path, "accept", gaps=True) as late_lake:
        late_rows = LateRows(spark, plan, late_lake)
        if table.query:
            late_rows.catch_up(table.query)
        compaction = Compaction(table, plan.checkpoint, plan.compact_files, plan.file_mb * MB)

        def add_counts(spark_progress: dict[str, Any], progress: Progress) -> Progress:
            counts = late_rows.count(progress.batch, spark_progress)
            return replace(progress, **counts._asdict())

        run = Run(plan, stop or threading.Event(), on_progress)
        report = run.execute(windows_of(rows, plan), Windows(plan, table, compaction), add_counts)
        compaction.finish(spark, report)
        report.notes += late_rows.notes
        report.totals = {**late_rows.totals._asdict(), "rows_out": table.totals.get(layout.DATA, 0)}
    return report


def decoded_rows(frame: Any, plan: AggregatePlan) -> Any:
    """Add the columns of the values, and a flag `bad`: not decoded, or without an event time."""
    from pyspark.sql import functions as sql

    frame = with_value_columns(frame, plan.decode)
    if plan.event_time not in frame.columns:
        raise BadPlan("aggregate.event_time", f"unknown column {plan.event_time}")
    kind = frame.schema[plan.event_time].dataType.simpleString()
    if kind != "timestamp":
        raise BadPlan("aggregate.event_time", f"{plan.event_time} has type {kind}, not timestamp")
    return frame.withColumn("bad", sql.expr(f"bad or `{plan.event_time}` is null"))


def windows_of(rows: Any, plan: AggregatePlan) -> Any:
    """Return the streaming aggregate, which also observes the counts of its input rows."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sql

    observed = rows.observe(
        "input", sql.count(sql.lit(1)).alias("rows"), sql.expr("count_if(bad) as bad")
    )
    good = observed.where("not bad").withWatermark(plan.event_time, plan.watermark)
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

    def __init__(self, plan: AggregatePlan, table: Lake, compaction: Compaction) -> None:
        self._plan = plan
        self._table = table
        self._compaction = compaction

    def process(self, frame: Any, batch: int, query: str) -> Progress:
        """Write a batch to the table and the topic, unless they already have it."""
        from tidelog.apps.pipeline.lake.staging_source import stage

        if self._table.is_committed(query, batch):
            # The table has the rows, but Spark must still run the query to update its window state.
            frame.write.format("noop").mode("overwrite").save()
        else:
            self._compaction.run(frame.sparkSession)
            files = stage(frame, self._table.staging, self._plan.file_mb * MB, by=BY_WINDOW)
            self._table.commit(query, batch, files)
        rows = sum(self._table.rows_of_last_batch().values())
        if rows and self._plan.topic is not None:
            self._send(frame.sparkSession, self._plan.topic, batch, query, rows)
        return Progress(batch, 0, rows)

    def _send(self, spark: Any, topic: str, batch: int, query: str, rows: int) -> None:
        """Send the batch's files to the topic, under an id by which the sink detects a replay."""
        from pyspark.sql import functions as sql

        columns = ["window_start", "window_end", *self._plan.group_by, *self._plan.columns]
        utc = {"timeZone": "UTC", "ignoreNullFields": "false"}
        files = spark.read.parquet(*self._table.files_of_last_batch())
        key = sql.to_json(sql.struct("window_start", *self._plan.group_by), utc).alias("key")
        value = sql.to_json(sql.struct(*columns), utc).alias("value")
        sent = files.select(key, value).repartition(rows // ROWS_PER_TASK + 1, "key")
        ordered = sent.sortWithinPartitions("key")
        write_topic(ordered, self._plan, topic, app=query, version=batch)


class BatchRange(NamedTuple):
    """The offset range and the watermark of one micro-batch, from Spark's checkpoint."""

    starting: dict[str, dict[str, int]]
    ending: dict[str, dict[str, int]]
    watermark_ms: int
    """Spark dropped rows of windows that end at this time or earlier."""


class RowCounts(NamedTuple):
    """Row counts of one batch, or of all batches."""

    rows_in: int = 0
    late: int = 0
    rejected: int = 0


def batch_range(checkpoint: str, batch: int) -> BatchRange | None:
    """Return the range of a planned batch; None if its files are missing or it read no records."""
    here = _offsets(checkpoint, batch)
    before = _offsets(checkpoint, batch - 1) if batch else (0, {"topics": {}})
    if here is None or before is None:
        return None
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for topic, content in here[1]["topics"].items():
        former = before[1]["topics"].get(topic, {}).get("partitions", {})
        for partition, end in content["partitions"].items():
            start = end.get("from", former.get(partition, {}).get("offset"))
            if start is not None and start < end["offset"]:
                starting.setdefault(topic, {})[partition] = start
                ending.setdefault(topic, {})[partition] = end["offset"]
    # Since Spark 3.4, the watermark of the previous batch decides which rows are late. With it, a
    # second operator accepts all rows that the first operator lets through.
    return BatchRange(starting, ending, before[0]) if starting else None


def _offsets(checkpoint: str, batch: int) -> tuple[int, dict[str, Any]] | None:
    """Return the watermark of a batch and the source's offset at its end; None if missing."""
    try:
        with open(os.path.join(checkpoint, "offsets", str(batch)), encoding="utf-8") as file:
            _version, metadata, *sources = file.read().splitlines()
    except OSError:
        return None
    return json.loads(metadata)["batchWatermarkMs"], json.loads(sources[0])


class LateRows:
    """Counts input, late and rejected rows over all runs of a pipeline, and keeps late rows.

    Spark drops late rows and counts groups, not rows: it computes `numRowsDroppedByWatermark` after
    the first, partial aggregation. If Spark dropped rows of a batch, this class reads the batch
    again. Spark's checkpoint holds the offsets of each batch, and the watermark that applied to it.

    Invariants: every batch is counted once. `checked` is written after the late rows are stored. If
    the process dies after Spark commits a batch and before it is counted, the next run counts it.
    """

    def __init__(self, spark: Any, plan: AggregatePlan, lake: Lake) -> None:
        self._spark = spark
        self._plan = plan
        self._path = layout.own(plan.table, "counted.json")
        self._lake = lake
        found = read_json(self._path) or {}
        self.checked: int = found.get("checked", NO_BATCH)
        """The last batch that was counted."""
        self.totals = RowCounts(**found.get("totals", {}))
        self.notes: list[str] = []
        """Messages about batches that could not be counted, one line each."""

    def catch_up(self, query: str, until: int | None = None) -> None:
        """Count the batches that Spark committed but that were not counted yet.

        This happens if a process died, or if Spark's progress of a batch was missed. With
        `until`, only count the batches before that number.
        """
        if until is None:
            until = last_committed(self._plan.checkpoint) + 1
        for batch in range(self.checked + 1, until):
            offsets = batch_range(self._plan.checkpoint, batch)
            if offsets is not None:
                self._store(batch, self._count_again(query, batch, offsets))

    def _count_again(self, query: str, batch: int, offsets: BatchRange) -> RowCounts:
        """Count a batch from the topics; add a note if its records no longer exist."""
        from pyspark.errors import PySparkException

        try:
            rows = self._read(offsets)
            rows_in, rejected = rows.selectExpr("count(1)", "count_if(bad)").first()
            return RowCounts(rows_in, self._keep_late(query, batch, rows, offsets), rejected)
        except PySparkException as error:
            if not is_missing_records(error):
                raise
            why = one_line(error)
            self.notes.append(f"the rows and late rows of batch {batch} were not counted: {why}")
            return RowCounts()

    def count(self, batch: int, spark_progress: dict[str, Any]) -> RowCounts:
        """Count a batch for which Spark has just reported progress."""
        if batch <= self.checked:
            return RowCounts()
        query = spark_progress["id"]
        self.catch_up(query, until=batch)
        observed = (spark_progress.get("observedMetrics") or {}).get("input")
        late = 0
        if sum(each["numRowsDroppedByWatermark"] for each in spark_progress["stateOperators"]):
            offsets = batch_range(self._plan.checkpoint, batch)
            if offsets is not None:
                late = self._keep_late(query, batch, self._read(offsets), offsets)
        counts = RowCounts(late=late)
        if observed:
            counts = RowCounts(observed["rows"], late, observed["bad"])
        self._store(batch, counts)
        return counts

    def _read(self, offsets: BatchRange) -> Any:
        plan = self._plan
        frame = batch_frame(
            self._spark, plan.bootstrap, plan.origin, offsets.starting, offsets.ending
        )
        return decoded_rows(frame, plan)

    def _keep_late(self, query: str, batch: int, rows: Any, offsets: BatchRange) -> int:
        """Write the late rows of a batch to their lake, and return how many there are."""
        from tidelog.apps.pipeline.lake.staging_source import stage

        if self._lake.is_committed(query, batch):
            return sum(self._lake.rows_of_last_batch().values())
        late = late_of(rows, self._plan, offsets.watermark_ms)
        files = stage(late, self._lake.staging, self._plan.file_mb * MB)
        if not files:
            return 0
        self._lake.commit(query, batch, files)
        return sum(file.rows for file in files)

    def _store(self, batch: int, counts: RowCounts) -> None:
        self.checked = batch
        self.totals = RowCounts(*map(sum, zip(self.totals, counts, strict=True)))
        write_json(self._path, {"checked": batch, "totals": self.totals._asdict()})
