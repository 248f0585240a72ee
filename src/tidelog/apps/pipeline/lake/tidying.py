"""Merge a lake's small files between batches, in Spark tasks.

Invariants: only folders that received files in this run are checked. No files are merged while
Spark may still run the last batch again: an aggregate sends that batch's files to its topic.
"""

import os
from typing import Any

from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.lake.compaction import build, crowded, swap_in
from tidelog.apps.pipeline.lake.durable import CannotExchange
from tidelog.apps.pipeline.late_rows import last_committed
from tidelog.apps.pipeline.report import Report


class Tidying:
    """Merges the small files of one lake."""

    def __init__(self, lake: Lake, checkpoint: str, least: int, file_bytes: int) -> None:
        self._lake = lake
        self._checkpoint = checkpoint
        self._least = least
        self._file_bytes = file_bytes
        self._touched: set[str] = set()
        self.merged = 0
        """Number of small files that were merged into larger ones."""
        self.refused = ""
        """Why files cannot be merged in this lake; empty if they can."""

    def tidy(self, spark: Any) -> None:
        """Merge the files worth merging, unless Spark may still run the last batch again."""
        self._touched |= {os.path.dirname(path) for path in self._lake.moved_to()}
        if not self._least or self.refused or last_committed(self._checkpoint) < self._lake.batch:
            return
        merges = crowded(
            self._lake.path, self._touched, self._lake.staging, self._least, self._file_bytes
        )
        self._touched.clear()
        if not merges:
            return
        for built in spark.sparkContext.parallelize(merges, len(merges)).map(build).collect():
            try:
                swap_in(built)
            except CannotExchange as error:
                self.refused = f"small files stay as they are: {error}"
                return
            self.merged += built.merged

    def finish(self, spark: Any, report: Report) -> None:
        """Merge at the end of a run, and add the number of merged files to the report."""
        self.tidy(spark)
        report.merged = self.merged
        if self.refused:
            report.notes.append(self.refused)
