"""The follower: how it fetches, truncates, repairs its log, and handles errors.

A follower fetches from its leader, truncates the records that the leader does not have, and
appends the others. It ignores a response unless it would still send the same request: same
leader epoch, same offset. Late responses from an older epoch have deleted committed records in
Kafka (KAFKA-7786, KAFKA-18991).

A follower truncates no committed record. A leader that was elected cleanly has every record
below any replica's high watermark. If it lacks some, it has lost them: the follower keeps its
log, stops fetching and reports the leader (ADR 40).
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.high_watermark import follower_high_watermark
from tidelog.core.replication.isr import NO_ISR
from tidelog.core.replication.leader import drop_before
from tidelog.core.replication.replica import NO_EPOCH, Following, Repair, Replica
from tidelog.core.types import Offset

_NONE = ErrorCode.NONE
FIRST_RETRY_MS = 10
_DOUBLINGS_MAX = 16


def backoff_ms(failures: int, most_ms: int) -> int:
    """Return the wait before the next retry, after this many earlier failures in a row."""
    return min(FIRST_RETRY_MS << min(failures, _DOUBLINGS_MAX), most_ms)


def begin_following(replica: Replica, event: on.PartitionChanged) -> list[do.Effect]:
    """Follow the leader of a new leader epoch, or stop if there is none."""
    replica.isr = NO_ISR
    replica.followers = {}
    replica.epoch_start_offset = None
    replica.retry_at_ms = None
    replica.refusals = 0
    if replica.repair is not None:
        replica.repair = replica.repair._replace(leader_end=0)
    if event.leader is None:
        replica.following = Following.NOTHING
        return [do.StopFollowing()]
    if replica.refused_leader not in (None, event.leader):
        # If this leader lacks the records too, this replica's high watermark is wrong.
        replica.refused_leader, replica.high_watermark_uncertain = None, True
    effects: list[do.Effect] = []
    cut = replica.policy.cut_on_following(
        replica.epochs, replica.log_end_offset, replica.high_watermark
    )
    if cut < replica.log_end_offset:
        truncate(replica, cut, effects)
    asks = replica.policy.asks_first and replica.epochs.latest is not None
    replica.following = Following.ASKING_EPOCH if asks else Following.FETCHING
    effects.append(do.FollowLeader(event.leader, event.leader_epoch))
    return effects


def next_question(replica: Replica, now_ms: int) -> do.Question | None:
    """Return the next request to the leader, or None.

    With flush-before-ack the next fetch waits for the flush, because the leader counts its offset
    as this replica's log end.
    """
    if replica.retry_at_ms is not None and now_ms < replica.retry_at_ms:
        return None
    if replica.following is Following.NOTHING:
        return None
    if replica.following is Following.ASKING_EPOCH:
        assert replica.epochs.latest is not None, "the epoch in the request is in the cache"
        return do.EpochQuestion(replica.epochs.latest, replica.leader_epoch)
    if replica.following is Following.ASKING_OFFSETS:
        return do.OffsetsQuestion(replica.leader_epoch)
    if replica.repair is not None:
        return _repair_question(replica, replica.repair)
    if replica.durable_end_offset < replica.log_end_offset:
        return None
    return do.FetchPosition(
        replica.log_end_offset,
        replica.leader_epoch,
        replica.epochs.latest if replica.policy.fetches_with_epoch else None,
        replica.log_start_offset,
    )


def _repair_question(replica: Replica, repair: Repair) -> do.Question | None:
    """Return a fetch of damaged records; None if none are needed now. It carries the epoch of the
    record before them. It reports no progress: the fetched records are not in the log yet.

    At the leader's log end a fetch would wait for the next record, which `min.insync.replicas` may
    forbid to append without this replica. So the log end is requested first.
    """
    if repair.is_waiting:
        return None
    if repair.may_be_beyond_leader:
        return do.OffsetsQuestion(replica.leader_epoch)
    return do.FetchPosition(
        repair.start,
        replica.leader_epoch,
        replica.epochs.epoch_for_offset(repair.start - 1),
        on.NO_PROGRESS,
    )


def fetch_answered(replica: Replica, event: on.FetchAnswered) -> list[do.Effect]:
    """Handle a fetch response: records, a divergence, or an error."""
    if replica.following is not Following.FETCHING or event.leader_epoch != replica.leader_epoch:
        return []
    if replica.repair is not None:
        return _repair_answered(replica, replica.repair, event)
    if event.offset != replica.log_end_offset:
        return []
    if event.error is not _NONE:
        if event.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            replica.following = Following.ASKING_OFFSETS
            return []
        return _refused(replica, event.error, event.now_ms)
    replica.retry_at_ms = None
    replica.refusals = 0
    effects: list[do.Effect] = []
    if event.diverging is not None:
        # Ignore the high watermark in this response: the logs still differ (KAFKA-14704).
        cut = replica.policy.cut_on_answer(
            event.diverging, replica.epochs, replica.log_end_offset, replica.high_watermark
        )
        _truncate_unless_committed(replica, cut.offset, effects)
        return effects
    if event.batches and _ends_inside(replica, event):
        _truncate_unless_committed(replica, event.batches[0].base_offset, effects)
        return effects
    if event.batches and not _append(replica, event, effects):
        replica.retry_at_ms = event.now_ms + replica.config.replica_fetch_backoff_ms
        return effects
    before = replica.high_watermark
    replica.high_watermark_uncertain, replica.refused_leader = False, None
    replica.high_watermark = follower_high_watermark(
        event.high_watermark,
        log_start_offset=replica.log_start_offset,
        log_end_offset=replica.log_end_offset,
    )
    if replica.high_watermark > before:
        effects.append(do.AdvanceHighWatermark(replica.high_watermark))
    drop_before(replica, min(event.log_start_offset, replica.high_watermark), effects)
    return effects


def _has_nothing_of(replica: Replica, event: on.FetchAnswered) -> bool:
    """Whether this replica has none of the records that the leader still has."""
    end = replica.log_end_offset
    return end == replica.log_start_offset or end <= event.log_start_offset


def _ends_inside(replica: Replica, event: on.FetchAnswered) -> bool:
    """Whether this log ends inside a batch of the leader. Only damage causes that: the header of
    the last batch was wrong, and the batch must be fetched again."""
    first = event.batches[0]
    if first.leader_epoch > event.leader_epoch or _has_nothing_of(replica, event):
        return False
    if not replica.policy.fetches_with_epoch:
        return False  # scenarios/truncation/offsets-do-not-go-backwards.txt
    return first.base_offset < replica.log_end_offset <= first.last_offset


def _append(replica: Replica, event: on.FetchAnswered, effects: list[do.Effect]) -> bool:
    """Append the batches that continue this log; return False if none does.

    Batches of a newer epoch than the request's come from a former leader that truncated its log
    while it sent the response: they and all later ones are ignored (KAFKA-18723).
    """
    end = replica.log_end_offset
    first = event.batches[0]
    if first.leader_epoch > event.leader_epoch:
        return False
    if _has_nothing_of(replica, event) and first.base_offset < end <= first.last_offset:
        # The leader's log starts inside its first batch, and this replica has no record that
        # the leader has: its log is empty (KAFKA-6975), or was truncated to that offset.
        _restart(replica, first.base_offset, effects)
        end = first.base_offset
    taken: list[on.Batch] = []
    new_epoch = False
    for batch in event.batches:
        if batch.leader_epoch > event.leader_epoch:
            break
        if batch.base_offset < end or batch.last_offset < batch.base_offset:
            break
        if batch.leader_epoch != replica.epochs.latest:
            new_epoch |= replica.epochs.assign(batch.leader_epoch, batch.base_offset)
        taken.append(batch)
        end = batch.last_offset + 1
    if new_epoch:
        effects.append(do.WriteEpochs())
    if taken:
        replica.log_end_offset = end
        effects.append(do.AppendRecords(taken))
    return bool(taken)


def _repair_answered(replica: Replica, repair: Repair, event: on.FetchAnswered) -> list[do.Effect]:
    """Replace damaged records with the leader's, if these are the same records.

    Records with the same offset and leader epoch are the same: a leader writes each offset once.
    If the logs diverge before the damage, the usual truncation rules apply.
    """
    if event.offset != repair.start or repair.is_waiting:
        return []
    effects: list[do.Effect] = []
    if event.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        if not repair.end <= event.log_start_offset <= replica.high_watermark:
            return [do.AbandonRepair()]
        # The leader has deleted these records.
        replica.repair = None
        drop_before(replica, event.log_start_offset, effects)
        return effects
    if event.error is not _NONE:
        return _refused(replica, event.error, event.now_ms)
    replica.retry_at_ms = None
    replica.refusals = 0
    if event.diverging is not None:
        cut = replica.policy.cut_on_answer(
            event.diverging, replica.epochs, repair.start, replica.high_watermark
        )
        _truncate_unless_committed(replica, cut.offset, effects)
        return effects
    upto = repair.start
    batches: list[on.Batch] = []
    for batch in event.batches:
        if batch.base_offset >= repair.end:
            upto = repair.end
            break
        expected = replica.epochs.epoch_for_offset(batch.base_offset)
        in_place = upto <= batch.base_offset and batch.last_offset < repair.end
        if not in_place or batch.leader_epoch != expected:
            return [do.AbandonRepair()]
        batches.append(batch)
        upto = batch.last_offset + 1
    return [do.ReplaceRecords(batches, upto)] if upto > repair.start else []


def repair_needed(replica: Replica, event: on.RepairNeeded) -> list[do.Effect]:
    """Fetch only damaged records until the repair ends."""
    if not replica.is_leader:
        leader_end = 0 if replica.repair is None else replica.repair.leader_end
        replica.repair = Repair(event.start, event.end, leader_end)
        # If the first segments are missing, the log starts with the fetched records.
        replica.log_start_offset = min(replica.log_start_offset, event.start)
        if replica.following is Following.ASKING_OFFSETS:
            replica.following = Following.FETCHING
    return []


def repair_ended(replica: Replica, _event: on.RepairEnded) -> list[do.Effect]:
    """Fetch from the log end again."""
    replica.repair = None
    return []


def _leader_end_answered(
    replica: Replica, repair: Repair, event: on.OffsetsAnswered
) -> list[do.Effect]:
    """Fetch the damaged records, or truncate the log to the leader's end if the leader's log ends
    before them.

    The usual rule of truncation applies: the leader lacks all records from there on, damaged or
    not. A follower that knows some of them to be committed keeps its log and reports the leader.
    """
    replica.retry_at_ms = None
    replica.refusals = 0
    replica.repair = repair._replace(leader_end=event.log_end_offset)
    effects: list[do.Effect] = []
    if replica.repair.may_be_beyond_leader:
        _truncate_unless_committed(replica, event.log_end_offset, effects)
    return effects


def _refused(replica: Replica, error: ErrorCode, now_ms: int) -> list[do.Effect]:
    """Stop if the leader has a newer epoch than this replica; otherwise retry later.

    A new leader may not know of its election yet, but will soon. So the first retry is quick, and
    later ones are less and less frequent.
    """
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        replica.following = Following.NOTHING
        return [do.StopFollowing()]
    replica.retry_at_ms = now_ms + backoff_ms(
        replica.refusals, replica.config.replica_fetch_backoff_ms
    )
    replica.refusals += 1
    return []


def epoch_end_answered(replica: Replica, event: on.EpochEndAnswered) -> list[do.Effect]:
    """Truncate by the leader's end of an epoch, as historical policies do; they may send the
    request again."""
    if (
        replica.following is not Following.ASKING_EPOCH
        or event.leader_epoch != replica.leader_epoch
        or event.epoch != replica.epochs.latest
    ):
        return []
    if event.error is not ErrorCode.NONE:
        return _refused(replica, event.error, event.now_ms)
    effects: list[do.Effect] = []
    cut = replica.policy.cut_on_answer(
        event.end, replica.epochs, replica.log_end_offset, replica.high_watermark
    )
    truncate(replica, cut.offset, effects)
    if cut.done or replica.epochs.latest is None:
        replica.following = Following.FETCHING
    return effects


def offsets_answered(replica: Replica, event: on.OffsetsAnswered) -> list[do.Effect]:
    """Continue after OFFSET_OUT_OF_RANGE: truncate to the leader's end, or restart at its start.
    A repair requests the offsets too, before it fetches."""
    repair = replica.repair if replica.following is Following.FETCHING else None
    expected = replica.following is Following.ASKING_OFFSETS or (
        repair is not None and not repair.is_waiting
    )
    if not expected or event.leader_epoch != replica.leader_epoch:
        return []
    if event.error is not ErrorCode.NONE:
        return _refused(replica, event.error, event.now_ms)
    if repair is not None:
        return _leader_end_answered(replica, repair, event)
    effects: list[do.Effect] = []
    replica.following = Following.FETCHING
    if event.log_end_offset < replica.log_end_offset:
        _truncate_unless_committed(replica, event.log_end_offset, effects)
    elif event.log_start_offset > replica.log_end_offset:
        _restart(replica, event.log_start_offset, effects)
    else:
        # Both logs have this offset: fetch again after a pause, not in a tight loop.
        replica.retry_at_ms = event.now_ms + replica.config.replica_fetch_backoff_ms
    return effects


def _truncate_unless_committed(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Truncate the log to `offset`, unless that drops committed records."""
    if offset >= replica.high_watermark or _may_lack_committed(replica):
        truncate(replica, offset, effects)
        return
    assert replica.leader is not None, "only a follower truncates its log"
    replica.refused_leader = replica.leader
    replica.following = Following.NOTHING
    effects.append(do.StopFollowing())
    effects.append(
        do.RefuseTruncation(replica.leader, replica.leader_epoch, offset, replica.high_watermark)
    )


def _may_lack_committed(replica: Replica) -> bool:
    """Whether a correct leader may lack records below this replica's high watermark: after an
    unclean election that is newer than this log, or if the high watermark may be wrong."""
    latest = replica.epochs.latest
    unclean_since = replica.unclean_epoch > (NO_EPOCH if latest is None else latest)
    return (
        unclean_since or replica.high_watermark_uncertain or not replica.policy.fetches_with_epoch
    )


def truncate(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Truncate records, and epochs without records, even if no record is dropped
    (KAFKA-10706)."""
    if offset < replica.log_end_offset:
        removed = replica.epochs.entries_from(offset)
        effects.append(
            do.TruncateTo(offset, replica.log_end_offset, replica.high_watermark, removed)
        )
        set_log_end(replica, offset)
    if replica.epochs.truncate_to(replica.log_end_offset):
        effects.append(do.WriteEpochs())


def set_log_end(replica: Replica, offset: Offset) -> None:
    """Set a lower log end, and limit all other offsets to it.

    A repair waits for the node, which begins it again or ends it. The log may lack records below
    its new end: records that the repair had fetched are discarded with the copy of their segment.
    """
    replica.log_end_offset = offset
    if replica.repair is not None:
        start = min(offset, replica.repair.start)
        replica.repair = Repair(start, start, replica.repair.leader_end)
    replica.log_start_offset = min(replica.log_start_offset, offset)
    replica.high_watermark = min(replica.high_watermark, offset)
    replica.flushed_offset = min(replica.flushed_offset, offset)


def _restart(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Delete the whole log; the high watermark moves too (KAFKA-9491)."""
    removed = replica.epochs.entries
    effects.append(do.RestartAt(offset, replica.log_end_offset, replica.high_watermark, removed))
    replica.log_start_offset = replica.log_end_offset = offset
    replica.high_watermark = replica.flushed_offset = offset
    replica.epochs.clear()
    effects.append(do.WriteEpochs())
