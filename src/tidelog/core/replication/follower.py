"""What a follower does with a new leader, a reply, and a log that has gone astray.

A follower asks its leader, drops what the leader does not have, and copies the rest. A reply
counts only if it answers the question this follower would still ask: same leader epoch, same
offset. Late replies from an older epoch have deleted committed records in Kafka (KAFKA-7786,
KAFKA-18991).

A follower drops no committed record. A leader that was elected cleanly has every record below
any replica's high watermark. One that lacks some has lost them: the follower keeps its log,
stops fetching and reports the leader (ADR 40).
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
    """How long to wait after so many failures in a row before the latest."""
    return min(FIRST_RETRY_MS << min(failures, _DOUBLINGS_MAX), most_ms)


def begin_following(replica: Replica, event: on.PartitionChanged) -> list[do.Effect]:
    """Follow whom the controller names, from a new leader epoch on."""
    replica.isr = NO_ISR
    replica.followers = {}
    replica.epoch_start_offset = None
    replica.retry_at_ms = None
    replica.refusals = 0
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
    """What to ask the leader now, or None.

    With flush-before-ack the next fetch, which tells the leader how far this replica has
    come, waits until that much is flushed.
    """
    if replica.retry_at_ms is not None and now_ms < replica.retry_at_ms:
        return None
    if replica.following is Following.NOTHING:
        return None
    if replica.following is Following.ASKING_EPOCH:
        assert replica.epochs.latest is not None, "asked only about an epoch it has"
        return do.EpochQuestion(replica.epochs.latest, replica.leader_epoch)
    if replica.following is Following.ASKING_OFFSETS:
        return do.OffsetsQuestion(replica.leader_epoch)
    if replica.repair is not None:
        return _repair_position(replica, replica.repair)
    if replica.durable_end_offset < replica.log_end_offset:
        return None
    return do.FetchPosition(
        replica.log_end_offset,
        replica.leader_epoch,
        replica.epochs.latest if replica.policy.fetches_with_epoch else None,
        replica.log_start_offset,
    )


def _repair_position(replica: Replica, repair: Repair) -> do.FetchPosition | None:
    """Ask for the damaged records only. The leader compares the epoch of the record before them.
    The fetch does not count as progress: what it brings has yet to be put in place."""
    if repair.start == repair.end:
        return None
    return do.FetchPosition(
        repair.start,
        replica.leader_epoch,
        replica.epochs.epoch_for_offset(repair.start - 1),
        on.NO_PROGRESS,
    )


def fetch_answered(replica: Replica, event: on.FetchAnswered) -> list[do.Effect]:
    """Take the leader's reply: records, a divergence, or an error."""
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
        # The high watermark in this reply belongs to a log that is not yet ours (KAFKA-14704).
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
    """Whether this replica has no record that the leader still keeps."""
    end = replica.log_end_offset
    return end == replica.log_start_offset or end <= event.log_start_offset


def _ends_inside(replica: Replica, event: on.FetchAnswered) -> bool:
    """Whether this log ends inside a batch of the leader. Only damage can do that: the header of
    its last batch was wrong. That batch has to be fetched again."""
    first = event.batches[0]
    if first.leader_epoch > event.leader_epoch or _has_nothing_of(replica, event):
        return False
    if not replica.policy.fetches_with_epoch:
        return False  # scenarios/truncation/offsets-do-not-go-backwards.txt
    return first.base_offset < replica.log_end_offset <= first.last_offset


def _append(replica: Replica, event: on.FetchAnswered, effects: list[do.Effect]) -> bool:
    """Append what continues this log; False when the reply makes no sense here.

    Batches of an epoch newer than the one asked under come from a leader that was deposed
    and truncated while it was answering: they and all after them are left (KAFKA-18723).
    """
    end = replica.log_end_offset
    first = event.batches[0]
    if first.leader_epoch > event.leader_epoch:
        return False
    if _has_nothing_of(replica, event) and first.base_offset < end <= first.last_offset:
        # The leader's log starts inside its first batch, and this replica has nothing that
        # the leader still keeps: an empty log (KAFKA-6975), or one that was cut back to there.
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
    """Replace damaged records with the leader's, if those are the records that were here.

    Records with the same offset and leader epoch are the same: a leader writes each offset once.
    Where the logs diverge before the damage, the usual truncation rules apply.
    """
    if event.offset != repair.start or repair.start == repair.end:
        return []
    effects: list[do.Effect] = []
    if event.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        if not repair.end <= event.log_start_offset <= replica.high_watermark:
            return [do.AbandonRepair()]
        # The leader has deleted these records since then.
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
    """Fetch only damaged records from now on."""
    if not replica.is_leader:
        replica.repair = Repair(event.start, event.end)
        # The log may lack its first segments: then it starts with what is fetched.
        replica.log_start_offset = min(replica.log_start_offset, event.start)
        if replica.following is Following.ASKING_OFFSETS:
            replica.following = Following.FETCHING
    return []


def repair_ended(replica: Replica, _event: on.RepairEnded) -> list[do.Effect]:
    """Fetch from the log end again."""
    replica.repair = None
    return []


def _refused(replica: Replica, error: ErrorCode, now_ms: int) -> list[do.Effect]:
    """Stop if the leader is ahead of the controller's word to us; otherwise try again later.

    A new leader that has not heard of its office yet will in a moment: so soon at first,
    then less and less often.
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
    """Historical policies: cut where the leader's answer says, perhaps ask again."""
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
    """Out of range: find a place where both logs are, or begin anew at the leader's start."""
    if (
        replica.following is not Following.ASKING_OFFSETS
        or event.leader_epoch != replica.leader_epoch
    ):
        return []
    if event.error is not ErrorCode.NONE:
        return _refused(replica, event.error, event.now_ms)
    effects: list[do.Effect] = []
    replica.following = Following.FETCHING
    if event.log_end_offset < replica.log_end_offset:
        _truncate_unless_committed(replica, event.log_end_offset, effects)
    elif event.log_start_offset > replica.log_end_offset:
        _restart(replica, event.log_start_offset, effects)
    else:
        # Nothing to mend: don't ask the same thing in a tight loop.
        replica.retry_at_ms = event.now_ms + replica.config.replica_fetch_backoff_ms
    return effects


def _truncate_unless_committed(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Truncate the log to where the leader's ends, unless that drops committed records."""
    if offset >= replica.high_watermark or _may_lack_committed(replica):
        truncate(replica, offset, effects)
        return
    assert replica.leader is not None, "only a follower is asked to truncate its log"
    replica.refused_leader = replica.leader
    replica.following = Following.NOTHING
    effects.append(do.StopFollowing())
    effects.append(
        do.RefuseTruncation(replica.leader, replica.leader_epoch, offset, replica.high_watermark)
    )


def _may_lack_committed(replica: Replica) -> bool:
    """Whether a sound leader may lack records below this replica's high watermark: after an
    unclean election that this log has not followed, or if the high watermark may be wrong."""
    latest = replica.epochs.latest
    given_up = replica.unclean_epoch > (NO_EPOCH if latest is None else latest)
    return given_up or replica.high_watermark_uncertain or not replica.policy.fetches_with_epoch


def truncate(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Cut the tail. Epochs that hold no record go even if no record does (KAFKA-10706)."""
    if offset < replica.log_end_offset:
        effects.append(do.TruncateTo(offset, replica.log_end_offset, replica.high_watermark))
        set_log_end(replica, offset)
    if replica.epochs.truncate_to(replica.log_end_offset):
        effects.append(do.WriteEpochs())


def set_log_end(replica: Replica, offset: Offset) -> None:
    """Let every other offset follow when the log ends earlier."""
    replica.log_end_offset = offset
    if replica.repair is not None and offset <= replica.repair.start:
        replica.repair = None
    replica.log_start_offset = min(replica.log_start_offset, offset)
    replica.high_watermark = min(replica.high_watermark, offset)
    replica.flushed_offset = min(replica.flushed_offset, offset)


def _restart(replica: Replica, offset: Offset, effects: list[do.Effect]) -> None:
    """Drop everything; the high watermark goes along (KAFKA-9491)."""
    effects.append(do.RestartAt(offset, replica.log_end_offset, replica.high_watermark))
    replica.log_start_offset = replica.log_end_offset = offset
    replica.high_watermark = replica.flushed_offset = offset
    replica.epochs.clear()
    effects.append(do.WriteEpochs())
