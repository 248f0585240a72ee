"""Read a task's ranges on an executor, also if the log changed since they were planned.

After the plan, records may be deleted by retention, truncated, or deleted with their topic. Then
the range reader raises an error, and this module finds out what was lost, by the same rules as the
driver. Invariant: under the policy `fail`, a task returns all rows of its range or fails. Under
other policies it continues with the records that exist, and each loss is reported once:

- retention and deleted topics: by the task, for its range;
- truncation in a batch read: by the task;
- truncation in a stream: by the driver, which finds the same truncation for all tasks when it next
  compares the checkpoint with the log.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.source.checkpoint import id_text
from tidelog.apps.spark.source.data_loss import (
    LossKind,
    LostRange,
    Place,
    fail_on_loss,
    log_loss,
    write_report,
)
from tidelog.apps.spark.source.partition_lookup import is_retriable_or_no_topic
from tidelog.apps.spark.source.range_reader import (
    RangeCorrupt,
    RangeError,
    RangeOutOfRange,
    RangeToRead,
    ReadLimits,
    TopicRecreated,
    read_range,
)
from tidelog.apps.spark.source.source_options import SourceOptions
from tidelog.apps.spark.worker import settle_worker
from tidelog.core.types import Offset
from tidelog.shell.client.client_errors import CannotConnect, ClientError, Unresolved
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID
from tidelog.shell.client.offsets import epoch_end

QUIET_S = 5.0
"""After this time without data, request the log's epochs: its tail may be truncated."""
PAUSE_S = 0.2

_clusters: dict[ClientSettings, Cluster] = {}
"""Clients of this worker process. Python workers serve many tasks, so they keep connections."""


@dataclass
class PlannedRanges(InputPartition):
    """The ranges that one task reads, in this order."""

    ranges: tuple[RangeToRead, ...]


def read_planned(
    options: SourceOptions, schema: Any, planned: PlannedRanges, *, stream: bool
) -> Iterator[Any]:
    """Yield the rows of a task as Arrow batches; each is valid until the next one."""
    settle_worker()
    done = False
    try:
        for wanted in planned.ranges:
            cluster = _cluster(options.client, wanted.topic)
            yield from _Task(options, schema, wanted, cluster, stream).read()
        done = True
    finally:
        if not done:
            _close_client(options.client)


def _cluster(client: ClientSettings, topic: str) -> Cluster:
    found = _clusters.get(client)
    if found is None:
        found = _clusters[client] = client.cluster()
        with suppress(CannotConnect, Unresolved):  # the first fetch retries
            found.refresh([topic])  # otherwise the first request would be for all topics
    return found


def _close_client(client: ClientSettings) -> None:
    """Close the client after an error or an early stop; the next task opens a new one."""
    found = _clusters.pop(client, None)
    if found is not None:
        found.close()


class _Task:
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
        patience_s = options.client.patience_s
        self.limits = ReadLimits(
            fetch_bytes=options.client.fetch_bytes, timeout_s=min(QUIET_S, patience_s)
        )

    def read(self) -> Iterator[Any]:
        """Yield the rows of the range; continue after each loss, or fail with it."""
        start = self.wanted.start
        since = time.monotonic()
        while start < self.wanted.end:
            left = self.wanted._replace(start=start)
            try:
                yield from read_range(
                    self.cluster,
                    left,
                    self.schema,
                    isolation=self.options.isolation,
                    limits=self.limits,
                )
                return
            except RangeError as error:
                if error.offset > start:
                    since = time.monotonic()
                was = self.wanted.end
                start = self._judge(error)
                if start == error.offset and was == self.wanted.end:
                    self._wait_or_raise(error, since)

    def _wait_or_raise(self, error: RangeError, since: float) -> None:
        """Wait before the next attempt; raise the error if it is permanent or time is up."""
        if (
            isinstance(error, RangeCorrupt)
            or time.monotonic() - since >= self.options.client.patience_s
        ):
            raise error
        time.sleep(PAUSE_S)

    # -- judging ----------------------------------------------------------------------------

    def _judge(self, error: RangeError) -> Offset:
        """Return the offset to continue at. Report a loss, or raise DataLost."""
        if isinstance(error, TopicRecreated):
            return self._judge_topic(error)
        if isinstance(error, RangeCorrupt):
            return error.offset
        if isinstance(error, RangeOutOfRange) and error.offset < error.log_start:
            resume = min(error.log_start, self.wanted.end)
            lost = self._lost(LossKind.RETENTION, error.offset, resume)
            self._add(lost._replace(resume=error.log_start))
            return resume
        return self._judge_tail(error.offset)

    def _judge_tail(self, offset: Offset) -> Offset:
        wanted = self.wanted
        if wanted.epoch_max < 0:
            return offset
        kept = self._epoch_end()
        if not 0 <= kept < wanted.end:
            return offset
        lost = self._lost(LossKind.TRUNCATED, max(kept, wanted.start), wanted.end)
        lost = lost._replace(epoch=wanted.epoch_max)
        if self.stream:
            fail_on_loss([lost], self.options.on_data_loss)
        else:
            self._add(lost)
        self.wanted = wanted._replace(end=max(kept, offset))
        return offset

    def _epoch_end(self) -> Offset:
        """Return the offset up to which the log still matches the plan; -1 if unknown."""
        wanted = self.wanted
        place = Place(wanted.end, wanted.epoch_max, wanted.epoch_since)
        try:
            return place.kept(
                *epoch_end(self.cluster, wanted.topic, wanted.partition, wanted.epoch_max)
            )
        except ClientError as error:
            if not is_retriable_or_no_topic(error):
                raise
            return -1

    def _judge_topic(self, error: TopicRecreated) -> Offset:
        end = self.wanted.end
        kind = LossKind.DELETED if error.found_id is None else LossKind.RECREATED
        lost = self._lost(kind, error.offset, end)
        old_id, new_id = id_text(self.wanted.topic_id), id_text(error.found_id or NO_TOPIC_ID)
        self._add(lost._replace(old_id=old_id, new_id=new_id))
        return end

    def _lost(self, kind: LossKind, start: Offset, end: Offset) -> LostRange:
        return LostRange(self.wanted.topic, self.wanted.partition, kind, start, end)

    def _add(self, lost: LostRange) -> None:
        fail_on_loss([lost], self.options.on_data_loss)
        log_loss([lost])
        self.lost.append(lost)
        if self.options.data_loss_path is not None:
            about = _query_and_batch()
            finder = f"task {about} {self.wanted.topic_id.hex()} {self.wanted.start} {lost.topic}"
            finder += f" {lost.partition}"
            write_report(self.lost, self.options.data_loss_path, finder, **about)


def _query_and_batch() -> dict[str, Any]:
    """Return the query and batch of this task; empty if Spark does not provide them."""
    context = TaskContext.get()
    if context is None:
        return {}
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return {} if query is None else {"query": query, "batch": int(batch)}
