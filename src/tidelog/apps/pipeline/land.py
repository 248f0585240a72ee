"""Land topics in a lake: every committed record once, in Parquet files by topic and day.

    land(spark, LandPlan("orders", "localhost:9092", Origin(("orders",)), "cp", "lake"))

Invariant: the lake holds a prefix of each partition's committed records, each record once, even
after a crash of any process. The table `rejected` holds records that could not be decoded.
"""

import threading
from typing import Any

from tidelog.apps.pipeline.decoding import json_values
from tidelog.apps.pipeline.decoding.value_columns import decoded_columns
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.lake.tidying import Tidying
from tidelog.apps.pipeline.plan import DATE, RECORD_COLUMNS, LandPlan
from tidelog.apps.pipeline.report import Progress, Report, Tell
from tidelog.apps.pipeline.streaming import Run, source_frame

MB = 1 << 20


def land(
    spark: Any,
    plan: LandPlan,
    stop: threading.Event | None = None,
    tell: Tell = lambda _progress: None,
) -> Report:
    """Land all available records, or land without end, depending on the plan's trigger.

    Setting `stop` ends the run after the current batch. Raises BadPlan, LakeRefuses, and the
    exceptions of Spark.
    """
    if plan.decode is not None:
        decoded_columns(plan.decode, (*RECORD_COLUMNS, DATE, "reason"))
    frame = source_frame(spark, plan.bootstrap, plan.origin, includeHeaders="true")
    if plan.table_format == "delta":
        from tidelog.apps.pipeline.delta import DeltaLanding, require_delta

        require_delta(spark)
        return Run(spark, plan, stop or threading.Event(), tell).go(frame, DeltaLanding(plan))
    if plan.decode is not None and plan.decode.format == "json":
        frame = json_values.with_decoded(frame, plan.decode)
    from tidelog.apps.pipeline.lake.staging_source import register_staging

    register_staging(spark)
    with Lake(plan.path, plan.overlap) as lake:
        run = Run(spark, plan, stop or threading.Event(), tell)
        tidying = Tidying(lake, plan.checkpoint, plan.compact_files, plan.file_mb * MB)
        report = run.go(frame, Landing(plan, lake, tidying))
        tidying.finish(spark, report)
        report.totals = in_words(lake.totals)
    return report


def in_words(totals: dict[str, int]) -> dict[str, int]:
    """Convert the row counts of a lake, by table, to the totals of a report."""
    out, rejected = totals.get(layout.DATA, 0), totals.get(layout.REJECTED, 0)
    return {"rows_in": out + rejected, "rows_out": out, "rejected": rejected}


class Landing:
    """Writes micro-batches to a lake."""

    def __init__(self, plan: LandPlan, lake: Lake, tidying: Tidying) -> None:
        self._plan = plan
        self._lake = lake
        self._tidying = tidying

    def take(self, frame: Any, batch: int, query: str) -> Progress:
        """Write and commit a batch, unless the lake already has it."""
        from tidelog.apps.pipeline.lake.staging_source import stage

        if self._lake.is_committed(query, batch):
            return Progress(batch, 0, 0)
        self._tidying.tidy(frame.sparkSession)
        files = stage(frame, self._lake.staging, self._plan.file_mb * MB, self._plan.decode)
        self._lake.commit(query, batch, files)
        out = sum(file.rows for file in files if file.table == layout.DATA)
        rejected = sum(file.rows for file in files if file.table == layout.REJECTED)
        return Progress(batch, out + rejected, out, rejected=rejected)
