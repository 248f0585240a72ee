"""Collect records into batches, choose their partitions, and send each batch.

A record with a key goes to the partition that Kafka's Java client chooses. Records without a key
share a partition until its batch is sent. Invariants: records of a partition are written in input
order; after an error nothing more is sent.
"""

from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.record.record import Record
from tidelog.core.types import Offset
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster_metadata import NO_LEADER
from tidelog.shell.client.partitioner import StickyPartition, partition_of_key
from tidelog.shell.client.producer import NO_OFFSET, Producer

BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 20_000
RECORD_OVERHEAD = 24
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Written(NamedTuple):
    """What was written to one partition."""

    partition: int
    records: int
    first_offset: Offset | None
    """None if unknown (acks=0)."""
    last_offset: Offset | None


class Sender:
    """Writes to one topic; `partition` applies to records that name none."""

    def __init__(self, producer: Producer, topic: str, partition: int | None = None) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        known = producer.cluster.topic(topic).partitions
        self._count = len(known)
        led = [each.partition for each in known.values() if each.leader != NO_LEADER]
        self._sticky = StickyPartition(led or list(known))
        self._batches: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}
        self.records = 0
        """Number of records written."""
        self.bytes = 0
        self.written: dict[int, Written] = {}

    def add(self, record: Record, partition: int | None = None) -> None:
        """Add a record; send its batch if it is full. Raises ClientError."""
        if partition is None:
            partition = self._choose(record)
        batch = self._batches.setdefault(partition, [])
        batch.append(record)
        size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        size += self._sizes.get(partition, 0)
        self._sizes[partition] = size
        if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            self._send(partition)

    def _choose(self, record: Record) -> int:
        if self._partition is not None:
            return self._partition
        if record.key is None:
            return self._sticky.now
        return partition_of_key(record.key, self._count)

    def flush(self) -> None:
        """Send all unfinished batches. Raises ClientError."""
        for partition in list(self._batches):
            self._send(partition)

    @property
    def waiting(self) -> int:
        """Number of records added and not yet written."""
        return sum(map(len, self._batches.values()))

    def _send(self, partition: int) -> None:
        self._append(partition, list(self._batches[partition]))
        del self._batches[partition]
        self.bytes += self._sizes.pop(partition)
        if partition == self._sticky.now:
            self._sticky.move()

    def _append(self, partition: int, records: list[Record]) -> None:
        try:
            first = self._producer.append(self._topic, partition, records)
        except BrokerError as error:
            if error.code not in _TOO_LARGE or len(records) == 1:
                raise
            half = len(records) // 2
            self._append(partition, records[:half])
            self._append(partition, records[half:])
            return
        self.records += len(records)
        del self._batches[partition][
            : len(records)
        ]  # the rest of a halved batch is still to be sent
        before = self.written.get(partition, Written(partition, 0, None, None))
        offset = None if first == NO_OFFSET else first
        self.written[partition] = Written(
            partition,
            before.records + len(records),
            offset if before.first_offset is None else before.first_offset,
            before.last_offset if offset is None else offset + len(records) - 1,
        )
