"""All replicas on this broker, and the effects of their partitions.

A partition decides; its effects are carried out here, at once and in order: first on the log, then
for the requests. If the disk fails, the later effects are not carried out: no response can depend
on records that were not written. With several log directories the replica is offline then, and its
requests fail; the failure of the last directory leaves `step` as an exception.

Replicas call no other part of the broker. They leave work in dicts that the other parts read:
`touched`, `deposed`, `newly_led`, `isr_changes`, `to_flush` and so on.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import FollowedPartitions, HostedReplica
from tidelog.core.node.hosting.loss_recorder import (
    DAMAGE,
    LEADER_CHANGE,
    LEADER_DELETED,
    UNCLEAN_ELECTION,
    LossRecorder,
)
from tidelog.core.node.hosting.replica_notes import given_up, note_dropped, note_loss, note_refusal
from tidelog.core.node.measuring.counters import Loss, Losses
from tidelog.core.node.messages import DeleteRecordsPartitionResponse, ProducePartitionResponse
from tidelog.core.node.turn import Turn
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.slotted import replace
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import LogOffline
from tidelog.core.storage.log_directories import BrokerLogs
from tidelog.core.storage.repair import CannotRepair, LogRepair
from tidelog.core.storage.retention import ExpiredSegment
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import Offset, StorePoint, TopicPartition


class IsrChange(NamedTuple):
    """The ISR that a leader on this broker wants for its partition."""

    replica: HostedReplica
    wanted: do.ProposeIsr


class Replicas:
    """Hosts replicas and carries out their effects."""

    def __init__(
        self,
        turn: Turn,
        directory: BrokerLogs,
        followed: FollowedPartitions,
        recorder: LossRecorder,
    ) -> None:
        self.hosted: dict[TopicPartition, HostedReplica] = {}
        self.directory = directory
        self.losses = Losses()
        self.newly_damaged: dict[TopicPartition, None] = {}
        """Partitions whose damage is to be reported (membership/log_reporter.py)."""
        self.repairing: dict[HostedReplica, None] = {}
        self._further: dict[TopicPartition, set[Offset]] = {}
        """Damaged offsets after the first one, which is in `directory.damaged`."""
        self.refused: dict[TopicPartition, do.RefuseTruncation] = {}
        """Replicas that stopped fetching because their leader lacks committed records."""
        self.touched: dict[HostedReplica, None] = {}
        """Replicas whose readers may find new records; waiting fetches are checked once, at the end
        of the step."""
        self.deposed: dict[HostedReplica, ErrorCode] = {}
        """Replicas whose leader epoch changed: waiting fetches get this error."""
        self.leadership_changed: dict[HostedReplica, None] = {}
        """Replicas whose leader epoch changed, that were removed, or that stopped serving; the
        coordinators reload their shards (coordinating/coordinators.py)."""
        self.newly_led: dict[HostedReplica, None] = {}
        """Replicas that became leaders; their followers should fetch soon (serving/fetch.py)."""
        self.rejoining: dict[HostedReplica, None] = {}
        """Leaders whose ISR proposal failed, and at intervals all that have followers outside the
        ISR: the next fetches of these followers count again."""
        self.isr_changes: dict[TopicPartition, IsrChange] = {}
        """ISRs to propose to the controller (membership/isr_proposals.py)."""
        self.to_flush: dict[HostedReplica, None] = {}
        """Logs that wait for the next flush (upkeep/flushing.py)."""
        self.truncated = False
        """Whether to write recovery points before the effects of this step are carried out: a log
        that grows again must not be trusted up to the offset that was once flushed."""
        self.relied_on: StorePoint | None = None
        """The point of the store's history that this step relies on, if it is not on disk yet."""
        self._unwritten: dict[HostedReplica, None] = {}
        """Replicas whose leader epochs are not on disk yet."""
        self._reasons: dict[Offset, str] = {}
        """Why retention deletes segments in this step, by base offset."""
        self._turn = turn
        self._followed = followed
        self.recorder = recorder
        self.note_acks = recorder.note_acks
        """To be called before a leader's record with a level of acks that is not in `acks_seen`."""
        self._carry_out: dict[type, Callable[[HostedReplica, Any], None]] = {
            do.AppendRecords: self._append_records,
            do.TruncateTo: self._truncate_to,
            do.ReplaceRecords: self._replace_records,
            do.AbandonRepair: self._abandon_repair,
            do.RestartAt: self._restart_at,
            do.DropBefore: self._drop_before,
            do.WriteEpochs: self._write_epochs,
            do.AnswerProduce: self._answer_produce,
            do.DuplicateFound: self._duplicate_found,
            do.AwaitCommit: self._await_commit,
            do.AwaitFlush: self._await_flush,
            do.AnswerFetch: self._deliver_answer,
            do.AnswerEpochEnd: self._deliver_answer,
            do.AnswerOffsets: self._deliver_answer,
            do.AnswerDeleteRecords: self._answer_delete_records,
            do.AwaitLowWatermark: self._await_low_watermark,
            do.AdvanceHighWatermark: self._advance_high_watermark,
            do.AdvanceFlushed: self._advance_flushed,
            do.AdvanceLowWatermark: self._advance_low_watermark,
            do.ProposeIsr: self._propose_isr,
            do.TakeLeadership: self._take_leadership,
            do.FollowLeader: self._follow_leader,
            do.StopFollowing: self._stop_following,
            do.RefuseTruncation: self._refuse_truncation,
            do.FailWaiters: self._fail_waiters,
        }

    def step(self, replica: HostedReplica, event: on.Event) -> None:
        """Pass an event to a replica and carry out the effects."""
        effects = iter(replica.partition.step(event))
        try:
            for effect in effects:
                self._carry_out[type(effect)](replica, effect)
        except (DiskError, LogOffline) as error:
            if not self.directory.failed(error, replica.topic_partition):
                raise
            self._fail_requests(replica, effects)

    def _fail_requests(self, replica: HostedReplica, effects: Iterable[do.Effect]) -> None:
        """Take a replica offline whose log directory failed, and fail the request of this step.

        At once: its partition counts records that are not in the log.
        """
        self.step(replica, on.LogFailed())
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        for effect in effects:
            if isinstance(effect, do.AnswerProduce | do.AwaitCommit | do.AwaitFlush):
                _settle_produce(replica, effect.request, failed, None)
            elif isinstance(effect, do.AnswerDeleteRecords | do.AwaitLowWatermark):
                _settle_deletion(replica, effect.request, failed, None)
            elif isinstance(effect, do.AnswerFetch | do.AnswerEpochEnd | do.AnswerOffsets):
                self._deliver_answer(replica, replace(effect, error=failed))

    def directory_failed(self, number: int) -> list[TopicPartition]:
        """Take all replicas of a log directory offline; return their partitions."""
        names = self.directory.partitions_in(number)
        for name in names:
            replica = self.hosted.get(name)
            if replica is not None:
                replica.repair = None  # its files stay: they can't be deleted
                self.repairing.pop(replica, None)
                if not replica.partition.offline:  # a failed step of its own took it offline
                    self.step(replica, on.LogFailed())
        return names

    def unhost(self, replica: HostedReplica) -> None:
        """Forget a replica; requests that wait for it fail."""
        name = replica.topic_partition
        self.drop_repair(replica)
        self._further.pop(name, None)
        del self.hosted[name]
        self._followed.stop(replica)
        self.fail_waiters(replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.touched.pop(replica, None)
        self.rejoining.pop(replica, None)
        self.refused.pop(name, None)

    def log_changed(self, replica: HostedReplica) -> None:
        """Check whether the log has to be flushed; a follower may have another position to send."""
        self.check_flush(replica)
        if not replica.partition.is_leader:
            self._followed.changed(replica)

    def check_flush(self, replica: HostedReplica) -> None:
        """Add the log to the next flush if its settings require one."""
        partition = replica.partition
        if (
            partition.config.flush_before_ack
            and partition.flushed_offset < partition.log_end_offset
        ) or replica.log.flush_due(self._turn.now_ms) is not None:
            self.to_flush[replica] = None

    def flushed(self, replica: HostedReplica) -> None:
        """A follower may report the flushed position to its leader."""
        self._followed.changed(replica)

    def expire(self, replica: HostedReplica, expired: list[ExpiredSegment]) -> None:
        """Propose to delete segments, for these reasons."""
        self._reasons = {segment.base_offset: segment.reason for segment in expired}
        self.step(replica, on.RetentionReached(expired[-1].end_offset))
        self._reasons = {}

    # -- the log ---------------------------------------------------------------------------

    def _append_records(self, replica: HostedReplica, effect: do.AppendRecords) -> None:
        self.write_epochs()
        batches: Any = effect.batches
        replica.log.append(batches, self._turn.now_ms)
        traffic, partition = replica.traffic, replica.partition
        if partition.leader == partition.local:
            (batch,) = batches  # a leader appends one batch at a time
            traffic.bytes_in += batch.size
            traffic.messages_in += batch.count
        else:
            for batch in batches:
                traffic.replication_bytes_in += batch.size
        self.touched[replica] = None
        self.log_changed(replica)

    def _truncate_to(self, replica: HostedReplica, effect: do.TruncateTo) -> None:
        start = replica.log.log_start_offset
        cause = UNCLEAN_ELECTION if given_up(replica) else LEADER_CHANGE
        end = self._record_and_cut(replica, cause, start, effect, effect.high_watermark)
        self._lose(replica, max(start, end), effect, None)

    def _record_and_cut(
        self,
        replica: HostedReplica,
        cause: str,
        start: Offset,
        effect: do.TruncateTo,
        high_watermark: Offset,
    ) -> Offset:
        """Write to the loss ledger, truncate the log, and return its new end."""
        offset, before = effect.offset, effect.log_end_offset
        known = (high_watermark, effect.epochs)
        self.recorder.removing(replica, cause, max(start, offset), before, *known)
        end = self._cut(replica, offset)
        if end < offset:
            # A batch spans the offset, or its file is missing.
            self.recorder.removing(replica, cause, max(start, end), offset, *known)
        return end

    def _cut(self, replica: HostedReplica, offset: Offset) -> Offset:
        """Truncate the log; return the new log end offset."""
        self._lower_log_start(replica, offset)
        self.directory.cut_cleaner_offset(replica.topic_partition, offset)
        end = replica.log.truncate_to(offset)
        if end < offset:
            self.directory.cut_cleaner_offset(replica.topic_partition, end)
            self.step(replica, on.LogEndMoved(end))
        self.truncated = True
        self.touched[replica] = None
        return end

    def _restart_at(self, replica: HostedReplica, effect: do.RestartAt) -> None:
        start = replica.log.log_start_offset
        known = (effect.log_end_offset, effect.high_watermark, effect.epochs)
        self.recorder.removing(replica, LEADER_DELETED, start, *known)
        self._lower_log_start(replica, effect.offset)
        self.directory.cut_cleaner_offset(replica.topic_partition, effect.offset)
        replica.log.restart_at(effect.offset)
        self._lose(replica, start, effect, effect.offset)
        self.truncated = True
        self.touched[replica] = None

    # -- damage ----------------------------------------------------------------------------

    def damage_found(self, partition: TopicPartition, damage: Damage) -> None:
        """Note records that a read, the scrubber or recovery found damaged."""
        known, hosted = self.directory.damaged.get(partition), self.hosted.get(partition)
        if hosted is not None:
            # Records before the log start are deleted and need no repair.
            start = hosted.log.log_start_offset
            damage = damage._replace(offset=max(damage.offset, start))
        if known is not None and damage.offset >= known.offset:
            if hosted is not None and hosted.repair is not None:
                hosted.repair.add(damage.offset)
            else:
                self._further.setdefault(partition, set()).add(damage.offset)
            return
        if known is not None and known.inside:
            self._further.setdefault(partition, set()).add(known.offset)
        if hosted is not None:
            self.drop_repair(hosted)  # it assumes that the log before its range is undamaged
        self.directory.damaged[partition] = damage
        self.newly_damaged[partition] = None

    def hold_fetches(self, replica: HostedReplica, damage: Damage) -> None:
        """Stop fetching until the controller knows of the damage: each fetch would claim that the
        log is complete up to its end."""
        if damage.inside and replica.repair is None:
            self.step(replica, on.RepairNeeded(damage.offset, damage.offset))

    def begin_repair(self, replica: HostedReplica) -> None:
        """Replace the damaged records of a follower with those of its leader.

        Only once this replica is out of the ISR: until then its log counts as complete. Never in a
        log directory that failed.
        """
        name, log = replica.topic_partition, replica.log
        damage = self.directory.damaged.get(name)
        if damage is None or replica.repair is not None or log.offline:
            return
        if not damage.inside or damage.offset >= log.log_end_offset:
            self.end_repair(replica)
            return
        log.log_start_offset = min(log.log_start_offset, damage.offset)
        offsets = {damage.offset, *self._further.pop(name, ())}
        disk = self.directory.disk_of(name)
        replica.repair = LogRepair(disk, log, sorted(offsets), self._turn.now_ms)
        self.repairing[replica] = None
        self.step(replica, on.RepairNeeded(damage.offset, damage.offset))

    def end_repair(self, replica: HostedReplica) -> None:
        """Fetch from the log end again: no damage of this log is known any more."""
        self.drop_repair(replica)
        self.directory.damaged.pop(replica.topic_partition, None)
        self._further.pop(replica.topic_partition, None)
        self.step(replica, on.RepairEnded())
        self.touched[replica] = None
        self.log_changed(replica)

    def _delete_damage(self, replica: HostedReplica, damage: Damage, start: Offset) -> None:
        """Forget damage before the new log start, whose records are deleted, except in a segment
        that also has later records: a reader may have to get past the damage."""
        name, log = replica.topic_partition, replica.log
        offsets = {damage.offset} if damage.inside else set()
        offsets.update(self._further.get(name, ()))
        if replica.repair is not None:
            offsets.update(replica.repair.damaged)
        self.end_repair(replica)
        first, end = log.segments.first.base_offset, log.log_end_offset
        for offset in sorted({max(offset, start) for offset in offsets if offset >= first}):
            if offset < end:
                self.damage_found(name, damage._replace(offset=offset))

    def drop_repair(self, replica: HostedReplica) -> None:
        """Discard an unfinished repair; the next one repairs the same offsets."""
        repair, replica.repair = replica.repair, None
        if repair is not None:
            name = replica.topic_partition
            self.repairing.pop(replica, None)
            self._further.setdefault(name, set()).update(repair.damaged)
            try:
                repair.discard()
            except DiskError as error:
                if not self.directory.failed(error, name):
                    raise

    def _replace_records(self, replica: HostedReplica, effect: do.ReplaceRecords) -> None:
        repair = replica.repair
        if repair is None or repair.needed is None or not repair.is_current:
            return  # upkeep/repairs.py begins again
        batches: Any = effect.batches
        replica.traffic.replication_bytes_in += sum(batch.size for batch in batches)
        try:
            repair.supply(batches, effect.upto)
        except (CannotRepair, DiskError):
            self.repair_failed(replica)
            return
        self.step(replica, repair_event(repair))

    def _abandon_repair(self, replica: HostedReplica, _effect: do.AbandonRepair) -> None:
        self.repair_failed(replica)

    def repair_failed(self, replica: HostedReplica) -> None:
        """Truncate the log at the damage, and copy everything after that from the leader.

        The leader lacks the damaged records or has different ones, or the disk has no space for a
        copy of the segment.
        """
        end, start = replica.partition.log_end_offset, replica.log.log_start_offset
        damage = self.directory.damaged.get(replica.topic_partition)
        if damage is None or damage.offset >= end:
            self.end_repair(replica)
            return
        self.drop_repair(replica)
        del self.directory.damaged[replica.topic_partition]
        self._further.pop(replica.topic_partition, None)
        mark = replica.partition.high_watermark
        for effect in replica.partition.step(on.DamageFound(damage.offset)):
            if isinstance(effect, do.TruncateTo):
                self._record_and_cut(replica, DAMAGE, start, effect, mark)
            else:
                self._carry_out[type(effect)](replica, effect)
        self.log_changed(replica)
        kept = replica.log.log_end_offset
        self.losses.note(self._loss(replica, max(start, kept), end, kept, None))
        self._turn.journal.note("damage_truncated", *replica.topic_partition, kept, end)

    def _lower_log_start(self, replica: HostedReplica, offset: Offset) -> None:
        if offset < replica.log.log_start_offset:
            self.directory.write_log_starts(leaving_out=replica.topic_partition)

    def _lose(
        self,
        replica: HostedReplica,
        start: Offset,
        effect: do.TruncateTo | do.RestartAt,
        restarted_at: Offset | None,
    ) -> None:
        loss = self._loss(
            replica, start, effect.log_end_offset, effect.high_watermark, restarted_at
        )
        self.losses.note(loss)
        note_loss(self._turn, replica, loss)

    def _loss(
        self,
        replica: HostedReplica,
        start: Offset,
        end: Offset,
        high_watermark: Offset,
        restarted_at: Offset | None,
    ) -> Loss:
        return Loss(
            replica.topic_partition,
            replica.topic_id,
            replica.partition.leader_epoch,
            start,
            end,
            high_watermark,
            self._turn.wall_ms,
            restarted_at,
        )

    def _drop_before(self, replica: HostedReplica, effect: do.DropBefore) -> None:
        self.write_epochs()
        dropped = replica.log.drop_before(effect.offset, self._turn.now_ms)
        damage = self.directory.damaged.get(replica.topic_partition)
        if damage is not None and damage.offset < effect.offset:
            self._delete_damage(replica, damage, effect.offset)
        note_dropped(self._turn, replica, dropped, self._reasons)
        self.touched[replica] = None
        self.log_changed(replica)
        self._advance_low_watermark(replica)

    def _write_epochs(self, replica: HostedReplica, effect: do.WriteEpochs) -> None:
        if effect.before_append:
            replica.log.epochs_deferred = True
        else:
            self._unwritten[replica] = None

    def write_epochs(self) -> None:
        """Write the leader epochs that changed in this step, with one sync: before a record of a
        new epoch is appended, and before the effects of the step are carried out."""
        if not self._unwritten and self.relied_on is None:
            return
        unwritten, self._unwritten = self._unwritten, {}
        seen, self.relied_on = self.relied_on, None
        logs = [r.log for r in unwritten if self.hosted.get(r.topic_partition) is r]
        if len(logs) == 1 and seen is None:
            try:
                logs[0].write_epochs()
            except (DiskError, LogOffline) as error:
                if not self.directory.failed(error):
                    raise
        elif logs or seen is not None:
            self.directory.write_epochs(logs, seen)

    @property
    def unwritten(self) -> bool:
        """Whether something must be written to disk before the effects of this step are carried
        out."""
        return self.truncated or bool(self._unwritten) or self.relied_on is not None

    # -- responses -------------------------------------------------------------------------

    def _answer_produce(self, replica: HostedReplica, effect: do.AnswerProduce) -> None:
        part: Any = effect.request
        _settle_produce(replica, part, effect.error, effect.base_offset)

    def _duplicate_found(self, _replica: HostedReplica, effect: do.DuplicateFound) -> None:
        part: Any = effect.request
        part.append_time_ms = effect.timestamp

    def _await_commit(self, replica: HostedReplica, effect: do.AwaitCommit) -> None:
        part: Any = effect.request
        part.offset = effect.offset
        part.base_offset = effect.base_offset
        if effect.offset <= replica.partition.high_watermark:
            # A retry of a committed batch: no later advance would settle it.
            _settle_produce(replica, part, replica.partition.commit_error(), part.base_offset)
        else:
            replica.commits.add(part)

    def _await_flush(self, replica: HostedReplica, effect: do.AwaitFlush) -> None:
        part: Any = effect.request
        part.offset = effect.offset
        part.base_offset = effect.base_offset
        replica.flushes.add(part)

    def _deliver_answer(
        self,
        _replica: HostedReplica,
        effect: do.AnswerFetch | do.AnswerEpochEnd | do.AnswerOffsets,
    ) -> None:
        asker: Any = effect.request
        asker.answer = effect

    def _answer_delete_records(
        self, replica: HostedReplica, effect: do.AnswerDeleteRecords
    ) -> None:
        _settle_deletion(replica, effect.request, effect.error, None)

    def _await_low_watermark(self, replica: HostedReplica, effect: do.AwaitLowWatermark) -> None:
        part: Any = effect.request
        part.offset = effect.offset
        replica.deletions.add(part)
        self._advance_low_watermark(replica)

    # -- waiting requests ------------------------------------------------------------------

    def _advance_high_watermark(
        self, replica: HostedReplica, effect: do.AdvanceHighWatermark
    ) -> None:
        self.touched[replica] = None
        producers = replica.log.producers
        if producers.ended:
            producers.forget_ended(effect.offset)
        for part in replica.commits.reached(effect.offset):
            _settle_produce(replica, part, replica.partition.commit_error(), part.base_offset)

    def _advance_flushed(self, replica: HostedReplica, effect: do.AdvanceFlushed) -> None:
        for part in replica.flushes.reached(effect.offset):
            _settle_produce(replica, part, ErrorCode.NONE, part.base_offset)

    def _advance_low_watermark(
        self, replica: HostedReplica, _effect: do.AdvanceLowWatermark | None = None
    ) -> None:
        if replica.deletions:
            low = replica.partition.low_watermark
            for part in replica.deletions.reached(low):
                _settle_deletion(replica, part, ErrorCode.NONE, low)

    def fail_waiters(self, replica: HostedReplica, error: ErrorCode) -> None:
        """Fail all requests that wait at a replica."""
        for part in replica.commits.clear() + replica.flushes.clear():
            _settle_produce(replica, part, error, None)
        for part in replica.deletions.clear():
            _settle_deletion(replica, part, error, None)
        self.deposed[replica] = error
        self.leadership_changed[replica] = None

    def _fail_waiters(self, replica: HostedReplica, effect: do.FailWaiters) -> None:
        self.fail_waiters(replica, effect.error)

    # -- the cluster -----------------------------------------------------------------------

    def _propose_isr(self, replica: HostedReplica, effect: do.ProposeIsr) -> None:
        self.isr_changes[replica.topic_partition] = IsrChange(replica, effect)

    def _follow_leader(self, replica: HostedReplica, effect: do.FollowLeader) -> None:
        _stop_leading(replica)
        self.refused.pop(replica.topic_partition, None)
        self._followed.follow(replica, effect.leader)

    def _take_leadership(self, replica: HostedReplica, effect: do.TakeLeadership) -> None:
        replica.led_epoch, replica.led_high_watermark = effect.leader_epoch, -1
        replica.log.producers.verifications.clear()
        replica.acks_seen = replica.acks_notes = 0
        self.refused.pop(replica.topic_partition, None)
        self._followed.stop(replica)
        self.newly_led[replica] = None

    def _stop_following(self, replica: HostedReplica, _effect: do.StopFollowing) -> None:
        _stop_leading(replica)
        self.refused.pop(replica.topic_partition, None)
        self._followed.stop(replica)

    def _refuse_truncation(self, replica: HostedReplica, effect: do.RefuseTruncation) -> None:
        self.refused[replica.topic_partition] = effect
        note_refusal(self._turn, replica, effect)


def _stop_leading(replica: HostedReplica) -> None:
    """Note the high watermark at the end of the epoch that this replica led."""
    if replica.led_high_watermark < 0 <= replica.led_epoch:
        replica.led_high_watermark = replica.partition.high_watermark


def repair_event(repair: LogRepair) -> on.RepairNeeded:
    """The range to fetch next for a repair; empty while local records are copied."""
    start, end = repair.needed or (repair.offset, repair.offset)
    return on.RepairNeeded(start, end)


def _settle_produce(
    replica: HostedReplica, part: Any, error: ErrorCode, base_offset: Offset | None
) -> None:
    pending = part.pending
    if pending.done:
        return  # the preset error was already sent
    answer: ProducePartitionResponse = pending.answers[part.index]
    answer.error = error
    answer.base_offset = base_offset
    answer.log_append_time_ms = part.append_time_ms
    answer.log_start_offset = replica.partition.log_start_offset
    pending.settle(part.index, answer)


def _settle_deletion(
    replica: HostedReplica, part: Any, error: ErrorCode, low_watermark: Offset | None
) -> None:
    answer = DeleteRecordsPartitionResponse(replica.topic_partition, error, low_watermark)
    part.pending.settle(part.index, answer)
