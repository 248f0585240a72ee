"""Count and keep rows that arrived after their window was closed.

Spark drops these rows and counts groups, not rows: it computes `numRowsDroppedByWatermark` after
the first, partial aggregation. Spark's checkpoint holds the offsets of each batch and the watermark
that applied to it. If Spark dropped rows of a batch, this module reads the batch again.

Invariants: every batch is counted once. `checked` is written after the late rows are stored. If the
process dies after Spark commits a batch and before it is counted, the next run counts it.
"""

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.apps.pipeline.failure import is_gone, one_line
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import Lake
from tidelog.apps.pipeline.lake.durable import read_whole, write_whole
from tidelog.apps.pipeline.plan import AggregatePlan

LATE = "late"
"""The folder of the late rows: a separate lake inside the table's folder."""
NO_BATCH = -1


class BatchRange(NamedTuple):
    """The offset range and the watermark of one micro-batch, from Spark's checkpoint."""

    starting: dict[str, dict[str, int]]
    ending: dict[str, dict[str, int]]
    watermark_ms: int
    """Spark dropped rows of windows that end at this time or earlier."""


class Counted(NamedTuple):
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
    for topic, told in here[1]["topics"].items():
        former = before[1]["topics"].get(topic, {}).get("partitions", {})
        for partition, place in told["partitions"].items():
            start = place.get("from", former.get(partition, {}).get("offset"))
            if start is not None and start < place["offset"]:
                starting.setdefault(topic, {})[partition] = start
                ending.setdefault(topic, {})[partition] = place["offset"]
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


def last_committed(checkpoint: str) -> int:
    """Return the last batch in Spark's commit log; -1 if there is no batch."""
    try:
        names = os.listdir(os.path.join(checkpoint, "commits"))
    except OSError:
        return NO_BATCH
    return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)


class LateRows:
    """Counts input, late and rejected rows over all runs of a pipeline."""

    def __init__(
        self,
        plan: AggregatePlan,
        lake: Lake,
        read: Callable[[BatchRange], tuple[Any, Any]],
        stage: Callable[[Any, str], Any],
    ) -> None:
        """`read` returns the decoded rows of a range, and the late rows among them."""
        self._plan = plan
        self._path = layout.own(plan.table, "counted.json")
        self._lake = lake
        self._read = read
        self._stage = stage
        found = read_whole(self._path) or {}
        self.checked: int = found.get("checked", NO_BATCH)
        self.totals = Counted(**found.get("totals", {}))
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
            place = batch_range(self._plan.checkpoint, batch)
            if place is not None:
                self._note(batch, self._count_again(query, batch, place))

    def _count_again(self, query: str, batch: int, place: BatchRange) -> Counted:
        """Count a batch from the topics; add a note if its records no longer exist."""
        from pyspark.errors import PySparkException

        try:
            frame, late = self._read(place)
            rows_in, rejected = frame.selectExpr("count(1)", "count_if(bad)").first()
            return Counted(rows_in, self._keep(query, batch, late), rejected)
        except PySparkException as error:
            if not is_gone(error):
                raise
            why = one_line(error)
            self.notes.append(f"batch {batch} was not counted, late rows neither: {why}")
            return Counted()

    def count(self, query: str, batch: int, spoken: dict[str, Any]) -> Counted:
        """Count a batch for which Spark has just reported progress."""
        if batch <= self.checked:
            return Counted()
        self.catch_up(query, until=batch)
        seen = (spoken.get("observedMetrics") or {}).get("input")
        late = 0
        if sum(each["numRowsDroppedByWatermark"] for each in spoken["stateOperators"]):
            place = batch_range(self._plan.checkpoint, batch)
            if place is not None:
                late = self._keep(query, batch, self._read(place)[1])
        counted = Counted(seen["rows"], late, seen["bad"]) if seen else Counted(late=late)
        self._note(batch, counted)
        return counted

    def _keep(self, query: str, batch: int, late: Any) -> int:
        if self._lake.is_committed(query, batch):
            return sum(self._lake.rows_of_last_batch().values())
        files = self._stage(late, self._lake.staging)
        if not files:
            return 0
        self._lake.commit(query, batch, files)
        return sum(file.rows for file in files)

    def _note(self, batch: int, counted: Counted) -> None:
        self.checked = batch
        self.totals = Counted(*map(sum, zip(self.totals, counted, strict=True)))
        write_whole(self._path, {"checked": batch, "totals": self.totals._asdict()})
