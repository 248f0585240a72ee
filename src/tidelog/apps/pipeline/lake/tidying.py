"""When a lake's small files are merged: between batches, by tasks of Spark.

Always true: only folders that got files in this run are looked at; nothing is merged while the
last batch could still be run again, because an aggregate sends its topic from that batch's files.
"""

import os
from typing import Any

from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.lake.compaction import build, crowded, swap_in
from tidelog.apps.pipeline.lake.durable import CannotExchange
from tidelog.apps.pipeline.late_rows import last_committed
from tidelog.apps.pipeline.report import Report


class Tidying:
    """Merges small files of one lake."""

    def __init__(self, lake: Lake, checkpoint: str, least: int, file_bytes: int) -> None:
        self._lake = lake
        self._checkpoint = checkpoint
        self._least = least
        self._file_bytes = file_bytes
        self._touched: set[str] = set()
        self.merged = 0
        """Files that are no more."""
        self.refused = ""
        """Why nothing can be merged here."""

    def tidy(self, spark: Any) -> None:
        """Merge what is worth it, if nothing can still be run again."""
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
        """Merge at the end of a run, and tell what was merged in all of it."""
        self.tidy(spark)
        report.merged = self.merged
        if self.refused:
            report.notes.append(self.refused)
