"""What a source does when records are gone: detect the loss, then fail, report or continue.

Records are lost by retention, by truncation after a leader change, or with a topic that was
deleted or recreated. The first part is the policy (`onDataLoss`) and the report; the second part
compares a stream's position with what the brokers say.
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
    """What to do when records are gone that were not read."""

    FAIL = "fail"
    REPORT = "report"
    SKIP = "skip"


class LossKind(StrEnum):
    """What became of the records."""

    RETENTION = "retention"
    """Deleted at the front: by retention, or because somebody asked for it."""
    TRUNCATED = "truncated"
    """Cut off at the end, by an unclean election; others may stand at these offsets now."""
    RECREATED = "recreated"
    """The topic was deleted and made anew under its name."""
    DELETED = "deleted"
    """The topic is gone."""


class LostRange(NamedTuple):
    """Offsets of one partition that can't be read, or not as they were."""

    topic: str
    partition: int
    kind: LossKind
    start: Offset
    end: Offset | None
    """Exclusive; None: nobody can tell any more."""
    resume: Offset | None = None
    """Where reading goes on; None: it does not."""
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    """Records of this leader epoch, or older."""
    old_id: str = ""
    new_id: str = ""

    @property
    def offsets(self) -> int:
        """Offsets, as far as it is known."""
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
            LossKind.TRUNCATED: f"{what}{epoch} were cut off the log (unclean leader election)",
            LossKind.RECREATED: f"{what} went with their topic, which was made anew{ids}",
            LossKind.DELETED: f"{what} went with their topic, which was deleted",
        }[self.kind]
        return why if self.resume is None else f"{why}; the log goes on at offset {self.resume}"

    def to_json(self) -> dict[str, Any]:
        """For checkpoints and reports."""
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
    """What `to_json` made."""
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
    """Records are gone, and the query was to fail then; one line."""

    def __init__(self, lost: Sequence[LostRange]) -> None:
        more = f" (and {len(lost) - 1} more ranges)" if len(lost) > 1 else ""
        super().__init__(
            f"data loss: {lost[0]}{more}; to go on without them set onDataLoss to report or skip"
        )
        self.lost = tuple(lost)

    def __reduce__(self) -> tuple[type["DataLost"], tuple[tuple[LostRange, ...]]]:
        return DataLost, (self.lost,)


def refuse_loss(lost: Sequence[LostRange], policy: OnDataLoss) -> None:
    """Raises DataLost if that is the policy."""
    if lost and policy == OnDataLoss.FAIL:
        raise DataLost(lost)


def tell_loss(lost: Sequence[LostRange], path: str | None, finder: str) -> None:
    """Into the log and, if there is a `path`, into the report there."""
    log_loss(lost)
    if lost and path is not None:
        write_report(lost, path, finder)


def log_loss(lost: Sequence[LostRange]) -> None:
    """Into the log of this process."""
    for each in lost:
        LOG.warning("data loss: %s", each)


def write_report(lost: Sequence[LostRange], path: str, finder: str, **about: Any) -> None:
    """All that one `finder` found, into one file in the folder `path`. The finder is a text
    that says who found it and when, and is the same when it is found again."""
    lines = [json.dumps({**each.to_json(), "text": str(each), **about}) + "\n" for each in lost]
    name = hashlib.sha256(finder.encode()).hexdigest()[:24]
    write_whole(path, f"lost-{name}{SUFFIX}", "".join(lines))


def write_whole(folder: str, name: str, text: str) -> None:
    """A file that is there with all of its text, or not at all."""
    os.makedirs(folder, exist_ok=True)
    rough = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(rough, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(rough, os.path.join(folder, name))


def read_report(path: str) -> list[dict[str, Any]]:
    """All lines of a report, in no particular order."""
    found = []
    for name in sorted(os.listdir(path)):
        if name.endswith(SUFFIX) and not name.startswith("."):
            with open(os.path.join(path, name), encoding="utf-8") as file:
                found += [json.loads(line) for line in file]
    return found


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
