"""What runs on an executor: one range of offsets to rows, also when the log changed meanwhile.

Between plan and read a log may lose its front, its tail, or all of it. The range reader says
what it met; here it is judged by the same rules as on the driver. Always true: under `fail` a
task ends with all rows of its range or with an error; otherwise it goes on with what is there,
and has told what is not, each range once by whoever knows it:

- retention, and a topic that is gone: here, for this range;
- a tail that was cut: in a batch here; in a stream by the driver, whose next look at the
  checkpoint finds the same cut, exactly and for all tasks at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from tidelog.apps.spark.source import range_reader
from tidelog.apps.spark.source.checkpoint import id_text
from tidelog.apps.spark.source.loss.policy import (
    LossKind,
    LostRange,
    OnDataLoss,
    refuse_loss,
    tell_loss,
)
from tidelog.apps.spark.source.options.source_options import SourceOptions
from tidelog.apps.spark.source.range_reader import (
    RangeOutOfRange,
    RangeOverwritten,
    RangeToRead,
    RangeUnreachable,
    ReadLimits,
    TopicRecreated,
    read_range,
)
from tidelog.core.types import Offset
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.reader import epoch_end

QUIET_S = 5.0
"""After so long without a byte the log's epochs are asked for: its tail may be cut off."""


@dataclass
class PlannedRange(InputPartition):
    """One task's range."""

    wanted: RangeToRead


def read_planned(
    options: SourceOptions, schema: Any, wanted: RangeToRead, *, stream: bool
) -> Iterator[Any]:
    """The rows of a range, as Arrow batches that are good until the next one is asked for."""
    range_reader.settle_worker()
    cluster = options.client.cluster()
    try:
        yield from _Range(options, schema, wanted, cluster, stream).read()
    finally:
        cluster.close()


class _Range:
    def __init__(
        self,
        options: SourceOptions,
        schema: Any,
        wanted: RangeToRead,
        cluster: Cluster,
        stream: bool,
    ) -> None:
        self.options = options
        self.schema = schema
        self.wanted = wanted
        self.cluster = cluster
        self.stream = stream
        self.lost: list[LostRange] = []

    def read(self) -> Iterator[Any]:
        """Goes on behind each loss, or fails with it."""
        start: Offset | None = self.wanted.start
        patience_s = self.options.client.patience_s
        quiet_s = 0.0
        while start is not None and start < self.wanted.end:
            limits = ReadLimits(
                fetch_bytes=self.options.client.fetch_bytes, timeout_s=min(QUIET_S, patience_s)
            )
            left = self.wanted._replace(start=start)
            try:
                yield from read_range(
                    self.cluster, left, self.schema, isolation=self.options.isolation, limits=limits
                )
                return
            except RangeOutOfRange as error:
                start = self._judge_bounds(error.offset, error.log_start)
            except (RangeOverwritten, RangeUnreachable) as error:
                quiet_s = 0.0 if error.offset > start else quiet_s + limits.timeout_s
                again = self._judge_tail(error.offset)
                if again == error.offset and (
                    isinstance(error, RangeOverwritten) or quiet_s >= patience_s
                ):
                    raise
                start = again
            except TopicRecreated as error:
                self._judge_gone(error.offset, error.found_id)
                return

    def _judge_bounds(self, offset: Offset, log_start: Offset) -> Offset | None:
        if offset >= log_start:
            return self._judge_tail(offset)
        resume = min(log_start, self.wanted.end)
        self._tell(LossKind.RETENTION, offset, resume, log_start)
        return resume

    def _judge_tail(self, offset: Offset) -> Offset | None:
        """Where to go on; None if the rest of the range is cut off."""
        epoch = self.wanted.epoch_max
        if epoch < 0:
            return offset
        _, kept = epoch_end(self.cluster, self.wanted.topic, self.wanted.partition, epoch)
        if not 0 <= kept < self.wanted.end:
            return offset
        refuse_loss([self._lost(LossKind.TRUNCATED, kept, None)], self.options.on_data_loss)
        if not self.stream:
            self._tell(LossKind.TRUNCATED, max(kept, self.wanted.start), self.wanted.end, None)
        self.wanted = self.wanted._replace(end=max(kept, offset))
        return offset

    def _judge_gone(self, offset: Offset, found_id: bytes | None) -> None:
        kind = LossKind.DELETED if found_id is None else LossKind.RECREATED
        lost = self._lost(kind, offset, self.wanted.end)._replace(
            old_id=id_text(self.wanted.topic_id), new_id=id_text(found_id or b"")
        )
        self._add(lost)

    def _lost(self, kind: LossKind, start: Offset, end: Offset | None) -> LostRange:
        wanted = self.wanted
        epoch = wanted.epoch_max if kind == LossKind.TRUNCATED else -1
        return LostRange(
            wanted.topic, wanted.partition, kind, start, end or wanted.end, None, epoch
        )

    def _tell(self, kind: LossKind, start: Offset, end: Offset, resume: Offset | None) -> None:
        self._add(self._lost(kind, start, end)._replace(resume=resume))

    def _add(self, lost: LostRange) -> None:
        refuse_loss([lost], self.options.on_data_loss)
        self.lost.append(lost)
        path = self.options.data_loss_path
        about = _about_this_task()
        finder = f"{about} {self.wanted.topic_id.hex()} {self.wanted._replace(end=0)}"
        tell_loss(
            self.lost,
            path if self.options.on_data_loss == OnDataLoss.REPORT else None,
            finder,
            **about,
        )


def _about_this_task() -> dict[str, Any]:
    """Which query and batch it is for, if Spark says so."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {}
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return {} if query is None else {"query": query, "batch": int(batch)}
