"""The leader: produce requests, follower fetches, the ISR and the high watermark.

Each function changes the replica's state and returns effects in order.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.producer_state import Duplicate
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.fencing import (
    is_stale_incarnation,
    leader_epoch_error,
    leadership_error,
)
from tidelog.core.replication.high_watermark import leader_high_watermark
from tidelog.core.replication.isr import Committed, Isr, PendingExpand, PendingShrink, may_join
from tidelog.core.replication.log_end_offset import FollowerProgress, unknown_follower
from tidelog.core.replication.reading import check_position, failed_fetch
from tidelog.core.replication.replica import Following, Replica
from tidelog.core.types import BrokerId, Offset

_NONE = ErrorCode.NONE
"""A lookup in an enumeration takes as long as a call, and every step needs this one."""
_ACKS = (on.ACKS_ALL, on.ACKS_LEADER, on.ACKS_NONE)

_ROLL_BACK = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller certainly did not apply the proposal: the last committed ISR is valid."""

_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The metadata is newer than this leader's: the change stays pending until it arrives."""


def become_leader(replica: Replica, event: on.PartitionChanged) -> list[do.Effect]:
    """Start to lead in a new epoch.

    The high watermark stays the last one that this replica received; records above it must be
    confirmed by fetches in this epoch. The epoch is cached before the first write (KAFKA-7415), so
    that followers can request its end.
    """
    start = replica.log_end_offset
    replica.epoch_start_offset = start
    replica.following = Following.NOTHING
    replica.retry_at_ms = None
    replica.refused_leader = None
    replica.isr = Committed(frozenset(event.isr))
    replica.followers = {
        broker: unknown_follower(in_sync=broker in event.isr, now_ms=event.now_ms)
        for broker in event.replicas
        if broker != replica.local
    }
    effects: list[do.Effect] = []
    if replica.epochs.assign(event.leader_epoch, start):
        # A restart removes an epoch without records, so it needs no file; but a log whose records
        # are all deleted keeps its last epoch (storage/recovery.py).
        emptied = 0 < replica.log_start_offset == start
        effects.append(do.WriteEpochs(before_append=not emptied))
    effects.append(do.TakeLeadership(event.leader_epoch, start, tuple(event.isr), event.recovering))
    advance(replica, event.now_ms, effects)
    return effects


def update_leadership(replica: Replica, event: on.PartitionChanged) -> list[do.Effect]:
    """Apply a newer ISR or assignment within the same leader epoch."""
    replica.isr = Committed(frozenset(event.isr))
    replica.followers = {
        broker: replica.followers.get(broker)
        or unknown_follower(in_sync=broker in event.isr, now_ms=event.now_ms)
        for broker in event.replicas
        if broker != replica.local
    }
    effects: list[do.Effect] = [do.AdvanceLowWatermark()]
    advance(replica, event.now_ms, effects)
    return effects


def produce(replica: Replica, event: on.ProduceReceived) -> list[do.Effect]:
    """Append a client's batch and respond as `acks` requires."""
    if not event.admitted:
        error = append_error(replica, event.acks)
        if error is not _NONE:
            return [do.AnswerProduce(event.request, error, None)]
    batch = event.batch
    if batch.producer_id >= 0 and replica.producers is not None:
        assert isinstance(batch, RecordBatch), "only real batches have producers"
        verdict = replica.producers.validate(batch)
        if isinstance(verdict, Duplicate):
            end = verdict.last_offset + 1
            found = do.DuplicateFound(event.request, verdict.timestamp)
            return [found, *_acknowledge(replica, event, verdict.base_offset, end)]
        if verdict is not _NONE:
            return [do.AnswerProduce(event.request, verdict, None)]
    base = replica.log_end_offset
    batch.assign(base, replica.leader_epoch)
    replica.log_end_offset = end = batch.last_offset + 1
    effects: list[do.Effect] = [do.AppendRecords((batch,))]
    effects += _acknowledge(replica, event, base, end)
    advance(replica, event.now_ms, effects)
    return effects


def append_error(replica: Replica, acks: int) -> ErrorCode:
    """Return why no batch can be appended, checked in Kafka's order; NONE if one can."""
    if acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if replica.leader != replica.local or replica.offline:
        return leadership_error(replica)
    if acks == on.ACKS_ALL and replica.is_below_min_isr(len(replica.isr.members)):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _NONE


def _acknowledge(
    replica: Replica, event: on.ProduceReceived, base: Offset, end: Offset
) -> list[do.Effect]:
    if event.acks == on.ACKS_ALL:
        return [do.AwaitCommit(event.request, end, base)]
    if event.acks == on.ACKS_LEADER:
        if end > replica.durable_end_offset:
            return [do.AwaitFlush(event.request, end, base)]
        return [do.AnswerProduce(event.request, _NONE, base)]
    return []


def follower_fetch(replica: Replica, event: on.FollowerFetchReceived) -> list[do.Effect]:
    """Respond to a follower's fetch, and record its progress.

    A fetch that fails or diverges is not progress: its offset does not show which records the two
    logs share (KAFKA-13141).
    """
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = leadership_error(replica)
    follower = replica.followers.get(event.replica)
    if error is _NONE and follower is None:
        # A follower that knows our epoch and is not assigned here has newer metadata.
        error = (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
            if event.leader_epoch is None
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    if error is not _NONE or follower is None:
        return [failed_fetch(replica, event.request, event.offset, error)]
    registered = replica.brokers.get(event.replica)  # None while the broker is fenced
    if is_stale_incarnation(registered, event.broker_epoch) or is_stale_incarnation(
        follower.broker_epoch, event.broker_epoch
    ):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return [failed_fetch(replica, event.request, event.offset, error)]
    error, diverging = check_position(replica, event.offset, event.last_fetched_epoch)
    if error is not _NONE:
        return [failed_fetch(replica, event.request, event.offset, error)]
    effects: list[do.Effect] = []
    if diverging is None and event.log_start_offset != on.NO_PROGRESS:
        _note_progress(replica, follower, event, effects)
    effects.append(
        do.AnswerFetch(
            event.request,
            _NONE,
            event.offset,
            event.offset if diverging else replica.log_end_offset,
            replica.high_watermark,
            replica.last_stable_offset,
            replica.log_start_offset,
            diverging,
        )
    )
    return effects


def _note_progress(
    replica: Replica,
    follower: FollowerProgress,
    event: on.FollowerFetchReceived,
    effects: list[do.Effect],
) -> None:
    moved = follower.log_end_offset != event.offset
    follower.fetched(
        event.offset, leader_log_end_offset=replica.log_end_offset, now_ms=event.now_ms
    )
    follower.broker_epoch = event.broker_epoch
    if follower.log_start_offset != event.log_start_offset:
        follower.log_start_offset = event.log_start_offset
        effects.append(do.AdvanceLowWatermark())
    if event.replica not in replica.isr.members and not _may_differ_before_start(replica, event):
        _maybe_expand(replica, event.replica, follower, effects)
    if moved:
        advance(replica, event.now_ms, effects)


def _may_differ_before_start(replica: Replica, event: on.FollowerFetchReceived) -> bool:
    """Whether the follower may have other records than this log had before its start.

    If the leader epoch of the follower's last record is older than the first one here, the logs
    can't be compared: this log's older epochs were deleted with their records. The follower deletes
    its records before this log start with the next response
    (scenarios/epochs/deleted-epochs-prove-nothing.txt).
    """
    earliest, last = replica.epochs.earliest, event.last_fetched_epoch
    return (
        event.log_start_offset < replica.log_start_offset
        and earliest is not None
        and last is not None
        and last < earliest
    )


def _maybe_expand(
    replica: Replica, broker: BrokerId, follower: FollowerProgress, effects: list[do.Effect]
) -> None:
    """Propose to add a follower that has all committed records and the leader's epoch start.

    Reaching the high watermark is not enough: a new leader's is outdated until records of its own
    epoch are committed (KAFKA-7128, scenarios/isr/rejoin-past-the-epoch-start.txt).
    """
    assert replica.epoch_start_offset is not None, "a leader knows where its epoch starts"
    assert follower.log_end_offset is not None, "it has just fetched"
    if not isinstance(replica.isr, Committed):
        return
    if follower.log_end_offset < max(replica.high_watermark, replica.epoch_start_offset):
        return
    if not may_join(broker, follower.broker_epoch, replica.brokers):
        return
    replica.isr = PendingExpand(replica.isr.members, broker, replica.partition_epoch)
    effects.append(propose(replica, replica.isr))


def may_rejoin(replica: Replica, broker: BrokerId) -> bool:
    """Whether the next fetch of a follower at the log end may propose to add it to the ISR."""
    follower = replica.followers.get(broker)
    return follower is None or (
        isinstance(replica.isr, Committed)
        and may_join(broker, follower.broker_epoch, replica.brokers)
    )


def expire_followers(replica: Replica, event: on.Ticked) -> list[do.Effect]:
    """Propose to remove followers that have not caught up for too long.

    One rule covers stuck and slow followers. Nothing is proposed while another change is pending.
    """
    if not replica.is_leader or not isinstance(replica.isr, Committed):
        return []
    lag_ms_max = replica.config.replica_lag_time_max_ms
    behind = frozenset(
        broker
        for broker in replica.isr.members
        if broker != replica.local
        and not replica.followers[broker].caught_up(
            leader_log_end_offset=replica.log_end_offset,
            now_ms=event.now_ms,
            lag_ms_max=lag_ms_max,
        )
    )
    effects: list[do.Effect] = []
    if behind:
        replica.isr = PendingShrink(replica.isr.members, behind, replica.partition_epoch)
        effects.append(propose(replica, replica.isr))
    # A follower outside the ISR that stopped being caught up no longer holds the HW back.
    advance(replica, event.now_ms, effects)
    return effects


def propose(replica: Replica, pending: PendingExpand | PendingShrink) -> do.ProposeIsr:
    """Return the proposal, which names each member with its broker epoch."""
    members = tuple(
        (
            broker,
            replica.brokers.get(broker)
            if broker == replica.local
            else replica.followers[broker].broker_epoch,
        )
        for broker in sorted(pending.proposed)
    )
    return do.ProposeIsr(members, replica.leader_epoch, replica.partition_epoch)


def isr_change_answered(replica: Replica, event: on.IsrChangeAnswered) -> list[do.Effect]:
    """Apply the controller's response, if it is to the pending proposal.

    A broker passes only errors here: it applies a success from the image, with PartitionChanged
    (node/membership/isr_proposals.py). The model checker delivers successes too: there the response
    may arrive before or after the change of the registration.
    """
    pending: Isr = replica.isr
    if isinstance(pending, Committed) or not replica.is_leader:
        return []
    if (event.proposed_at, event.proposed_isr) != (pending.proposed_at, pending.proposed):
        return []
    effects: list[do.Effect] = []
    if event.error is ErrorCode.NONE:
        current = event.leader_epoch == replica.leader_epoch
        if current and event.partition_epoch >= replica.partition_epoch:
            replica.isr = Committed(frozenset(event.isr))
            replica.partition_epoch = event.partition_epoch
            # The smaller or larger ISR may commit more at once (KAFKA-13091).
            advance(replica, event.now_ms, effects)
    elif event.error in _ROLL_BACK:
        replica.isr = Committed(pending.members)
        advance(replica, event.now_ms, effects)
    elif event.error not in _WAIT_FOR_METADATA:
        effects.append(propose(replica, pending))
    return effects


def advance(replica: Replica, now_ms: int, effects: list[do.Effect]) -> None:
    """Advance the high watermark if possible, with an effect."""
    durable_end = replica.durable_end_offset
    if durable_end <= replica.high_watermark:
        return  # it can't pass the leader's own log
    advanced = leader_high_watermark(
        replica.high_watermark,
        durable_end_offset=durable_end,
        log_end_offset=replica.log_end_offset,
        isr=replica.isr,
        followers=replica.followers,
        eligible=replica.brokers,
        min_isr=replica.min_isr,
        now_ms=now_ms,
        lag_ms_max=replica.config.replica_lag_time_max_ms,
    )
    if advanced > replica.high_watermark:
        assert advanced <= replica.log_end_offset, "only records in the log are committed"
        replica.high_watermark = advanced
        effects.append(do.AdvanceHighWatermark(advanced))


def delete_records(replica: Replica, event: on.DeleteRecordsRequested) -> list[do.Effect]:
    """Delete committed records at the start of the log for a client."""
    if not replica.is_leader:
        return [do.AnswerDeleteRecords(event.request, leadership_error(replica))]
    offset = replica.high_watermark if event.offset is None else event.offset
    if not 0 <= offset <= replica.high_watermark:
        return [do.AnswerDeleteRecords(event.request, ErrorCode.OFFSET_OUT_OF_RANGE)]
    effects: list[do.Effect] = []
    drop_before(replica, offset, effects)
    effects.append(do.AwaitLowWatermark(event.request, offset))
    return effects


def drop_before(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Advance the log start. Epochs come first: they prove where the log began (damage.py)."""
    if offset <= replica.log_start_offset:
        return
    assert offset <= replica.high_watermark, "only committed records may be deleted (KAFKA-5634)"
    replica.log_start_offset = offset
    if replica.epochs.drop_before(offset):
        effects.append(do.WriteEpochs())
    effects.append(do.DropBefore(offset))
