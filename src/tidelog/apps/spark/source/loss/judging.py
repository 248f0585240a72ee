"""Is what was read still what the log has, and is what comes next still there?

A place in a checkpoint is an offset and a leader epoch: everything before the offset was
written in that epoch or an older one. A log that still has all of it answers the question
where that epoch ends (OffsetForLeaderEpoch) with the offset or more; one that was cut answers
with less, and the difference is what was lost, exactly. Gaps by compaction, markers of
transactions and what they aborted never come up here: only where a log begins and ends counts.

Pure: no broker is asked here. Always true: a verdict's `resume` lies within the log.
"""

from typing import NamedTuple

from tidelog.apps.spark.source.loss.policy import UNKNOWN_EPOCH, LossKind, LostRange
from tidelog.core.types import LeaderEpoch, Offset, TopicPartition

UNKNOWN_OFFSET = -1


class Place(NamedTuple):
    """An offset, and an epoch that is none older than that of any record before it."""

    offset: Offset
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    since: Offset = UNKNOWN_OFFSET
    """Where that epoch began in the log that was read: no record from there on is older."""

    def kept(self, epoch: LeaderEpoch, end: Offset) -> Offset:
        """Up to where a log is the one that was read, of which is known that `epoch` is its
        largest up to the place's own, and where that ends. An older epoch may go on there for
        longer than it did here: its leader's last records were not committed when another one
        took over, and came back with it."""
        return end if epoch >= self.epoch or self.since < 0 else min(end, self.since)


class Facts(NamedTuple):
    """What brokers say of a partition now."""

    end: Place
    """Where readers' data ends, and the leader's epoch."""
    log_start: Offset | None = None
    """None: not asked, because nothing is to be read or it was asked a moment ago."""
    epoch_end: Offset | None = None
    """Up to where the log is the one that was read, as the end of the place's epoch tells; None:
    not asked, or the broker can't tell."""


class Verdict(NamedTuple):
    """Where to go on, and what is lost."""

    resume: Offset
    lost: tuple[LostRange, ...] = ()


class EpochsRunBackwards(Exception):
    """A leader of an older epoch than the checkpoint's answered, for the same topic: what it
    says is out of date. Ask again."""


def needs_epoch_end(place: Place, end: Place) -> bool:
    """Whether the end of the place's epoch has to be asked for: a leader of a newer epoch may
    have cut what an older one wrote; one of the same epoch cuts nothing. If readers' data ends
    early all the same, the log may be longer: an open transaction hides its end from readers of
    committed data, whatever was read before."""
    known = place.epoch != UNKNOWN_EPOCH and end.epoch != UNKNOWN_EPOCH
    early = end.epoch == place.epoch and end.offset < place.offset
    return known and (early or end.epoch > place.epoch)


def judge(key: TopicPartition, place: Place, facts: Facts, *, has_id: bool = True) -> Verdict:
    """For a topic that is the one that was read (`has_id`: its id says so, not only its name).
    Raises EpochsRunBackwards."""
    backwards = UNKNOWN_EPOCH != facts.end.epoch < place.epoch
    if backwards and has_id:
        raise EpochsRunBackwards(
            f"{key}: a leader of epoch {facts.end.epoch} answers,"
            f" the checkpoint knows epoch {place.epoch}"
        )
    kept = _kept(place, facts)
    cut_in_one_epoch = facts.end.epoch == place.epoch and kept < place.offset
    if not has_id and (backwards or cut_in_one_epoch):
        return judge_recreated(key, place.offset, facts.log_start or 0)
    lost = []
    if kept < place.offset:
        lost.append(_lost(key, LossKind.TRUNCATED, kept, place.offset, place.epoch))
    resume = kept
    if facts.log_start is not None and facts.log_start > resume:
        lost.append(_lost(key, LossKind.RETENTION, resume, facts.log_start))
        resume = facts.log_start
    return Verdict(resume, tuple(each._replace(resume=resume) for each in lost))


def _kept(place: Place, facts: Facts) -> Offset:
    """Up to where the log is the one that was read."""
    if facts.epoch_end is not None:
        return min(place.offset, facts.epoch_end)
    # A new leader's high watermark may be behind for a moment: only without epochs does an
    # early end prove anything.
    if needs_epoch_end(place, facts.end):
        return place.offset
    return min(place.offset, facts.end.offset)


def judge_recreated(
    key: TopicPartition, offset: Offset, log_start: Offset, old_id: str = "", new_id: str = ""
) -> Verdict:
    """For a topic of the same name that is another one: it is read from its start."""
    lost = LostRange(
        *key, LossKind.RECREATED, offset, None, log_start, old_id=old_id, new_id=new_id
    )
    return Verdict(log_start, (lost,))


def judge_new(key: TopicPartition, log_start: Offset, *, known_topic: bool) -> Verdict:
    """For a partition that was not there before: it is read from its start. In a topic that is
    being read, what is gone of it was never read."""
    if not known_topic or log_start == 0:
        return Verdict(log_start)
    lost = _lost(key, LossKind.RETENTION, 0, log_start)._replace(resume=log_start)
    return Verdict(log_start, (lost,))


def _lost(
    key: TopicPartition,
    kind: LossKind,
    start: Offset,
    end: Offset,
    epoch: LeaderEpoch = UNKNOWN_EPOCH,
) -> LostRange:
    return LostRange(*key, kind, start, end, epoch=epoch)
