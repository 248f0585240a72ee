"""A lost range, said in words and as JSON, and what is done about it.

`fail` stops the query before a row too few is taken for all rows. `report` goes on and writes
the ranges where the user asks, `skip` goes on and counts. Always true: a file of the report is
there whole or not at all, and the same loss found again (a task tried again, a batch played
again) is written to the same file, not to another.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from tidelog.core.types import LeaderEpoch, Offset

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
