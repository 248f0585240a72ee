"""What a replica answers out of its log without changing anything.

Consumers read below the high watermark, or below the last stable offset; a follower may
serve them too (KIP-392), up to its own high watermark. Followers read to the end: that is
how the high watermark moves.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.fencing import leader_epoch_error, leadership_error
from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerId, EpochEnd, Offset

_NONE = ErrorCode.NONE
_FINE = (_NONE, None)


def check_position(
    replica: Replica, offset: Offset, last_fetched_epoch: int | None
) -> tuple[ErrorCode, EpochEnd | None]:
    """Compare a fetcher's position with this log: fine, out of range, or diverging.

    Below the log start it is out of range even when it diverges: the answer to a
    divergence would lead nowhere (KAFKA-12996).
    """
    if (
        last_fetched_epoch == replica.epochs.latest
        and replica.log_start_offset <= offset <= replica.log_end_offset
    ):
        return _FINE
    end: EpochEnd | None = None
    if last_fetched_epoch is not None:
        end = replica.epochs.end_offset_for(last_fetched_epoch, replica.log_end_offset)
        if end is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None
    if offset < replica.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE, None
    if end is not None and (end.epoch < (last_fetched_epoch or 0) or end.end_offset < offset):
        return _NONE, end
    if offset > replica.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE, None
    return _NONE, None


def failed_fetch(
    replica: Replica, request: on.Request, offset: Offset, error: ErrorCode
) -> do.AnswerFetch:
    """No records, and the reason."""
    return do.AnswerFetch(
        request,
        error,
        offset,
        offset,
        replica.high_watermark,
        replica.last_stable_offset,
        replica.log_start_offset,
        None,
    )


def consumer_fetch(replica: Replica, event: on.ConsumerFetchReceived) -> list[do.Effect]:
    """Answer a consumer with committed records only.

    Between the high watermark and the log end there is nothing to see yet, and that is
    no error; beyond the end there is.
    """
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = serving_error(replica, any_replica=event.any_replica)
    diverging = None
    if error is _NONE:
        error, diverging = check_position(replica, event.offset, event.last_fetched_epoch)
    answer = failed_fetch(replica, event.request, event.offset, error)
    if diverging is not None:
        answer.diverging = diverging
    elif error is _NONE:
        end = readable_end(replica, None, read_committed=event.read_committed)
        answer.upto = max(event.offset, end)
    return [answer]


def serving_error(replica: Replica, *, any_replica: bool) -> ErrorCode:
    """Why this replica can't answer a reader: only the leader does, unless told otherwise."""
    error = leadership_error(replica)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and any_replica and replica.leader is not None:
        return ErrorCode.NONE
    return error


def fetch_again(
    replica: Replica, answer: do.AnswerFetch, reader: BrokerId | None, *, read_committed: bool
) -> do.AnswerFetch:
    """Renew the answer to a fetch that was parked; its progress was noted the first time. It
    is the same object: nobody else has it yet.

    A change of leader epoch fails whoever is parked, so only the range can have become
    wrong meanwhile.
    """
    offset = answer.offset
    answer.error = _NONE
    answer.upto = offset
    answer.high_watermark = replica.high_watermark
    answer.last_stable_offset = replica.last_stable_offset
    answer.log_start_offset = replica.log_start_offset
    answer.diverging = None
    if replica.offline:
        answer.error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not replica.log_start_offset <= offset <= replica.log_end_offset:
        answer.error = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        end = readable_end(replica, reader, read_committed=read_committed)
        answer.upto = max(offset, end)
    return answer


def readable_end(replica: Replica, reader: BrokerId | None, *, read_committed: bool) -> Offset:
    """Up to where this reader may read: a follower to the end, a consumer to the HW or LSO."""
    if reader is not None:
        return replica.log_end_offset
    return replica.last_stable_offset if read_committed else replica.high_watermark


def epoch_end(replica: Replica, event: on.EpochEndRequested) -> list[do.Effect]:
    """Answer OffsetForLeaderEpoch."""
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = leadership_error(replica)
    end = None
    if error is _NONE:
        end = replica.epochs.end_offset_for(event.epoch, replica.log_end_offset)
    return [do.AnswerEpochEnd(event.request, error, end)]


def offsets(replica: Replica, event: on.OffsetsRequested) -> list[do.Effect]:
    """Answer ListOffsets for the two ends of the log.

    A new leader's high watermark may lag what its predecessor showed. Until it has passed
    the start of the own epoch, the end is not known to clients, or offsets would be seen
    going backwards (KIP-207).
    """
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = leadership_error(replica)
    end, known = replica.log_end_offset, True
    if event.from_client:
        end = readable_end(replica, None, read_committed=event.read_committed)
        known = replica.high_watermark >= (replica.epoch_start_offset or 0)
    return [do.AnswerOffsets(event.request, error, replica.log_start_offset, end, known)]
