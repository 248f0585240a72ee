"""Requests that read a replica's log or offsets and change nothing.

Consumers read below the high watermark, or below the last stable offset; a follower may serve
them too (KIP-392), up to its own high watermark. Followers read up to the log end, which lets the
high watermark advance.
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
    """Check a fetch position against this log: valid, out of range, or diverging.

    Below the log start it is out of range even if it diverges: after a diverging response the
    follower could not continue (KAFKA-12996).
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
    """Return a fetch response with an error and no records."""
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
    """Respond to a consumer with committed records only.

    A position between the high watermark and the log end returns no records and no error; beyond
    the log end it is out of range.
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
    """Return why this replica can't serve a consumer; NONE if it can. With `any_replica` a
    follower can, too."""
    error = leadership_error(replica)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and any_replica and replica.leader is not None:
        return ErrorCode.NONE
    return error


def fetch_again(
    replica: Replica, answer: do.AnswerFetch, reader: BrokerId | None, *, read_committed: bool
) -> do.AnswerFetch:
    """Update the response to a fetch that waited, in place; its progress was recorded at first.

    A change of leader epoch fails all fetches that wait, so only the range can have become
    invalid meanwhile.
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
    """Return where a reader must stop: a follower at the log end, a consumer at the HW or LSO."""
    if reader is not None:
        return replica.log_end_offset
    return replica.last_stable_offset if read_committed else replica.high_watermark


def epoch_end(replica: Replica, event: on.EpochEndRequested) -> list[do.Effect]:
    """Respond to OffsetForLeaderEpoch."""
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = leadership_error(replica)
    end = None
    if error is _NONE:
        end = replica.epochs.end_offset_for(event.epoch, replica.log_end_offset)
    return [do.AnswerEpochEnd(event.request, error, end)]


def offsets(replica: Replica, event: on.OffsetsRequested) -> list[do.Effect]:
    """Respond to ListOffsets with the start and the end of the log.

    A new leader's high watermark may be below its predecessor's. Until it has passed the start of
    the leader's epoch, clients get no end: they would see offsets going backwards (KIP-207).
    """
    error = leader_epoch_error(replica.leader_epoch, event.leader_epoch)
    if error is _NONE:
        error = leadership_error(replica)
    end, known = replica.log_end_offset, True
    if event.from_client:
        end = readable_end(replica, None, read_committed=event.read_committed)
        known = replica.high_watermark >= (replica.epoch_start_offset or 0)
    return [do.AnswerOffsets(event.request, error, replica.log_start_offset, end, known)]
