"""Write each loss of records to the loss ledger, before it happens.

A loss is an entry in the event format of histories (core/history.py): a replica is about to remove
records (`loss`), or a leader was elected that may lack committed records (`unclean_election`).
`id` is the same if an entry is written twice, such as before and after a crash, or by the leader
and by the controller that elected it.

An entry has numbers only where this broker knows them: null is "unknown". It knows what was
acknowledged only if it led the epochs of the removed records (core/lineage/acks_history.py).
"""

from collections.abc import Sequence
from typing import Any

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import PartitionKey, UncleanElection
from tidelog.core.lineage.acks_history import (
    EXACT_MAX,
    KEPT_MAX,
    Acknowledged,
    AcksNote,
    count_acknowledged,
    format_notes,
    level,
    parse_notes,
)
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import LossCount
from tidelog.core.node.turn import Turn
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError, read_file
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.storage.log_directories import BrokerLogs
from tidelog.core.types import BrokerId, EpochEntry, Offset, TopicPartition

LEADER_CHANGE = "leader_change"
UNCLEAN_ELECTION = "unclean_election"
LEADER_DELETED = "leader_deleted"
DAMAGE = "damage"
LOG_LOST = "log_lost"
REPLICA_REMOVED = "replica_removed"
CAUSES = (LEADER_CHANGE, UNCLEAN_ELECTION, LEADER_DELETED, DAMAGE, LOG_LOST, REPLICA_REMOVED)
"""Why a replica removes records: the leader of a new epoch lacks them; such a leader was elected
uncleanly; the leader deleted them because of their age; they are damaged; their folder is missing;
a reassignment removed a replica with records that it had acknowledged with acks=1 alone."""

_WHY = {
    LEADER_CHANGE: "which the leader of epoch {leader_epoch} does not have",
    UNCLEAN_ELECTION: "which an unclean election gave up",
    LEADER_DELETED: "which the leader has deleted",
    DAMAGE: "because of damage; the leader may still have them",
    REPLICA_REMOVED: "with the replica; another one may have them",
}


class LossRecorder:
    """Writes the entries of one broker."""

    def __init__(
        self, turn: Turn, image: ClusterImage, directory: BrokerLogs, me: BrokerId, boot: str
    ) -> None:
        self._turn = turn
        self._image = image
        self._directory = directory
        self._me = me
        self._boot = boot

    # -- acks ------------------------------------------------------------------------------

    def note_acks(self, replica: HostedReplica, acks: int) -> None:
        """Note that the leader's next record has another level of acks than those before it.

        If the note can't be written, the next record retries it.
        """
        partition, levels = replica.partition, level(acks)
        if replica.acks_notes > EXACT_MAX:
            levels |= replica.acks_seen
        note = AcksNote(partition.leader_epoch, partition.log_end_offset, levels, self._boot)
        disk = self._directory.disk_of(replica.topic_partition)
        try:
            kept = self._notes(replica, disk)[1 - KEPT_MAX :]
            disk.write(_acks_path(replica), format_notes([*kept, note]))
        except DiskError:
            return
        replica.acks_seen = levels
        replica.acks_notes += 1

    def _notes(self, replica: HostedReplica, disk: Disk) -> list[AcksNote]:
        return parse_notes(read_file(disk, _acks_path(replica)) or b"")

    # -- losses ----------------------------------------------------------------------------

    def removing(
        self,
        replica: HostedReplica,
        cause: str,
        start: Offset,
        end: Offset,
        high_watermark: Offset,
        epochs: Sequence[EpochEntry],
    ) -> None:
        """Write that a replica is about to remove the records from `start` to `end`. Raises
        DiskError: then they must not be removed."""
        if start < end:
            acked = self._acknowledged(replica, start, end, high_watermark, epochs)
            self._removing(replica, cause, start, end, high_watermark, epochs, acked)

    def removed(self, replica: HostedReplica) -> None:
        """Write that a reassignment removes a replica, if it has records above its high watermark
        that it acknowledged with acks=1."""
        partition, mark = replica.partition, replica.partition.high_watermark
        epochs, end = partition.epochs.entries_from(mark), partition.log_end_offset
        if partition.offline or mark >= end:
            return
        acked = self._acknowledged(replica, mark, end, mark, epochs)
        if acked.by_leader:
            try:
                self._removing(replica, REPLICA_REMOVED, mark, end, mark, epochs, acked)
            except DiskError as error:
                if not self._directory.failed(error, replica.topic_partition):
                    raise

    def _acknowledged(
        self,
        replica: HostedReplica,
        start: Offset,
        end: Offset,
        high_watermark: Offset,
        epochs: Sequence[EpochEntry],
    ) -> Acknowledged:
        try:
            notes = self._notes(replica, self._directory.disk_of(replica.topic_partition))
        except DiskError:
            notes = []
        return count_acknowledged(
            epochs,
            start,
            end,
            notes,
            boot=self._boot,
            high_watermark=high_watermark,
            led_epoch=replica.led_epoch,
            led_high_watermark=replica.led_high_watermark,
            flushed_first=replica.partition.config.flush_before_ack,
        )

    def _removing(
        self,
        replica: HostedReplica,
        cause: str,
        start: Offset,
        end: Offset,
        high_watermark: Offset,
        epochs: Sequence[EpochEntry],
        acked: Acknowledged,
    ) -> None:
        partition, name = replica.partition, replica.topic_partition
        committed = max(0, min(end, high_watermark) - start)
        count = self._count(cause)
        count.removed += end - start
        count.committed += committed
        count.acknowledged += acked.by_leader + acked.by_all
        epoch = partition.leader_epoch
        fields = {
            "id": f"{_name(replica.topic_id, name)}/{self._me}/{epoch}/{start}-{end}",
            **_place(name, replica.topic_id),
            "cause": cause,
            "leader": partition.leader,
            "leader_epoch": epoch,
            "first_epoch": epochs[0].epoch if epochs else None,
            "last_epoch": epochs[-1].epoch if epochs else None,
            "start": start,
            "end": end,
            "records": end - start,
            "high_watermark": high_watermark,
            "committed": committed,
            "acked_1": acked.by_leader,
            "acked_all": acked.by_all,
            "not_acked": acked.not_acknowledged,
            "acks_unknown": acked.unknown,
            "acks": list(acked.levels),
        }
        why = _WHY[cause].format(leader_epoch=epoch)
        text = f"{name}: removed offsets {start} to {end} (exclusive), {why}; {committed} of them"
        text += f" were committed, {acked.by_leader} acknowledged with acks=1"
        text += f" and {acked.by_all} with acks=all"
        if acked.unknown:
            text += f"; of {acked.unknown} it is unknown"
        serious = committed or acked.by_leader or acked.by_all or cause == UNCLEAN_ELECTION
        self._write(name, "loss", fields, text, serious=bool(serious))

    def log_lost(self, name: TopicPartition, key: PartitionKey) -> None:
        """Write that the folder of a replica is missing, and with it all its records."""
        self._count(LOG_LOST)
        known = self._image.partitions[key]
        mark = self._directory.missing_high_watermark(name)
        fields = {
            "id": f"{_name(key.topic_id, name)}/{self._me}/{known.leader_epoch}/log",
            **_place(name, key.topic_id),
            "cause": LOG_LOST,
            "leader": known.leader,
            "leader_epoch": known.leader_epoch,
            "first_epoch": None,
            "last_epoch": None,
            "start": None,
            "end": None,
            "records": None,
            "high_watermark": mark,
            "committed": None,
            "acked_1": None,
            "acked_all": None,
            "not_acked": None,
            "acks_unknown": None,
            "acks": [],
        }
        upto = "an unknown offset" if mark is None else f"offset {mark}"
        text = f"{name}: its folder is missing; the replica knew committed records up to {upto}"
        self._write(name, "loss", fields, text, serious=True)

    # -- unclean elections -----------------------------------------------------------------

    def registered(self, replica: HostedReplica, made: UncleanElection) -> None:
        """Write an unclean election since which this log has no records, before the replica learns
        of it: before its leader serves, and before a follower truncates.

        Followers write it too: the elected leader and the controller may both have died before.
        """
        partition, epoch = replica.partition, made.leader_epoch
        latest = partition.epochs.latest
        if epoch <= max(replica.unclean_recorded, -1 if latest is None else latest):
            return
        name = replica.topic_partition
        # Nothing was written since by this leader.
        start = partition.log_end_offset if made.leader == self._me else None
        try:
            self._elected(name, replica.topic_id, start, made)
        except DiskError as error:
            if not self._directory.failed(error, name):
                raise
        replica.unclean_recorded = epoch

    def elected_uncleanly(self, key: PartitionKey, made: UncleanElection) -> None:
        """Write an unclean election that this broker's controller made. Raises DiskError."""
        name = self._image.name_of(key)
        if name is not None:
            self._elected(name, key.topic_id, None, made)

    def _elected(
        self,
        name: TopicPartition,
        topic_id: bytes,
        start: Offset | None,
        made: UncleanElection,
    ) -> None:
        """`start` is the offset from which records may be lost; only the elected leader knows
        it."""
        leader, epoch = made.leader, made.leader_epoch
        fields = {
            "id": f"{_name(topic_id, name)}/unclean/{epoch}",
            **_place(name, topic_id),
            "cause": UNCLEAN_ELECTION,
            "leader": leader,
            "leader_epoch": epoch,
            "start": start,
            "end": None,
            "old_leader": made.old_leader,
            "old_isr": made.old_isr,
            "old_elr": made.old_elr,
            "recovered": made.recovered,
        }
        since = "" if start is None else f" from offset {start} on"
        text = f"{name}: broker {leader} was elected uncleanly in leader epoch {epoch}; committed"
        text += f" records{since} may be lost"
        self._write(name, "unclean_election", fields, text, serious=True)

    def _count(self, cause: str) -> LossCount:
        count = self._turn.counters.losses.setdefault(cause, LossCount())
        count.losses += 1
        return count

    def _write(
        self, name: TopicPartition, event: str, fields: dict[str, Any], text: str, *, serious: bool
    ) -> None:
        import json

        from tidelog.core.history import HistoryEvent

        made = HistoryEvent(
            self._turn.wall_ms,
            self._me,
            event,
            fields,
            "WARN" if serious else "INFO",
            f"broker {self._me}: {text}",
        )
        self._directory.record_loss(name, json.dumps(made.as_data()).encode())
        self._turn.counters.losses_recorded += 1


def _acks_path(replica: HostedReplica) -> str:
    return f"{replica.log.directory}/{layout.ACKS_HISTORY}"


def _place(name: TopicPartition, topic_id: bytes) -> dict[str, Any]:
    return {**name._asdict(), "topic_id": format_topic_id(topic_id)}


def _name(topic_id: bytes, name: TopicPartition) -> str:
    return f"{format_topic_id(topic_id)}-{name.partition}"
