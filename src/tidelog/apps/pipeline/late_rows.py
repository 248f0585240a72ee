"""Rows that came after their window was closed: counted exactly, and kept.

Spark drops them and counts groups, not rows (`numRowsDroppedByWatermark` is taken after the
first, partial aggregation). Its checkpoint tells which offsets a batch had and which watermark
was in force, so the batch's rows are read once more, where something was dropped at all.

Always true: every batch is counted once; `checked` is written after what it counts, and a batch
that was committed by Spark and not counted, because the process died between, is counted by the
next run.
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
"""A lake of its own inside the table's folder."""
NO_BATCH = -1


class BatchRange(NamedTuple):
    """What a checkpoint tells of one micro-batch."""

    starting: dict[str, dict[str, int]]
    ending: dict[str, dict[str, int]]
    watermark_ms: int
    """Rows of windows that end here or before were dropped."""


class Counted(NamedTuple):
    """Rows of one batch, or of all."""

    rows_in: int = 0
    late: int = 0
    rejected: int = 0


def batch_range(checkpoint: str, batch: int) -> BatchRange | None:
    """Of a batch that Spark has planned; None: its files are gone, or it read nothing."""
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
    # Late rows are judged by the watermark of the batch before (Spark since 3.4, so that one
    # operator behind another sees what the first still lets through).
    return BatchRange(starting, ending, before[0]) if starting else None


def _offsets(checkpoint: str, batch: int) -> tuple[int, dict[str, Any]] | None:
    """The watermark and the source's offset at the end of a batch."""
    try:
        with open(os.path.join(checkpoint, "offsets", str(batch)), encoding="utf-8") as file:
            _version, metadata, *sources = file.read().splitlines()
    except OSError:
        return None
    return json.loads(metadata)["batchWatermarkMs"], json.loads(sources[0])


def last_committed(checkpoint: str) -> int:
    """The last batch in Spark's commit log; -1: none."""
    try:
        names = os.listdir(os.path.join(checkpoint, "commits"))
    except OSError:
        return NO_BATCH
    return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)


class LateRows:
    """Counts what went in, was late, was rejected; over all runs of a pipeline."""

    def __init__(
        self,
        plan: AggregatePlan,
        lake: Lake,
        read: Callable[[BatchRange], tuple[Any, Any]],
        stage: Callable[[Any, str], Any],
    ) -> None:
        """`read` gives the rows of a range, decoded, and those of them that were late."""
        self._plan = plan
        self._path = layout.own(plan.table, "counted.json")
        self._lake = lake
        self._read = read
        self._stage = stage
        found = read_whole(self._path) or {}
        self.checked: int = found.get("checked", NO_BATCH)
        self.totals = Counted(**found.get("totals", {}))
        self.notes: list[str] = []
        """What could not be counted, a line each."""

    def catch_up(self, query: str, until: int | None = None) -> None:
        """Count batches that were committed and not counted, because a process died or Spark's
        word of them was not heard. `until`: only those before."""
        if until is None:
            until = last_committed(self._plan.checkpoint) + 1
        for batch in range(self.checked + 1, until):
            place = batch_range(self._plan.checkpoint, batch)
            if place is not None:
                self._note(batch, self._count_again(query, batch, place))

    def _count_again(self, query: str, batch: int, place: BatchRange) -> Counted:
        """From the topics, unless they have its records no more."""
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
        """Count a batch of which Spark has just told."""
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
