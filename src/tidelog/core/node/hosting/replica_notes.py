"""Count and log changes of leadership and ISR, and truncations and deletions in logs.

ISR changes are counted by the leader, truncations by the broker that truncates. No decision depends
on them.
"""

from collections.abc import Mapping, Sequence

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import Loss
from tidelog.core.node.turn import Turn
from tidelog.core.replication.effects import RefuseTruncation
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset


def note_loss(turn: Turn, replica: HostedReplica, loss: Loss) -> None:
    """Count and log records that a replica dropped because its leader does not have them."""
    dropped = loss.end - loss.start
    if dropped <= 0:
        return
    lost = dropped if given_up(replica) else loss.committed
    turn.counters.dropped(loss.topic_partition, dropped, lost)
    fields = (*loss.topic_partition, loss.leader_epoch, loss.start, loss.end)
    if lost:
        turn.journal.note("records_lost", *fields, lost)
    else:
        turn.journal.note("truncated", *fields)


def note_refusal(turn: Turn, replica: HostedReplica, refused: RefuseTruncation) -> None:
    """Count and log that a replica keeps committed records that its leader lacks."""
    turn.counters.truncations_refused += 1
    fields = (refused.leader, refused.leader_epoch, refused.offset, refused.high_watermark)
    turn.journal.note("truncation_refused", *replica.topic_partition, *fields)


def note_dropped(
    turn: Turn,
    replica: HostedReplica,
    dropped: Sequence[Segment],
    reasons: Mapping[Offset, str],
) -> None:
    """Log the segments that were deleted below the log start. Retention gives a reason for each. If
    the leader or DeleteRecords moved the log start, the new log start is the reason."""
    log = replica.log
    moved = f"the log starts at {log.log_start_offset} now"
    ends = [segment.base_offset for segment in (*dropped[1:], log.segments.first)]
    for segment, end in zip(dropped, ends, strict=False):
        reason = reasons.get(segment.base_offset, moved)
        name = segment.path.rpartition("/")[2]
        about = (*replica.topic_partition, name, segment.base_offset, end, segment.size)
        turn.journal.note("segment_deleted", *about, reason)


def given_up(replica: HostedReplica) -> bool:
    """Whether the records that a follower drops were lost by an unclean election.

    After a kill this replica's own high watermark is too old to show what was committed; but that
    election discarded every earlier record that the leader lacks.
    """
    partition = replica.partition
    latest, since = partition.epochs.latest, partition.unclean_epoch
    return since >= 0 and partition.leader_epoch >= since and (latest is None or latest < since)


def note_standing(
    turn: Turn, replica: HostedReplica, known: PartitionRegistration, led: bool, epoch: int
) -> None:
    """Log a change of leadership or ISR that was just applied. `led` and `epoch` are the state
    before."""
    before, replica.isr = replica.isr, known.isr
    partition, name = replica.partition, replica.topic_partition
    if partition.is_leader:
        if not led or partition.leader_epoch != epoch:
            start = partition.epoch_start_offset
            turn.journal.note("leadership_gained", *name, partition.leader_epoch, start, known.isr)
        if before:
            _note_isr(turn, replica, before, known.isr)
    elif led:
        turn.journal.note("leadership_lost", *name, partition.leader_epoch, known.leader)


def _note_isr(
    turn: Turn, replica: HostedReplica, before: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    name, epoch = replica.topic_partition, replica.partition.leader_epoch
    left = tuple(broker for broker in before if broker not in isr)
    joined = tuple(broker for broker in isr if broker not in before)
    if left:
        turn.counters.isr_shrinks += 1
        turn.journal.note("isr_shrunk", *name, epoch, isr, left)
    if joined:
        turn.counters.isr_expands += 1
        turn.journal.note("isr_expanded", *name, epoch, isr, joined)
