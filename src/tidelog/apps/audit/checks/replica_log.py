"""One replica of a partition, combined from the summaries of the scan tasks.

A cleaner removes records below its checkpoint and never changes one. If a stop interrupts it, it
may have cleaned closed segments above the checkpoint, but never the active segment. A replica
also gets gaps when it copies a cleaned log, so all replicas of a partition count. Where a cleaner
may have removed records, missing records are not damage.
"""

import os
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from operator import xor
from typing import NamedTuple

from tidelog.apps.audit.folders.log_dir import LogDirFacts
from tidelog.apps.audit.folders.partition_folder import FolderFacts
from tidelog.apps.audit.report.findings import Finding, Place
from tidelog.apps.audit.scan.summary import EpochRun, Hole, Run, StretchSummary
from tidelog.core.storage import layout
from tidelog.core.types import INTERNAL_TOPICS

METADATA_TOPIC = "__cluster_metadata"


class SegmentSummary(NamedTuple):
    """A segment file with all its stretches in order."""

    file: str
    base_offset: int
    stretches: list[StretchSummary]

    @property
    def size(self) -> int:
        return self.stretches[-1].size

    @property
    def batches(self) -> int:
        return sum(each.batches for each in self.stretches)

    @property
    def max_timestamp(self) -> int:
        return max(each.max_timestamp for each in self.stretches)

    @property
    def vanished(self) -> bool:
        return any(each.vanished for each in self.stretches)

    @property
    def is_read(self) -> bool:
        return not self.vanished and not any(each.error for each in self.stretches)

    @property
    def runs(self) -> list[Run]:
        return [run._replace(file=self.file) for each in self.stretches for run in each.runs]

    @property
    def epochs(self) -> list[EpochRun]:
        return [run._replace(file=self.file) for each in self.stretches for run in each.epochs]

    @property
    def holes(self) -> list[Hole]:
        """The holes of all stretches; adjacent ones are merged."""
        merged: list[Hole] = []
        for each in self.stretches:
            for hole in each.holes:
                if merged and merged[-1].end == hole.position:
                    before = merged.pop()
                    zeros = before.zeros and hole.zeros
                    hole = before._replace(end=hole.end, zeros=zeros, torn=hole.torn)
                merged.append(hole._replace(file=self.file))
        return merged

    @property
    def is_chained(self) -> bool:
        """Whether each stretch ended where the next one began, so all splits were at batches."""
        pairs = zip(self.stretches, self.stretches[1:], strict=False)
        return all(a.end == b.start or a.vanished or a.error for a, b in pairs)


class ReplicaLog:
    """A replica: a partition in one log directory, with its findings."""

    def __init__(
        self,
        log_dir: LogDirFacts,
        topic: str,
        partition: int,
        folder: FolderFacts,
        segments: list[SegmentSummary],
    ) -> None:
        self.log_dir = log_dir
        self.place = Place(log_dir.name, topic, partition)
        self.topic, self.partition = topic, partition
        self.folder = folder
        self.segments = sorted(segments, key=lambda each: each.base_offset)
        self.name = f"{topic}-{partition}"
        self.damaged: list[tuple[int, int]] = [
            (first, last)
            for segment in segments
            for each in segment.stretches
            for first, last in each.bad
        ]
        """Offset ranges with reported damage, which explains other errors in them."""
        self.cleaning = Cleaning()
        """The state of compaction of the partition; set when all replicas are known."""
        self.in_place: list[Run] = []
        """Runs of batches at the right place; set by `lay_out`."""
        self.misplaced: list[Run] = []
        self.jumps: list[tuple[int, int]] = []
        """Offsets that a compacted log lacks for an unknown reason; others may have them."""
        self.reshaped: set[str] = set()
        """Segments with missing or misplaced batches."""
        self.findings: list[Finding] = []

    @property
    def replica(self) -> str:
        return self.log_dir.name

    @property
    def clean(self) -> bool:
        """Whether the broker shut down cleanly."""
        return self.log_dir.clean

    @property
    def is_thinned(self) -> bool:
        """Whether batches have fewer records than offsets."""
        return any(each.thinned for segment in self.segments for each in segment.stretches)

    @property
    def is_read_in_part(self) -> bool:
        """Whether the audit did not read all segments: not requested, deleted or unreadable."""
        some = len(self.folder.segments) > len(self.segments) or bool(self.folder.error)
        return some or any(segment.vanished for segment in self.segments)

    @property
    def cleaner_checkpoint(self) -> int:
        """The offset in the cleaner's checkpoint; -1 if it has none."""
        noted = self.log_dir.offset("cleaner", self.name)
        return -1 if noted is None else noted

    @property
    def active_base(self) -> int:
        """The base offset of the active segment: the highest one that the audit saw."""
        return max([*self.folder.segments, *(s.base_offset for s in self.segments)], default=0)

    @property
    def high_watermark(self) -> int | None:
        return self.log_dir.offset("high_watermark", self.name)

    @property
    def recovery_point(self) -> int | None:
        return self.log_dir.offset("recovery_point", self.name)

    @property
    def guaranteed_end(self) -> int:
        """The log end that the replica's own checkpoints guarantee at least."""
        return max(self.high_watermark or 0, self.recovery_point or 0)

    @property
    def log_start(self) -> int:
        """The log start: the checkpoint's offset, or the first segment's if that is higher."""
        first = self.segments[0].base_offset if self.segments else 0
        checkpointed = self.log_dir.offset("log_start", self.name) or 0
        return max(first, checkpointed if checkpointed <= self.log_end else 0)

    @property
    def log_end(self) -> int:
        """The highest offset at the right place, plus one; 0 until `lay_out` sets it."""
        return self._log_end if self._log_end is not None else 0

    _log_end: int | None = None

    def end_at(self, offset: int) -> None:
        self._log_end = offset

    @property
    def batches(self) -> int:
        return sum(segment.batches for segment in self.segments)

    @property
    def digest(self) -> int:
        """The digest of all batches; equal digests mean equal logs."""
        stretches = (each for segment in self.segments for each in segment.stretches)
        return reduce(xor, (each.digest for each in stretches), 0)

    @property
    def producers_cross(self) -> bool:
        """Whether a producer may have batches in several stretches."""
        stretches = [each for segment in self.segments for each in segment.stretches]
        return sum(each.producers > 0 for each in stretches) > 1

    @property
    def records(self) -> int:
        return sum(each.records for segment in self.segments for each in segment.stretches)

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def epochs(self) -> list[EpochRun]:
        """The epoch runs in log order."""
        return [run for segment in self.segments for run in segment.epochs]

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of the batch that has the offset; None if no batch has it."""
        return next((run.epoch for run in self.epochs if run.first <= offset <= run.last), None)

    def add(self, *findings: Finding) -> None:
        self.findings += findings

    def holds(self, first: int, last: int) -> bool:
        """Return whether the log has any of these offsets at the right place."""
        return any(run.first <= last and first <= run.last for run in self.in_place)

    def is_all_damaged(self, first: int, last: int) -> bool:
        """Return whether reported damage covers all these offsets."""
        for a, b in sorted(self.damaged):
            if a <= first <= b:
                first = b + 1
        return first > last

    def has_damage_in(self, first: int, last: int) -> bool:
        """Return whether reported damage overlaps these offsets."""
        return any(a <= last and first <= b for a, b in self.damaged)


def segments_of(rows: Iterable[tuple[str, StretchSummary]]) -> list[SegmentSummary]:
    """Combine stretches, each with its path, into segments."""
    by_file: dict[str, list[StretchSummary]] = {}
    for path, summary in rows:
        by_file.setdefault(os.path.basename(path), []).append(summary)
    segments = []
    for file, stretches in by_file.items():
        parsed = layout.parse_file(file)
        assert parsed is not None
        ordered = sorted(stretches, key=lambda each: each.start)
        segments.append(SegmentSummary(file, parsed.base_offset, ordered))
    return segments


class Cleaning(NamedTuple):
    """The state of compaction of a partition, derived from all its replicas."""

    compacted: bool = False
    upto: int = 0
    """Below this offset, a cleaner may have removed any record."""
    has_checkpoint: bool = False
    """Whether a replica has a cleaner checkpoint for the partition."""


def cleaning_of(logs: Sequence[ReplicaLog]) -> Cleaning:
    """Return the state of compaction of a partition.

    Without a checkpoint, batches with fewer records than offsets prove a cleaner only if most
    replicas have some. Otherwise they are damage. Internal topics are always compacted.
    """
    newest = max(log.active_base for log in logs)
    checkpoints = [
        min(log.cleaner_checkpoint, newest) for log in logs if log.cleaner_checkpoint >= 0
    ]
    thinned = sum(log.is_thinned for log in logs)
    internal = any(log.topic in INTERNAL_TOPICS for log in logs)
    if not checkpoints and not internal and thinned * 2 <= len(logs):
        return Cleaning()
    unknown_upto = not checkpoints and thinned
    at_work = [log.active_base for log in logs if unknown_upto or not log.clean]
    swapped = any(segment.vanished for log in logs for segment in log.segments)
    anywhere = swapped or (len(logs) == 1 and not checkpoints)  # by a cleaner without a checkpoint
    committed = [log.high_watermark or 0 for log in logs if anywhere]
    seen = [_thinned_upto(log) for log in logs]
    return Cleaning(True, max([*checkpoints, *at_work, *committed, *seen, 0]), bool(checkpoints))


def _thinned_upto(log: ReplicaLog) -> int:
    """Return the end of the last closed segment in which several batches lack records.

    A broker that stops while its cleaner works leaves a checkpoint below that offset.
    """
    ends = [
        after.base_offset
        for segment, after in pairwise(log.segments)
        if sum(stretch.thinned for stretch in segment.stretches) > 1
    ]
    return max(ends, default=0)
