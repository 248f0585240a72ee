"""A shard on the leader of its partition, and how far it has read the log.

A new leader knows nothing of the shard's state. It reads the log up to the log end offset, one
slice in each step so that other requests do not wait long. It serves once everything it has read
is committed: a response to a client must stay true after the next election.

Invariant: a shard never outlives the leader epoch in which it was created.
"""

from typing import Any, Generic, TypeVar

from tidelog.core.coordinator.shard import CoordinatorShard, DamagedRecord
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.record.decoder import decode, decode_marker
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.storage.segment.verification import DamagedRecords
from tidelog.core.types import LeaderEpoch, Offset

SLICE_BYTES = 128 * 1024
SLICE_RECORDS = 5_000
SLICE_UNPACKED_BYTES = 4 * 1024 * 1024
"""Limits of one step, about ten milliseconds of work. A client may write to the topic itself, and
send batches that decompress to many bytes."""

S = TypeVar("S", bound=CoordinatorShard[Any])


class HostedShard(Generic[S]):
    """A shard, its replica, and the progress of its loading."""

    __slots__ = ("_position", "damaged", "leader_epoch", "loaded", "replica", "shard", "target")

    def __init__(self, shard: S, replica: HostedReplica) -> None:
        self.shard = shard
        self.replica = replica
        self.leader_epoch: LeaderEpoch = replica.partition.leader_epoch
        self.target: Offset = replica.log.log_end_offset
        """The end of the log when this broker became leader."""
        self.loaded = False
        self.damaged = 0
        """Batches and records that could not be decoded. They are skipped, as in Kafka."""
        self._position: Offset = replica.log.log_start_offset

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the leader epoch of the shard."""
        partition = self.replica.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    @property
    def has_read_all(self) -> bool:
        """Whether the log was read up to `target`."""
        return self._position >= self.target

    def read_slice(self) -> int:
        """Replay one slice of the log. Return its size in bytes, compressed or not."""
        log = self.replica.log
        self._position = max(self._position, log.log_start_offset)
        if self.has_read_all:
            return 0
        try:
            region = log.read(self._position, SLICE_BYTES, self.target)
            with log.reading():
                data = log.read_bytes(region)
        except DamagedRecords:
            if len(self.replica.isr) > 1:
                return 0  # an intact in-sync replica is about to lead, and will read everything
            self._skip_segment()
            return 1
        if not region.length:
            self._position = self.target  # compaction left nothing more
            return 0
        before = self._position
        records = unpacked = 0
        try:
            for batch in batches(data):
                self._position = batch.next_offset
                unpacked += self._replay(batch)
                records += batch.count
                if records >= SLICE_RECORDS or unpacked >= SLICE_UNPACKED_BYTES:
                    break
        except CorruptRecord:
            self._skip_segment()
        if self._position <= before:
            self._skip_segment()
        return max(region.length, unpacked)

    def _skip_segment(self) -> None:
        """Skip a segment with a damaged header: the start of the next batch is unknown."""
        self.damaged += 1
        segments = self.replica.log.segments
        here = next(segments.from_offset(self._position))
        following = segments.end_of(here)
        self._position = self.target if following is None else min(following, self.target)

    def _replay(self, batch: RecordBatch) -> int:
        """Replay a batch. Return its approximate uncompressed size."""
        size = 0
        try:
            if batch.is_control:
                self._replay_marker(batch)
                return 0
            writer = batch if batch.is_transactional else None
            for record in decode(batch):
                size += len(record.key or b"") + len(record.value or b"")
                if record.key is not None:
                    self._replay_one(writer, record.key, record.value)
        except CorruptRecord as corrupt:
            self.damaged += 1
            return corrupt.unpacked_bytes
        return size

    def _replay_one(self, writer: RecordBatch | None, key: bytes, value: bytes | None) -> None:
        """Replay a record; with `writer` it belongs to a transaction of that batch's producer."""
        try:
            if writer is None:
                self.shard.replay(key, value)
            else:
                producer = (writer.producer_id, writer.producer_epoch)
                self.shard.replay_transactional(*producer, key, value)
        except DamagedRecord:
            self.damaged += 1

    def _replay_marker(self, batch: RecordBatch) -> None:
        marker = decode_marker(batch)
        if marker is not None:
            producer = (batch.producer_id, batch.producer_epoch)
            self.shard.replay_marker(*producer, committed=not marker.is_abort)
