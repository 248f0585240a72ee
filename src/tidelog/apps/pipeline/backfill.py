"""Send a lake back to a topic: every row once, in the original order, resumable.

    backfill(spark, BackfillPlan("again", "localhost:9092", "lake", "cp", topic="orders-again"))

The first start fixes what to send, as stretches of offsets (`agenda.json` in the checkpoint). It
does not record files, because small files may be merged meanwhile. Each stretch is one write with
an id and a number, by which the sink recognises a repeated write.

Invariants: each run of a stretch has the same rows in the same tasks. `done` is written after the
sink's own commit. After a crash between the two, the sink finds its rows and skips the write.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.agenda import Agenda, Count, Stretch
from tidelog.apps.pipeline.lake.commit import LakeRefuses
from tidelog.apps.pipeline.lake.durable import Taken, held, make_folder
from tidelog.apps.pipeline.plan import BackfillPlan
from tidelog.apps.pipeline.report import Progress, Report, Tell

NEEDED = ("key", "value", "partition", "offset", "timestamp")
COLUMNS = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>,"
    " timestamp timestamp, partition int, offset long, date string"
)
"""The columns to send. Decoded columns are not read: their types may differ between files."""
PIECES = 16
"""Rows are counted in pieces of 1/16 of a batch, which are then combined into stretches."""


def backfill(
    spark: Any,
    plan: BackfillPlan,
    stop: threading.Event | None = None,
    tell: Tell = lambda _progress: None,
) -> Report:
    """Send the stretches that were not sent yet. Setting `stop` ends it after the current stretch.

    Raises LakeRefuses, and the exceptions of Spark.
    """
    make_folder(plan.checkpoint)
    try:
        with held(os.path.join(plan.checkpoint, "lock")):
            return _backfill(spark, plan, stop or threading.Event(), tell)
    except Taken:
        raise LakeRefuses(
            f"another backfill goes by {plan.checkpoint}; wait for it, or stop it"
        ) from None


def _backfill(spark: Any, plan: BackfillPlan, stop: threading.Event, tell: Tell) -> Report:
    report = Report(plan.name, plan.kind)
    started = time.monotonic()
    agenda = Agenda.of(plan) or Agenda.begin(plan, _counted(spark, plan))
    for stretch in agenda.stretches[agenda.done :]:
        if stop.is_set():
            report.stopped = True
            break
        began = time.monotonic()
        _send(spark, plan, agenda, stretch)
        agenda.note_done()
        left = sum(each.rows for each in agenda.stretches[agenda.done :])
        took = time.monotonic() - began
        progress = Progress(agenda.done - 1, stretch.rows, stretch.rows, seconds=took, lag=left)
        report.add(progress)
        tell(progress)
    sent = sum(stretch.rows for stretch in agenda.stretches[: agenda.done])
    report.totals = {"rows_in": sent, "rows_out": sent}
    report.seconds = time.monotonic() - started
    return report


def _send(spark: Any, plan: BackfillPlan, agenda: Agenda, stretch: Stretch) -> None:
    """Send one stretch, under the agenda's id and the stretch's number. Raises LakeRefuses."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    from tidelog.apps.spark.data_source import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
    rows = _rows(spark, plan, stretch)
    wanted = ("key", "value", "headers", "timestamp", *["partition"] * plan.keep_partitions)
    # All rows of a partition are in one task: in order, and the same rows on a replay.
    cut = rows.repartition(len(stretch.ranges), "partition")
    ordered = cut.sortWithinPartitions("partition", "offset")
    seen = Observation()
    writer = (
        ordered.observe(seen, sql.expr("count(1) as rows")).select(*wanted).write.format("tidelog")
    )
    for name, text in plan.sink.items():
        writer = writer.option(name, text)
    (
        writer.mode("append")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("topic", plan.topic or stretch.topic)
        .option("txnAppId", agenda.id)
        .option("txnVersion", str(agenda.done))
        .save()
    )
    found = seen.get["rows"]
    if found != stretch.rows:
        raise LakeRefuses(
            f"{plan.path} has {found:,} rows of {stretch.topic} where it had {stretch.rows:,}"
            " when the backfill began; files are gone, or were put there by hand"
        )


def _rows(spark: Any, plan: BackfillPlan, stretch: Stretch) -> Any:
    """Return the rows of a stretch, from the files that hold them now."""
    places = " or ".join(
        f"(partition = {partition} and offset between {low} and {high})"
        for partition, (low, high) in stretch.ranges.items()
    )
    return _topic(spark, plan, stretch.topic, stretch.dates).where(places)


def _topic(spark: Any, plan: BackfillPlan, topic: str, dates: Iterable[str]) -> Any:
    """Return the rows of a topic on the given days."""
    folder = os.path.join(plan.path, layout.DATA, f"topic={topic}")
    paths = [os.path.join(folder, f"date={date}") for date in dates]
    return spark.read.schema(COLUMNS).option("basePath", folder).parquet(*paths)


def _check_columns(plan: BackfillPlan, topic: str, dates: Iterable[str]) -> None:
    """Check that every file has the needed columns. Raises LakeRefuses.

    Spark reads a missing column as null, and a null value deletes its key.
    """
    from pyarrow import parquet

    for date in dates:
        folder = os.path.join(plan.path, layout.partition_folder(layout.DATA, topic, date))
        for path in layout.parquet_files(folder):
            names = parquet.read_schema(path).names
            if missing := [name for name in NEEDED if name not in names]:
                raise LakeRefuses(
                    f"{path} has no column {missing[0]};"
                    " land with keep_value = true to send it back"
                )


def _counted(spark: Any, plan: BackfillPlan) -> Iterator[Count]:
    """Count the rows in each small piece of offsets. Raises LakeRefuses."""
    days = days_by_topic(plan)
    there = days_by_topic(replace(plan, topics=(), first=None, last=None))
    if absent := [topic for topic in plan.topics if topic not in there]:
        raise LakeRefuses(f"{plan.path} has no topic {absent[0]}; {near(absent[0], there)}")
    if not days:
        raise LakeRefuses(f"{plan.path} has no rows of these topics and days; nothing to send")
    for topic, dates in days.items():
        _check_columns(plan, topic, dates)
    from pyspark.sql import functions as sql

    size = max(plan.rows_per_batch // PIECES, 1)
    for topic, dates in days.items():
        rows = _topic(spark, plan, topic, dates)
        pieces = rows.selectExpr("*", f"offset div {size} as piece").groupBy("partition", "piece")
        sums = ("min(offset) as low", "max(offset) as high", "count(1) as rows")
        days_of = "collect_set(date) as dates"
        for row in pieces.agg(*map(sql.expr, (*sums, days_of))).collect():
            yield Count(topic, row.partition, row.low, row.high, row.rows, frozenset(row.dates))


def days_by_topic(plan: BackfillPlan) -> dict[str, list[str]]:
    """Return the days in the lake that the plan selects, by topic."""
    days: dict[str, list[str]] = {}
    for folder in layout.partition_folders(plan.path):
        parts = folder.split(os.sep)
        if len(parts) != 3 or parts[0] != layout.DATA:
            continue
        topic, date = parts[1].removeprefix("topic="), parts[2].removeprefix("date=")
        wanted = not plan.topics or topic in plan.topics
        wanted &= plan.first is None or date >= str(plan.first)
        wanted &= plan.last is None or date <= str(plan.last)
        if wanted:
            days.setdefault(topic, []).append(date)
    return days
