"""Send a lake back to a topic: every row once, in the original order, resumable.

    backfill(spark, BackfillPlan("again", "localhost:9092", "lake", "cp", topic="orders-again"))

The first run divides the rows into batches and stores the offset ranges of each batch in the
checkpoint (`agenda.json`). It does not store file names, because small files may be merged later.
Each batch is one write with an id and a number, by which the sink recognises a repeated write.

Invariants: only `done` changes in an agenda, and it only grows, so the number of a batch never
changes. Batches of a partition are in offset order. Each run of a batch has the same rows in the
same tasks. `done` is written after the sink's own commit. After a crash between the two, the sink
finds its rows and skips the write.
"""

import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import LakeError
from tidelog.apps.pipeline.lake.durable import (
    LockTaken,
    file_lock,
    make_folder,
    read_json,
    write_json,
)
from tidelog.apps.pipeline.plan import BackfillPlan
from tidelog.apps.pipeline.report import OnProgress, Progress, Report
from tidelog.apps.pipeline.streaming import write_topic

FILE = "agenda.json"
NEEDED = ("key", "value", "partition", "offset", "timestamp")
COLUMNS = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>,"
    " timestamp timestamp, partition int, offset long, date string"
)
"""The columns to send. Decoded columns are not read: their types may differ between files."""
PIECES = 16
"""Rows are counted in pieces of 1/16 of a batch, which are then combined into batches."""


class Count(NamedTuple):
    """The row count of a small offset range in one partition."""

    topic: str
    partition: int
    low: int
    high: int
    rows: int
    dates: frozenset[str]


class BackfillBatch(NamedTuple):
    """One write to the sink: the first and the last offset of each partition."""

    topic: str
    ranges: dict[int, tuple[int, int]]
    rows: int
    dates: tuple[str, ...]
    """The days whose folders hold rows of the batch."""


def divide(counts: Iterable[Count], rows_per_batch: int) -> Iterator[BackfillBatch]:
    """Combine counts into batches of about `rows_per_batch` rows.

    The partitions of a topic advance together: a batch has rows of every partition
    that has unsent rows.
    """
    by_topic: dict[str, dict[int, list[Count]]] = defaultdict(lambda: defaultdict(list))
    for count in sorted(counts):
        by_topic[count.topic][count.partition].append(count)
    for partitions in by_topic.values():
        waiting = [list(reversed(each)) for each in partitions.values()]
        chosen: list[Count] = []
        while any(waiting):
            chosen += [each.pop() for each in waiting if each]
            if sum(count.rows for count in chosen) >= rows_per_batch or not any(waiting):
                yield _batch(chosen)
                chosen = []


def _batch(counts: list[Count]) -> BackfillBatch:
    ranges: dict[int, tuple[int, int]] = {}
    for count in counts:
        low, high = ranges.get(count.partition, (count.low, count.high))
        ranges[count.partition] = (min(low, count.low), max(high, count.high))
    dates = sorted({date for count in counts for date in count.dates})
    return BackfillBatch(counts[0].topic, ranges, sum(count.rows for count in counts), tuple(dates))


class Agenda:
    """The batches of one backfill, and its progress on disk."""

    def __init__(self, path: str, data: dict[str, Any]) -> None:
        self._path = path
        self._data = data
        self.batches = [
            BackfillBatch(
                topic,
                {int(partition): (low, high) for partition, (low, high) in ranges.items()},
                rows,
                tuple(dates),
            )
            for topic, ranges, rows, dates in data["stretches"]
        ]

    @classmethod
    def load(cls, plan: BackfillPlan) -> "Agenda | None":
        """Load the agenda of an earlier start; None if it does not exist.

        Raises LakeError if the agenda belongs to another plan.
        """
        path = os.path.join(plan.checkpoint, FILE)
        data = read_json(path)
        if data is None:
            return None
        if data["what"] != _fixed_part(plan):
            raise LakeError(
                f"the checkpoint {plan.checkpoint} belongs to a backfill of other topics, days or"
                " targets; finish that backfill, or choose another name for this one"
            )
        return cls(path, data)

    @classmethod
    def create(cls, plan: BackfillPlan, counts: Iterable[Count]) -> "Agenda":
        """Create and store the agenda for a new backfill."""
        data = {
            "id": f"{plan.name}-{uuid.uuid4().hex}",
            "what": _fixed_part(plan),
            "done": 0,
            "stretches": list(divide(counts, plan.rows_per_batch)),
        }
        make_folder(plan.checkpoint)
        path = os.path.join(plan.checkpoint, FILE)
        write_json(path, data)
        return cls(path, data)

    @property
    def id(self) -> str:
        """The unique id by which the sink recognises this backfill, also after a rename."""
        return str(self._data["id"])

    @property
    def done(self) -> int:
        """The number of batches that are written to the topic."""
        return int(self._data["done"])

    def mark_done(self) -> None:
        """Record that the next batch is written."""
        self._data["done"] += 1
        write_json(self._path, self._data)


def _fixed_part(plan: BackfillPlan) -> dict[str, Any]:
    """Return the parts of a plan that must not change between runs of a backfill."""
    return {
        "path": plan.path,
        "topics": list(plan.topics),
        "topic": plan.topic,
        "first": str(plan.first),
        "last": str(plan.last),
        "keep_partitions": plan.keep_partitions,
    }


def backfill(
    spark: Any,
    plan: BackfillPlan,
    stop: threading.Event | None = None,
    on_progress: OnProgress = lambda _progress: None,
) -> Report:
    """Send the batches that were not sent yet. Setting `stop` ends it after the current batch.

    Raises LakeError, and the exceptions of Spark.
    """
    make_folder(plan.checkpoint)
    try:
        with file_lock(os.path.join(plan.checkpoint, "lock")):
            return _backfill(spark, plan, stop or threading.Event(), on_progress)
    except LockTaken:
        raise LakeError(
            f"another backfill is using the checkpoint {plan.checkpoint}; wait until it ends,"
            " or stop it"
        ) from None


def _backfill(
    spark: Any, plan: BackfillPlan, stop: threading.Event, on_progress: OnProgress
) -> Report:
    report = Report(plan.name, plan.kind)
    started = time.monotonic()
    agenda = Agenda.load(plan) or Agenda.create(plan, _row_counts(spark, plan))
    for batch in agenda.batches[agenda.done :]:
        if stop.is_set():
            report.stopped = True
            break
        began = time.monotonic()
        _send(spark, plan, agenda, batch)
        agenda.mark_done()
        left = sum(each.rows for each in agenda.batches[agenda.done :])
        took = time.monotonic() - began
        progress = Progress(agenda.done - 1, batch.rows, batch.rows, seconds=took, lag=left)
        report.add(progress)
        on_progress(progress)
    sent = sum(batch.rows for batch in agenda.batches[: agenda.done])
    report.totals = {"rows_in": sent, "rows_out": sent}
    report.seconds = time.monotonic() - started
    return report


def _send(spark: Any, plan: BackfillPlan, agenda: Agenda, batch: BackfillBatch) -> None:
    """Send one batch, under the agenda's id and the batch's number. Raises LakeError."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    from tidelog.apps.spark.data_source import register

    register(spark)
    rows = _rows(spark, plan, batch)
    wanted = ("key", "value", "headers", "timestamp", *["partition"] * plan.keep_partitions)
    # All rows of a partition are in one task: in order, and the same rows on a replay.
    by_partition = rows.repartition(len(batch.ranges), "partition")
    ordered = by_partition.sortWithinPartitions("partition", "offset")
    observed = Observation()
    counted = ordered.observe(observed, sql.expr("count(1) as rows"))
    write_topic(
        counted.select(*wanted), plan, plan.topic or batch.topic, app=agenda.id, version=agenda.done
    )
    found = observed.get["rows"]
    if found != batch.rows:
        raise LakeError(
            f"{plan.path} changed since the backfill began: a batch of topic {batch.topic} had"
            f" {batch.rows:,} rows and has {found:,} now; restore the files of the lake"
        )


def _rows(spark: Any, plan: BackfillPlan, batch: BackfillBatch) -> Any:
    """Return the rows of a batch, from the files that hold them now."""
    places = " or ".join(
        f"(partition = {partition} and offset between {low} and {high})"
        for partition, (low, high) in batch.ranges.items()
    )
    return _topic_rows(spark, plan, batch.topic, batch.dates).where(places)


def _topic_rows(spark: Any, plan: BackfillPlan, topic: str, dates: Iterable[str]) -> Any:
    """Return the rows of a topic on the given days."""
    folder = os.path.join(plan.path, layout.DATA, f"topic={topic}")
    paths = [os.path.join(folder, f"date={date}") for date in dates]
    return spark.read.schema(COLUMNS).option("basePath", folder).parquet(*paths)


def _check_columns(plan: BackfillPlan, topic: str, dates: Iterable[str]) -> None:
    """Check that every file has the needed columns. Raises LakeError.

    Spark reads a missing column as null, and a null value deletes its key.
    """
    from pyarrow import parquet

    for date in dates:
        folder = os.path.join(plan.path, layout.partition_folder(layout.DATA, topic, date))
        for path in layout.parquet_files(folder):
            names = parquet.read_schema(path).names
            if missing := [name for name in NEEDED if name not in names]:
                raise LakeError(
                    f"cannot send {path}: it has no column {missing[0]};"
                    " land the topic with keep_value = true"
                )


def _row_counts(spark: Any, plan: BackfillPlan) -> Iterator[Count]:
    """Count the rows in each small piece of offsets. Raises LakeError."""
    days = _days_by_topic(plan)
    all_days = _days_by_topic(replace(plan, topics=(), first=None, last=None))
    if absent := [topic for topic in plan.topics if topic not in all_days]:
        raise LakeError(f"{plan.path} has no topic {absent[0]}; {near(absent[0], all_days)}")
    if not days:
        raise LakeError(f"nothing to send: {plan.path} has no rows of these topics and days")
    for topic, dates in days.items():
        _check_columns(plan, topic, dates)
    from pyspark.sql import functions as sql

    size = max(plan.rows_per_batch // PIECES, 1)
    for topic, dates in days.items():
        rows = _topic_rows(spark, plan, topic, dates)
        pieces = rows.selectExpr("*", f"offset div {size} as piece").groupBy("partition", "piece")
        sums = ("min(offset) as low", "max(offset) as high", "count(1) as rows")
        days_of = "collect_set(date) as dates"
        for row in pieces.agg(*map(sql.expr, (*sums, days_of))).collect():
            yield Count(topic, row.partition, row.low, row.high, row.rows, frozenset(row.dates))


def _days_by_topic(plan: BackfillPlan) -> dict[str, list[str]]:
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
