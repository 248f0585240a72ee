"""Check a stopped broker's logs for damaged and missing records; predict its next startup.

Every batch of every segment is read: checksum, offsets, leader epoch. After a damaged batch the
check continues at the next valid one, so each damaged range has a start and an end. To predict
the startup, the broker's own recovery opens the folder on an overlay (overlay_disk.py).
"""

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidelog.apps.repair.overlay_disk import OverlayDisk
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.record.record_batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.slotted import replace
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.disk import DELETED_SUFFIX, Disk, DiskError, read_file
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.storage.recovery import RecoveryReport
from tidelog.core.storage.segment.batch_order import BatchOrder
from tidelog.core.storage.segment.batch_scan import BatchSpan, spans
from tidelog.core.types import Offset, TopicId, TopicPartition

_CHUNK = 1 << 20


class DamagedRange(NamedTuple):
    """Records from `start` up to `end`, exclusive, that can't be read."""

    start: Offset
    end: Offset
    reason: str

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1}: {self.reason}"


class Checkpoints(NamedTuple):
    """The offsets of all logs in the broker's checkpoints."""

    log_starts: Mapping[TopicPartition, Offset]
    recovery_points: Mapping[TopicPartition, Offset]
    high_watermarks: Mapping[TopicPartition, Offset]
    cleaner_offsets: Mapping[TopicPartition, Offset]

    def known_end(self, partition: TopicPartition) -> Offset:
        """Return the largest offset that the log once reached, according to the checkpoints."""
        return max(self.recovery_points.get(partition, 0), self.high_watermarks.get(partition, 0))


class LogCheck(NamedTuple):
    """One replica's log as it is on disk."""

    partition: TopicPartition
    topic_id: TopicId | None
    log_start_offset: Offset
    log_end_offset: Offset
    damaged: list[DamagedRange]
    at_start: list[str]
    """What the broker's next startup will do to its files."""

    @property
    def name(self) -> str:
        return f"{self.partition.topic}/{self.partition.partition}"

    def as_data(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "topic_id": None if self.topic_id is None else layout.format_topic_id(self.topic_id),
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "damaged": [each._asdict() for each in self.damaged],
            "at_start": self.at_start,
        }

    def has(self, wanted: DamagedRange) -> bool:
        """Return whether every record of the range is here and undamaged."""
        if not self.log_start_offset <= wanted.start < wanted.end <= self.log_end_offset:
            return False
        return all(each.end <= wanted.start or wanted.end <= each.start for each in self.damaged)


def check_folder(disk: Disk) -> tuple[list[LogCheck], list[str]]:
    """Check every log of a broker's folder; also return the warnings about the whole folder.

    Raises DiskError, CheckpointError and UnsupportedFormat, as startup does.
    """
    overlay = OverlayDisk(disk)
    opened = LogDirectory.open(overlay, int(time.time() * 1000), lambda _: LogConfig())
    checkpoints = read_checkpoints(disk)
    found = []
    for partition, report in sorted(opened.reports.items()):
        log = opened.logs[partition]
        ranges, end = _check_log(disk, partition, checkpoints)
        start = min(log.log_start_offset, *(each.start for each in ranges), end)
        found.append(LogCheck(partition, log.topic_id, start, end, ranges, _at_start(report)))
    return found, opened.warnings


def _at_start(report: RecoveryReport) -> list[str]:
    """Return what startup will do, except for removing files of deleted segments."""
    left = [path for path in report.deleted if not path.endswith(DELETED_SUFFIX)]
    return replace(report, deleted=left).lines()


def read_checkpoints(disk: Disk) -> Checkpoints:
    """Read the checkpoints; one that can't be read counts as empty."""
    names = (
        layout.LOG_STARTS,
        layout.RECOVERY_POINTS,
        layout.HIGH_WATERMARKS,
        layout.CLEANER_OFFSETS,
    )
    return Checkpoints(*(_offsets(disk, name) for name in names))


def _offsets(disk: Disk, name: str) -> Mapping[TopicPartition, Offset]:
    try:
        return checkpoint.parse_offsets(name, read_file(disk, name) or b"")
    except (CheckpointError, DiskError):
        return {}


def _check_log(
    disk: Disk, partition: TopicPartition, checkpoints: Checkpoints
) -> tuple[list[DamagedRange], Offset]:
    """Return the damaged ranges and the log end offset."""
    folder = layout.partition_dir(partition)
    epochs = _epochs(disk, folder)
    bases = _bases(disk, folder)
    known_end = checkpoints.known_end(partition)
    if not bases:
        missing = [DamagedRange(0, known_end, "all segments are missing")] if known_end else []
        return missing, known_end
    ranges = []
    first = epochs.entries[0].start_offset if epochs.entries else bases[0]
    if first < bases[0]:
        ranges.append(DamagedRange(first, bases[0], "the first segments are missing"))
    gaps = partition in checkpoints.cleaner_offsets
    order = BatchOrder(epochs, gaps)
    end = bases[0]
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        segment = _Segment(disk, folder, base, following, order, gaps)
        ranges += segment.damaged_ranges()
        end = segment.end
    if end < known_end:
        ranges.append(DamagedRange(end, known_end, "the end of the log is missing"))
    return ranges, max(end, known_end)


def _bases(disk: Disk, folder: str) -> list[Offset]:
    names = map(layout.parse_file, disk.list_dir(folder))
    return sorted(
        name.base_offset
        for name in names
        if name is not None and name.kind == layout.LOG and not name.suffix
    )


def _epochs(disk: Disk, folder: str) -> LeaderEpochs:
    """Return the leader epochs; empty if the file can't be read, so that any epoch is valid."""
    path = f"{folder}/{layout.LEADER_EPOCHS}"
    try:
        return LeaderEpochs(checkpoint.read_epochs(disk, path) or [])
    except (CheckpointError, DiskError):
        return LeaderEpochs()


class _Segment:
    """The check of one segment."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base: Offset,
        following: Offset | None,
        order: BatchOrder,
        gaps: bool,
    ) -> None:
        self._disk = disk
        self._path = f"{folder}/{layout.file_name(base, layout.LOG)}"
        self._following = following
        """Where the next segment begins; None for the last one."""
        self._order = order
        self._gaps = gaps
        """Whether compaction may have removed offsets."""
        self._size = disk.size(self._path)
        self.end = base
        order.begin_segment(base)

    def damaged_ranges(self) -> Iterator[DamagedRange]:
        """Yield each damaged range of the segment.

        In the last segment, bytes after the last sound batch are ignored: they may be a torn write
        or reserved space.
        """
        position, last = 0, self.end
        while position < self._size:
            batch, reason = self._next(position)
            if batch is not None:
                last, self.end = batch.base_offset, batch.next_offset
                position += batch.size
                continue
            later = self._next_sound(position)
            if later is None and self._following is None:
                return
            end = self._following if later is None else later[1].base_offset
            assert end is not None
            # Garbage after the last batch damages no record, but the segment must be replaced.
            start = self.end if self.end < end else last
            yield DamagedRange(start, end, f"{self._path}: {reason} at byte {position}")
            position, self.end = (self._size, end) if later is None else (later[0], end)
            self._order.begin_segment(end)
        if self._following is not None and self.end < self._following and not self._gaps:
            yield DamagedRange(self.end, self._following, f"{self._path}: ends too early")

    def _next(self, position: int) -> tuple[RecordBatch | None, str]:
        """Return the batch at `position` if it is sound and the next in order, else the reason."""
        batch, reason = self._read(position)
        if batch is None:
            return None, reason
        problem = self._order.problem(batch, partial(self._span_at, position + batch.size))
        return (batch, "") if problem is None else (None, problem)

    def _read(self, position: int) -> tuple[RecordBatch | None, str]:
        """Return the batch at `position` if it is sound and its offsets belong to this segment."""
        try:
            prefix = self._disk.read(self._path, position, PREFIX_SIZE)
            size = int.from_bytes(prefix[8:], signed=True) + PREFIX_SIZE
            if not HEADER_SIZE <= size <= self._size - position:
                return None, "invalid batch length"
            batch = parse(self._disk.read(self._path, position, size))
        except (CorruptRecord, DiskError) as error:
            return None, str(error)
        if not batch.crc_ok():
            return None, "checksum differs"
        if self._following is not None and batch.last_offset >= self._following:
            return None, f"offset {batch.base_offset} instead of {self.end}"
        return batch, ""

    def _span_at(self, position: int) -> BatchSpan | None:
        """Return the batch header at `position`, without verifying it."""
        try:
            return next(spans(self._disk, self._path, position, self._size), None)
        except DiskError:
            return None

    def _next_sound(self, damaged: int) -> tuple[int, RecordBatch] | None:
        """Return the next sound batch after the damaged one, and its position."""
        for position in self._candidates(damaged):
            batch, _ = self._read(position)
            if batch is not None and batch.base_offset > self.end:
                return position, batch
        return None

    def _candidates(self, damaged: int) -> Iterator[int]:
        """Yield positions of possible headers: plausible offset and magic byte."""
        at = damaged + 1
        while at < self._size:
            chunk = self._disk.read(self._path, at, _CHUNK + HEADER_SIZE)
            for found in _headers(chunk, self.end):
                if found < _CHUNK:
                    yield at + found
            at += _CHUNK


def _headers(chunk: bytes, least: Offset) -> Iterator[int]:
    """Return positions of bytes that look like a header.

    These have magic 2 at byte 16, and an offset with the first bytes of `least`.
    """
    header = re.compile(b"(?s)(?=" + re.escape(least.to_bytes(8)[:4]) + b".{12}\\x02)")
    return (match.start() for match in header.finditer(chunk))
