"""Detect lost records, and fail, report or skip.

Policy: `fail` stops the query; `report` continues and writes the lost ranges to a folder; `skip`
continues and counts them. Invariant: a report file is complete or missing, and the same loss found
again (a retried task, a replayed batch) is written to the same file.

Detection: a position in a checkpoint is an offset and a leader epoch; every record before the
offset was written in that epoch or an older one. The end of that epoch in the leader's log
(OffsetForLeaderEpoch) is at or after the offset if the log still has all records before the offset.
If the end is before the offset, the log was truncated, and the offsets in between are lost. Gaps
left by compaction, transaction markers and aborted records do not matter: only the start and end of
the log count. This module sends no requests. Invariant: `Verdict.resume` is within the log.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from tidelog.core.types import LeaderEpoch, Offset, TopicPartition

LOG = logging.getLogger("tidelog.spark")
UNKNOWN_EPOCH = -1
SUFFIX = ".jsonl"


class OnDataLoss(StrEnum):
    """What to do when unread records are lost."""

    FAIL = "fail"
    REPORT = "report"
    SKIP = "skip"


class LossKind(StrEnum):
    """Why the records are lost."""

    RETENTION = "retention"
    """Deleted at the front, by retention or by a DeleteRecords request."""
    TRUNCATED = "truncated"
    """Truncated at the end after an unclean election; the offsets may hold other records now."""
    RECREATED = "recreated"
    """The topic was deleted and recreated under the same name."""
    DELETED = "deleted"
    """The topic was deleted."""


class LostRange(NamedTuple):
    """Offsets of one partition whose records were deleted or replaced."""

    topic: str
    partition: int
    kind: LossKind
    start: Offset
    end: Offset | None
    """The offset after the last lost one; None if unknown."""
    resume: Offset | None = None
    """The offset at which reading continues; None if the partition is no longer read."""
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The lost records have this leader epoch or an older one."""
    old_id: str = ""
    new_id: str = ""

    @property
    def offsets(self) -> int:
        """The number of lost offsets; 0 if unknown."""
        return 0 if self.end is None else self.end - self.start

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.end is None:
            what = f"{place}: offsets from {self.start} on"
        else:
            what = f"{place}: offsets {self.start} to {self.end - 1}"
        epoch = "" if self.epoch < 0 else f" of leader epoch {self.epoch} or before"
        ids = f" (id {self.old_id}, now {self.new_id})" if self.old_id and self.new_id else ""
        why = {
            LossKind.RETENTION: f"{what} were deleted (retention) before they were read",
            LossKind.TRUNCATED: f"{what}{epoch} were truncated (unclean leader election)",
            LossKind.RECREATED: f"{what} were deleted with their topic, which was recreated{ids}",
            LossKind.DELETED: f"{what} were deleted with their topic",
        }[self.kind]
        return why if self.resume is None else f"{why}; reading continues at offset {self.resume}"

    def to_json(self) -> dict[str, Any]:
        """Return the range as JSON data, for checkpoints and reports."""
        found: dict[str, Any] = {
            "topic": self.topic,
            "partition": self.partition,
            "kind": str(self.kind),
            "start": self.start,
            "end": self.end,
            "resume": self.resume,
            "epoch": self.epoch,
        }
        if self.old_id or self.new_id:
            found |= {"oldId": self.old_id, "newId": self.new_id}
        return found


def lost_from_json(found: Mapping[str, Any]) -> LostRange:
    """Return the range for the output of `LostRange.to_json`."""
    return LostRange(
        found["topic"],
        found["partition"],
        LossKind(found["kind"]),
        found["start"],
        found["end"],
        found["resume"],
        found.get("epoch", UNKNOWN_EPOCH),
        found.get("oldId", ""),
        found.get("newId", ""),
    )


class DataLost(Exception):
    """Records are lost and the policy is `fail`. The message is one line."""

    def __init__(self, lost: Sequence[LostRange]) -> None:
        more = f" (and {len(lost) - 1} more ranges)" if len(lost) > 1 else ""
        super().__init__(
            f"data loss: {lost[0]}{more};"
            " to continue without them, set onDataLoss to report or skip"
        )
        self.lost = tuple(lost)

    def __reduce__(self) -> tuple[type["DataLost"], tuple[tuple[LostRange, ...]]]:
        return DataLost, (self.lost,)


def fail_on_loss(lost: Sequence[LostRange], policy: OnDataLoss) -> None:
    """Raise DataLost if there is a loss and the policy is `fail`."""
    if lost and policy == OnDataLoss.FAIL:
        raise DataLost(lost)


def report_loss(lost: Sequence[LostRange], path: str | None, finder: str) -> None:
    """Log the loss and, if `path` is given, write a report there."""
    log_loss(lost)
    if lost and path is not None:
        write_report(lost, path, finder)


def log_loss(lost: Sequence[LostRange]) -> None:
    """Log the loss in this process."""
    for each in lost:
        LOG.warning("data loss: %s", each)


def write_report(lost: Sequence[LostRange], path: str, finder: str, **about: Any) -> None:
    """Write lost ranges to one file in the folder `path`.

    `finder` identifies the task or batch that found the loss; the file is named after it.
    """
    lines = [json.dumps({**each.to_json(), "text": str(each), **about}) + "\n" for each in lost]
    name = hashlib.sha256(finder.encode()).hexdigest()[:24]
    _write_atomically(path, f"lost-{name}{SUFFIX}", "".join(lines))


def _write_atomically(folder: str, name: str, text: str) -> None:
    """Write a file atomically: a reader finds the whole file or none."""
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(folder, name))


def read_report(path: str) -> list[dict[str, Any]]:
    """Return all lines of a report, in no particular order."""
    found = []
    for name in sorted(os.listdir(path)):
        if name.endswith(SUFFIX) and not name.startswith("."):
            with open(os.path.join(path, name), encoding="utf-8") as file:
                found += [json.loads(line) for line in file]
    return found


UNKNOWN_OFFSET = -1


class Place(NamedTuple):
    """A position in a log: an offset, and the highest leader epoch of the records before it."""

    offset: Offset
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    since: Offset = UNKNOWN_OFFSET
    """The first offset of that epoch in the log that was read; -1 if unknown."""

    def kept(self, epoch: LeaderEpoch, end: Offset) -> Offset:
        """Return the offset up to which a log still matches what was read.

        `epoch` is the largest epoch in the log that is not newer than this position's, and `end` is
        the end of that epoch. An older epoch may be longer in this log than in the log that was
        read: its last records were not committed when the next leader was elected, and reappeared
        when the replica that has them became leader.
        """
        return end if epoch >= self.epoch or self.since < 0 else min(end, self.since)


class PartitionState(NamedTuple):
    """The state of a partition, as the brokers report it now."""

    end: Place
    """The end of the readable records, and the leader's epoch."""
    log_start: Offset | None = None
    """None if it was not requested: nothing to read, or requested a moment ago."""
    epoch_end: Offset | None = None
    """The offset up to which the log still matches what was read.

    None if it was not requested or the broker does not report it.
    """


class Verdict(NamedTuple):
    """The offset at which to continue, and the lost ranges."""

    resume: Offset
    lost: tuple[LostRange, ...] = ()


class StaleLeader(Exception):
    """The leader that responded has an older epoch than the checkpoint: retry the request."""


def needs_epoch_end(place: Place, end: Place) -> bool:
    """Whether the end of the position's epoch must be requested.

    A leader with a newer epoch may have truncated records of an older one; a leader with the same
    epoch truncates nothing. If the readable records end before the position in the same epoch, the
    log may be longer: an open transaction hides its end from readers of committed data.
    """
    known = place.epoch != UNKNOWN_EPOCH and end.epoch != UNKNOWN_EPOCH
    early = end.epoch == place.epoch and end.offset < place.offset
    return known and (early or end.epoch > place.epoch)


def judge(
    key: TopicPartition, place: Place, state: PartitionState, *, has_id: bool = True
) -> Verdict:
    """Compare a partition with the position that was read. Raises StaleLeader.

    `has_id`: the topic's id proves that it is the topic that was read.
    """
    is_stale = UNKNOWN_EPOCH != state.end.epoch < place.epoch
    if is_stale and has_id:
        raise StaleLeader(
            f"{key}: the leader has epoch {state.end.epoch}, but the checkpoint has the newer epoch"
            f" {place.epoch}"
        )
    kept = _kept(place, state)
    truncated_in_epoch = state.end.epoch == place.epoch and kept < place.offset
    if not has_id and (is_stale or truncated_in_epoch):
        return judge_recreated(key, place.offset, state.log_start or 0)
    lost = []
    if kept < place.offset:
        lost.append(_lost(key, LossKind.TRUNCATED, kept, place.offset, place.epoch))
    resume = kept
    if state.log_start is not None and state.log_start > resume:
        lost.append(_lost(key, LossKind.RETENTION, resume, state.log_start))
        resume = state.log_start
    return Verdict(resume, tuple(each._replace(resume=resume) for each in lost))


def _kept(place: Place, state: PartitionState) -> Offset:
    """Return the offset up to which the log still matches what was read."""
    if state.epoch_end is not None:
        return min(place.offset, state.epoch_end)
    # A new leader's high watermark may lag for a moment: an early end proves a loss only if
    # there are no epochs.
    if needs_epoch_end(place, state.end):
        return place.offset
    return min(place.offset, state.end.offset)


def judge_recreated(
    key: TopicPartition, offset: Offset, log_start: Offset, old_id: str = "", new_id: str = ""
) -> Verdict:
    """Return the verdict for a partition of a recreated topic: read it from its start."""
    lost = LostRange(
        *key, LossKind.RECREATED, offset, None, log_start, old_id=old_id, new_id=new_id
    )
    return Verdict(log_start, (lost,))


def judge_new(key: TopicPartition, log_start: Offset, *, known_topic: bool) -> Verdict:
    """Return the verdict for a new partition: read it from its start.

    In a topic that is already read, deleted records of a new partition count as lost.
    """
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
