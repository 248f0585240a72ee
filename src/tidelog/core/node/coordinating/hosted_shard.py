"""The groups of one partition that this broker leads: read from its log, then kept by it.

A coordinator that has just come into office knows nothing. It reads the log to the end, a
slice each step so that nobody else waits long, and answers once all it has read is committed:
an offset that a group was told must not be gone after the next election.

Always true: a shard never outlives the leader epoch that it was made in.
"""

from tidelog.core.groups.records import DamagedRecord
from tidelog.core.groups.shard import GroupShard
from tidelog.core.node.replicas import HostedReplica
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.storage.segment.verification import DamagedRecords
from tidelog.core.types import LeaderEpoch, Offset

SLICE_BYTES = 128 * 1024
SLICE_RECORDS = 5_000
SLICE_UNPACKED_BYTES = 4 * 1024 * 1024
"""Bytes read in one step, about ten milliseconds of work. A client may write to the topic itself,
and send batches that decompress to many bytes."""


class HostedShard:
    """A shard, and how far it has read its log."""

    __slots__ = ("_position", "damaged", "leader_epoch", "loaded", "replica", "shard", "target")

    def __init__(self, shard: GroupShard, replica: HostedReplica) -> None:
        self.shard = shard
        self.replica = replica
        self.leader_epoch: LeaderEpoch = replica.partition.leader_epoch
        self.target: Offset = replica.log.log_end_offset
        self.loaded = False
        self.damaged = 0
        """Batches and records that could not be read. They are passed over, as in Kafka."""
        self._position: Offset = replica.log.log_start_offset

    @property
    def is_current(self) -> bool:
        """Whether the leader is still the one that the shard was made for."""
        partition = self.replica.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    @property
    def has_read_all(self) -> bool:
        return self._position >= self.target

    def read_on(self) -> int:
        """One slice of the log; how many bytes that were, packed or not."""
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
                return 0  # a sound replica in sync is about to lead, and reads it all
            self._pass_over_segment()
            return 1
        if not region.length:
            self._position = self.target  # compaction left nothing more
            return 0
        before = self._position
        records = unpacked = 0
        try:
            for batch in batches(data):
                self._position = batch.next_offset
                if not batch.is_control:
                    unpacked += self._replay(batch)
                    records += batch.count
                if records >= SLICE_RECORDS or unpacked >= SLICE_UNPACKED_BYTES:
                    break
        except CorruptRecord:
            self._pass_over_segment()
        if self._position <= before:
            self._pass_over_segment()
        return max(region.length, unpacked)

    def _pass_over_segment(self) -> None:
        """A damaged header: nobody can tell where in this file the next batch begins."""
        self.damaged += 1
        segments = self.replica.log.segments
        here = next(segments.from_offset(self._position))
        following = segments.end_of(here)
        self._position = self.target if following is None else min(following, self.target)

    def _replay(self, batch: RecordBatch) -> int:
        """How many bytes it unpacked to, roughly."""
        size = 0
        try:
            for record in decode(batch):
                size += len(record.key or b"") + len(record.value or b"")
                if record.key is not None:
                    self._replay_one(record.key, record.value)
        except CorruptRecord as corrupt:
            self.damaged += 1
            return corrupt.unpacked_bytes
        return size

    def _replay_one(self, key: bytes, value: bytes | None) -> None:
        try:
            self.shard.replay(key, value)
        except DamagedRecord:
            self.damaged += 1
