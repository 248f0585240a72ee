"""Periodic work of a broker, each at Kafka's interval (M14, M27)."""

from collections.abc import Callable
from contextlib import suppress

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_copy import encode_copy
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import Ticked
from tidelog.core.slotted import slotted
from tidelog.core.storage import layout
from tidelog.core.storage.disk import replace_file
from tidelog.core.storage.retention import expired_segments
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.core.types import BrokerId, Offset, TopicPartition

DELETION_INTERVAL_MS = 1000


@slotted
class Duty:
    """One periodic task."""

    interval_ms: int
    due_ms: int
    do: Callable[[], None]


class Duties:
    """Checkpoints, retention, ISR expiry, deletion of files, timed flushes."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        replicas: Replicas,
        gate: Gate,
    ) -> None:
        self._turn = turn
        self._gate = gate
        self._copied = ((0, 0, 0), 0, 0, frozenset[BrokerId]())
        self._replicas = replicas
        self._producer_expiration_ms = config.producer_id_expiration_ms
        self._partitions_at_once = config.partitions_at_once
        directory = replicas.directory
        plan: list[tuple[int, Callable[[], None]]] = [
            (config.replica_lag_time_max_ms // 2, self._expire_followers),
            (config.replica_high_watermark_checkpoint_interval_ms, self._write_high_watermarks),
            (config.log_flush_offset_checkpoint_interval_ms, directory.write_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, directory.write_log_starts),
            (config.log_retention_check_interval_ms, self._retain),
            (config.log_flush_scheduler_interval_ms, self._check_flushes),
            (DELETION_INTERVAL_MS, self._delete_files),
            (config.producer_id_expiration_check_interval_ms, self._expire_producers),
        ]
        self._duties = [Duty(every, turn.now_ms + every, do) for every, do in plan]
        [self._deletion] = [duty for duty in self._duties if duty.do == self._delete_files]
        self.next_ms = min(duty.due_ms for duty in self._duties)
        """When `tick` has something to do."""

    def tick(self) -> None:
        """Run the tasks that are due; after a long pause each runs once."""
        now = self._turn.now_ms
        if now < self.next_ms:
            return
        for duty in self._duties:
            if now >= duty.due_ms:
                duty.due_ms = now + duty.interval_ms
                duty.do()
        self.next_ms = min(duty.due_ms for duty in self._duties)

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Return the high watermarks of all logs, including those of unknown topics."""
        found = dict(self._replicas.directory.high_watermarks)
        for name, replica in self._replicas.hosted.items():
            found[name] = replica.partition.high_watermark
        return found

    def note_metadata(self) -> None:
        """Save the last applied revision of the store, and the copy of the metadata."""
        image, directory = self._gate.image, self._replicas.directory
        if image.revision == 0:
            return
        levels = image.mod_rev(keys.FEATURES)
        changes = image.config_changes, image.acl_changes, image.quota_changes
        copied = (changes, image.next_producer_id, levels, frozenset(image.states))
        if copied != self._copied:
            self._copied = copied
            replace_file(directory.disk, layout.METADATA_COPY, encode_copy(image))
        directory.write_seen(image.point)

    def _all(self) -> list[HostedReplica]:
        return [one for one in self._replicas.hosted.values() if not one.log.offline]

    def _expire_followers(self) -> None:
        """Propose to remove lagging followers from ISRs.

        Skipped while another broker may have replaced this one: it would remove followers that
        are in sync with the new leader.
        """
        if self._gate.acting:
            event = Ticked(self._turn.now_ms)
            for replica in self._all():
                self._replicas.step(replica, event)
                if replica.resting and replica.partition.has_followers_outside_isr:
                    # The next fetches of these followers count again, whatever the reason for the
                    # pause was.
                    self._replicas.rejoining[replica] = None

    def _write_high_watermarks(self) -> None:
        self._replicas.directory.write_high_watermarks(self.high_watermarks())
        self.note_metadata()
        for replica in self._all():
            producers = replica.log.producers
            if producers.ended:
                producers.forget_ended(replica.partition.high_watermark)

    def _retain(self) -> None:
        turn = self._turn
        wall_ms = turn.wall.earliest_ms(turn.now_ms)
        for replica in self._all():
            log, mark = replica.log, replica.partition.high_watermark
            written = (log.segments, log.config, log.log_end_offset)
            expired = []
            with suppress(DamagedRecords), log.reading():
                expired = expired_segments(*written, mark, wall_ms, turn.now_ms)
            if expired:
                self._replicas.expire(replica, expired)

    def _check_flushes(self) -> None:
        for replica in self._all():
            log = replica.log
            # An idle log has nothing to flush; a broker may have thousands.
            if log.recovery_point < log.log_end_offset or replica.partition.config.flush_before_ack:
                self._replicas.check_flush(replica)

    def _expire_producers(self) -> None:
        wall_ms = self._turn.wall.earliest_ms(self._turn.now_ms)
        for replica in self._all():
            replica.log.producers.expire(wall_ms, self._producer_expiration_ms)

    def _delete_files(self) -> None:
        """Delete files of deleted logs, not all in one turn: a topic may have thousands."""
        now = self._turn.now_ms
        if self._replicas.directory.delete_due(now, self._partitions_at_once):
            self._deletion.due_ms = now
