"""`spark.readStream.format("tidelog")`: the streaming reader.

Spark keeps one reader on the driver while a query runs, and calls it at each trigger to find out
which data is available; tasks get copies. Invariant: a batch is planned from its start and end
alone, without a request to a broker, so a restarted query plans the same batch.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.apps.spark.client_options import ClientSettings
from tidelog.apps.spark.columns import check_schema
from tidelog.apps.spark.source.checkpoint import StreamOffset, from_json
from tidelog.apps.spark.source.data_loss import fail_on_loss, report_loss
from tidelog.apps.spark.source.offset_tracker import OffsetTracker, Target, next_offset, up_to
from tidelog.apps.spark.source.partition_lookup import PartitionLookup
from tidelog.apps.spark.source.planning import (
    find_bounds,
    gather,
    resolve,
    share_limit,
    split_ranges,
)
from tidelog.apps.spark.source.range_reader import RangeToRead
from tidelog.apps.spark.source.source_options import (
    SourceOptions,
    include_headers,
    stream_options,
)
from tidelog.apps.spark.source.task import PlannedRanges, read_planned
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver. Each task has a copy and reads its ranges."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self.options: SourceOptions = stream_options(options)
        self.schema = check_schema(schema, include_headers(options))
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    @property
    def driver(self) -> "_Driver":
        if self._driver is None:
            self._driver = _Driver(self.options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        return self.driver.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        admission = self.options.admission
        if admission.max_offsets is not None:
            return ReadMaxRows(admission.max_offsets)
        if admission.min_offsets is not None:
            return ReadMinRows(admission.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.set_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        may_wait = not isinstance(limit, ReadAllAvailable)
        end = self.driver.advance(begin, most, may_wait=may_wait)
        return start if end is begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.driver.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PlannedRanges]:
        if start == end:
            return []  # no new data
        begin, until = from_json(start), from_json(end)
        report_loss(until.lost, self.options.data_loss_path, f"stream {start} {end}")
        ranges = split_ranges(plan(begin, until), self.options.splitting, os.cpu_count() or 1)
        return [PlannedRanges(each) for each in gather(ranges, self.options.splitting)]

    def read(self, partition: PlannedRanges) -> Iterator[Any]:
        return read_planned(self.options, self.schema, partition, stream=True)

    def commit(self, end: dict[str, Any]) -> None:
        self.driver.progress.commit(from_json(end), busy=True)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def plan(start: StreamOffset, end: StreamOffset) -> list[RangeToRead]:
    """Return the ranges of a batch."""
    ranges = []
    for key, place in sorted(end.places.items()):
        begin = end.starts.get(key)
        if begin is None:
            begin = start.places[key].offset if key in start.places else 0
        if begin < place.offset:
            topic_id = end.ids.get(key.topic, NO_TOPIC_ID)
            ranges.append(RangeToRead(key.topic, topic_id, key.partition, begin, *place))
    return ranges


class _Driver:
    """The state that exists only on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.lookup = PartitionLookup(options.client, options.subscription, options.isolation)
        self.tracker = OffsetTracker(self.lookup)
        self.progress = GroupProgress(options.client, options.commit_to_group)
        self._target: Target | None = None
        self._batch_at = float("-inf")
        self._first: StreamOffset | None = None

    def close(self) -> None:
        self.lookup.close()
        self.progress.close()

    def initial(self) -> StreamOffset:
        """Return the first offset. Spark calls this twice and must get the same result."""
        if self._first is None:
            subscribed = self.lookup.find_all()
            found = resolve(
                self.lookup,
                self.options.starting,
                find_bounds(self.lookup, subscribed.partitions),
            )
            fail_on_loss(found.lost, self.options.on_data_loss)
            report_loss(found.lost, self.options.data_loss_path, f"start {found.places}")
            count = sum(each.offsets for each in found.lost)
            self._first = StreamOffset(found.places, subscribed.ids, lost_offsets=count)
        return self._first

    def set_target(self) -> None:
        """Set the target of Trigger.AvailableNow: the records that exist now."""
        subscribed = self.lookup.find_named()
        bounds = find_bounds(self.lookup, subscribed.partitions)
        self._target = Target(bounds.ends, subscribed.ids)

    def latest(self) -> dict[str, Any] | None:
        """Return the newest offsets, for the query's progress."""
        if not self.tracker.latest:
            return None
        return StreamOffset(self.tracker.latest, self.tracker.ids).to_json()

    def advance(
        self, start: StreamOffset, most: int | None = None, *, may_wait: bool = False
    ) -> StreamOffset:
        """Return the end of the next batch of about `most` offsets; `start` if there is no batch.

        With `may_wait`, apply minOffsetsPerTrigger.
        """
        available = self.tracker.find(start, of_all=self._target is not None)
        if self._target is not None:
            available = up_to(self._target, start, available)
        lags = {
            key: max(end.offset - available.starts[key], 0) for key, end in available.ends.items()
        }
        if may_wait and self._is_too_early(sum(lags.values())) and not available.lost:
            end = start
        else:
            shares = None if most is None else share_limit(lags, most)
            end = next_offset(start, available, shares, is_first=start == self._first)
        fail_on_loss(available.lost, self.options.on_data_loss)
        self.progress.commit(start, busy=end is not start)
        if end is not start:
            self._batch_at = time.monotonic()
        return end

    def _is_too_early(self, available: int) -> bool:
        least = self.options.admission.min_offsets
        if least is None or self._target is not None or available >= least:
            return False
        return time.monotonic() - self._batch_at < self.options.admission.max_delay_s


LOG = logging.getLogger("tidelog.spark")
COMMIT_EVERY_S = 1.0
RETRY_AFTER_S = 30.0
TIMEOUT_S = 2.0


class GroupProgress:
    """Commits a stream's progress to a consumer group, for tools that show the lag of groups.

    The stream itself uses only its checkpoint. Progress is committed when Spark requests the next
    batch, because the previous batch is done then: at once if the stream is idle, else at most once
    a second. Invariant: a failed commit is logged once, delays a trigger by two seconds at most,
    and is retried after RETRY_AFTER_S.
    """

    def __init__(self, client: ClientSettings, group: str | None) -> None:
        self._client = client._replace(timeout_s=min(client.timeout_s, TIMEOUT_S))
        self._group = group
        self._cluster: Cluster | None = None
        self._committed: StreamOffset | None = None
        self._tried_at = float("-inf")
        self._failed = False

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def commit(self, start: StreamOffset, *, busy: bool) -> None:
        """Commit that everything before `start` is processed; `busy`: another batch follows now."""
        if self._group is None or not start.places:
            return
        if self._committed is not None and self._committed.places == start.places:
            return
        pause_s = RETRY_AFTER_S if self._failed else COMMIT_EVERY_S if busy else 0.0
        if time.monotonic() - self._tried_at >= pause_s:
            self._commit(self._group, start)

    def _commit(self, group: str, place: StreamOffset) -> None:
        offsets = {key: Committed(at.offset, at.epoch) for key, at in place.places.items()}
        try:
            if self._cluster is None:
                self._cluster = self._client.cluster()
                self._cluster.refresh([])
            commit_offsets(self._cluster, group, offsets)
        except ClientError as error:
            if not self._failed:
                LOG.warning("cannot commit progress to group %s: %s", group, error)
            self._failed = True
            self.close()
        else:
            self._committed, self._failed = place, False
        self._tried_at = time.monotonic()
