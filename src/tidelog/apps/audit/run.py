"""The audit: Spark tasks scan all files once, the driver checks the results.

Batches never reach the driver. It receives a summary of each stretch of a segment, and rows for
errors. Spark compares replicas by digests of offset windows, and reads single batches only in
windows that differ.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tidelog.apps.audit.checking import (
    LogPlace,
    PassResult,
    ScanRow,
    check_rows,
    check_until_stable,
    uncut_files,
)
from tidelog.apps.audit.checks.divergence import Compared, Differing
from tidelog.apps.audit.comparison import differences
from tidelog.apps.audit.folders.log_dir import is_stopped
from tidelog.apps.audit.report.report import Report
from tidelog.apps.audit.scan.producers import ProducerSpan, sequence_break
from tidelog.apps.audit.scan.summary import SequenceBreak
from tidelog.apps.audit.source.log_format import FORMAT, LogDataSource

Progress = Callable[[str], None]
BREAKS_MAX = 10_000


def audit(
    spark: Any, paths: Sequence[str], deep: bool = False, progress: Progress = lambda _: None
) -> Report:
    """Audit all log directories below the paths."""
    began = time.monotonic()
    spark.dataSource.register(LogDataSource)
    progress("reading all files")
    options = {"level": "scan", "paths": json.dumps([os.path.abspath(path) for path in paths])}
    if deep:
        options["deep"] = "true"

    def run_pass(folders: frozenset[str]) -> PassResult:
        if folders:
            progress(f"checking {len(folders)} partitions again")
        pass_options = options | ({"folders": json.dumps(sorted(folders))} if folders else {})
        return _run_pass(spark, pass_options, progress)

    judged = check_until_stable(run_pass)
    return Report(judged.findings, judged.partitions, time.monotonic() - began)


def _run_pass(spark: Any, options: dict[str, str], progress: Progress) -> PassResult:
    """Run one scan and check its rows."""
    scan = spark.read.format(FORMAT).options(**options).load().persist()
    kept = [scan]
    try:
        rows = _rows(scan)
        uncut = uncut_files(rows)
        if uncut:
            progress("reading again the segments that were split at a wrong index entry")
            whole = spark.read.format(FORMAT).options(**options, only=json.dumps(uncut)).load()
            right = scan.where(~scan.segment.isin(uncut) | scan.segment.isNull())
            scan = right.unionByName(whole).persist()
            kept.append(scan)
            rows = _rows(scan)
        progress("comparing replicas")
        return check_rows(rows, _SparkQueries(spark, scan, options), is_stopped)
    finally:
        for each in kept:
            each.unpersist()


def _rows(scan: Any) -> list[ScanRow]:
    return [ScanRow(*row) for row in scan.select(*ScanRow._fields).collect()]


class _SparkQueries:
    """Runs the queries about all batches on the scan that Spark has persisted."""

    def __init__(self, spark: Any, scan: Any, options: dict[str, str]) -> None:
        self._spark = spark
        self._scan = scan
        self._options = options

    def differing(self, compared: list[Compared]) -> Iterable[tuple[Compared, list[Differing]]]:
        return differences(self._spark, self._scan, self._options, compared)

    def sequence_breaks(self) -> Iterator[tuple[LogPlace, SequenceBreak]]:
        """Compare each producer's first batch of a stretch with its last batch before it."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        spans = self._scan.where("kind = 'stretch' and size(producers) > 0").select(
            *LogPlace._fields, "segment", F.explode("producers").alias("after")
        )
        order = Window.partitionBy(*LogPlace._fields, "after.producer_id")
        pairs = spans.withColumn("before", F.lag("after").over(order.orderBy("after.first_offset")))
        same = "after.first_epoch = before.last_epoch"
        follows = (
            f"({same} and after.first_sequence = (before.last_sequence + 1L) & 2147483647L)"
            " or (after.first_epoch > before.last_epoch and after.first_sequence = 0)"
        )
        broken = pairs.where(f"before is not null and not ({follows})").limit(BREAKS_MAX)
        for row in broken.collect():
            place = LogPlace(row.log_dir, row.topic, row.partition)
            before, after = ProducerSpan(*row.before), ProducerSpan(*row.after)
            yield place, sequence_break(before, after, os.path.basename(row.segment))
