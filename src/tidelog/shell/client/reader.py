"""Read one partition, record by record.

Invariant: records are yielded in the order of their offsets, none below the requested offset, and
the checksum of each batch was verified.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.isolation import read_committed
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import NothingMore
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import (
    MAX_BYTES,
    MAX_WAIT_MS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CheckedBatches,
    FetchedPartition,
    fetch_partition,
)


class Fetched(NamedTuple):
    """Decoded records of one partition, and the state of the leader's log."""

    records: list[LogRecord]
    next_offset: Offset
    """The offset of the next fetch."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Reader:
    """Reads partitions from their current leaders."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes

    def fetch(self, topic: str, partition: int, offset: Offset) -> Fetched:
        """Return the records at `offset`; wait up to `max_wait_ms` for the first one."""
        found = fetch_partition(
            self.cluster,
            TopicPartition(topic, partition),
            offset,
            self.max_bytes,
            self.isolation,
            self.max_wait_ms,
        )
        records, next_offset = open_batches(found, offset, self.isolation)
        return Fetched(records, next_offset, *found[1:4])

    def read(
        self, topic: str, partition: int, start: Offset, end: Offset | None = None
    ) -> Iterator[LogRecord]:
        """Yield the records in [start, end); without `end`, up to the last readable record now.

        Raises NothingMore if the log does not reach `end` within the cluster's timeout.
        """
        offset = start
        waited_from = time.monotonic()
        while end is None or offset < end:
            found = self.fetch(topic, partition, offset)
            if found.next_offset > offset:
                waited_from = time.monotonic()
            elif end is not None and time.monotonic() - waited_from > self.cluster.timeout_s:
                key = TopicPartition(topic, partition)
                raise NothingMore(str(key), offset, end, self.cluster.timeout_s)
            for record in found.records:
                if end is not None and record.offset >= end:
                    return
                yield record
            if end is None:
                committed = self.isolation == READ_COMMITTED
                end = found.last_stable_offset if committed else found.high_watermark
            offset = found.next_offset


def open_batches(
    found: FetchedPartition, offset: Offset, isolation: int = READ_UNCOMMITTED
) -> tuple[list[LogRecord], Offset]:
    """Return the records from `offset` on, and the offset after them. Raises CorruptRecord."""
    seen = CheckedBatches(found.records)
    wanted: Iterable[RecordBatch] = seen
    if isolation == READ_COMMITTED:
        wanted = read_committed(seen, found.aborted)
    records = [
        record
        for batch in wanted
        if not batch.is_control
        for record in decode(batch)
        if record.offset >= offset
    ]
    return records, max(offset, seen.next_offset)
