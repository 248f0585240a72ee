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
from tidelog.core.types import LeaderEpoch, Offset

SLICE_BYTES = 128 * 1024
"""Read in one step: some ten milliseconds' worth."""


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
        """One slice of the log; how many bytes that were."""
        log = self.replica.log
        self._position = max(self._position, log.log_start_offset)
        if self.has_read_all:
            return 0
        region = log.read(self._position, SLICE_BYTES, self.target)
        if not region.length:
            self._position = self.target  # compaction left nothing more
            return 0
        before = self._position
        try:
            for batch in batches(log.read_bytes(region)):
                self._position = batch.next_offset
                if not batch.is_control:
                    self._replay(batch)
        except CorruptRecord:
            self._pass_over_segment()
        if self._position <= before:
            self._pass_over_segment()
        return region.length

    def _pass_over_segment(self) -> None:
        """A damaged header: nobody can tell where in this file the next batch begins."""
        self.damaged += 1
        segments = self.replica.log.segments
        here = next(segments.from_offset(self._position))
        following = segments.end_of(here)
        self._position = self.target if following is None else min(following, self.target)

    def _replay(self, batch: RecordBatch) -> None:
        try:
            for record in decode(batch):
                if record.key is not None:
                    self._replay_one(record.key, record.value)
        except CorruptRecord:
            self.damaged += 1

    def _replay_one(self, key: bytes, value: bytes | None) -> None:
        try:
            self.shard.replay(key, value)
        except DamagedRecord:
            self.damaged += 1
