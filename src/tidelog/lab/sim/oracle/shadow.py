"""The oracle's own copy of each replica's log.

After a step the oracle reads only the appended records. It reads the files themselves and does
not rely on the node's state. After a truncation or a restart it reads the whole log again. The
entry of an offset is its batch's epoch, base offset, checksum and largest timestamp: cheap, and
enough to distinguish any two records.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.node.measuring.journal import Note
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition


class Entry(NamedTuple):
    """The identity of the batch that contains an offset."""

    epoch: LeaderEpoch
    base: Offset
    crc: int
    newest_ms: int
    """The largest timestamp of its records."""

    def __str__(self) -> str:
        return f"batch {self.base} of epoch {self.epoch} (crc {self.crc:08x})"


DELETED = Entry(-1, -1, -1, -1)
"""Stands for records that the committed history lacks. Either they were deleted at the log start
before the oracle saw them committed, or the damaged leader that committed them had a hole."""


HOLE = Entry(-2, -2, -2, -2)
"""Stands for records that a damaged replica lacks, though it has later ones, until its repair."""


def entry_of(batch: RecordBatch) -> Entry:
    """Return what identifies a batch in every copy of a log."""
    return Entry(batch.leader_epoch, batch.base_offset, batch.crc, batch.max_timestamp)


def read_entries(
    disk: Disk, log: Log, start: Offset, end: Offset, *, check_crc: bool = False
) -> list[Entry]:
    """Return one entry for each offset from `start` to `end`, read from the log's files.

    It reads the files directly: a read through the log would find damage before the broker does.
    """
    entries: list[Entry] = []
    offset = start
    for segment in log.segments.from_offset(start):
        try:
            position = segment.locate(offset)
            data = disk.read(segment.path, position, segment.size - position)
            for batch in batches(data):
                if batch.base_offset > offset or (check_crc and not batch.crc_ok()):
                    return entries
                entry = entry_of(batch)
                last = min(batch.last_offset, end - 1)
                if last >= offset:
                    entries += [entry] * (last + 1 - offset)
                    offset = last + 1
        except (CorruptRecord, DiskError):
            break
    return entries


def entries_on_disk(disk: Disk, log: Log, *, damaged: bool) -> list[Entry | None]:
    """Return one entry for each offset from log start to log end.

    An entry is None where no sound batch contains the offset. In a damaged log, a batch is sound
    only if the log's epoch cache has the same leader epoch at its offset.

    It reads the files directly: a read through the log would find damage before the broker does.
    """
    start = log.log_start_offset
    found: list[Entry | None] = [None] * (log.log_end_offset - start)
    for segment in log.segments:
        expected = segment.base_offset
        try:
            for batch in whole_batches(disk, segment.path, 0, segment.size, check_crc=True):
                # The cache has no epoch for deleted records.
                epoch = log.epochs.epoch_for_offset(batch.base_offset)
                wrong = damaged and epoch not in (None, batch.leader_epoch)
                # A repair leaves out records before the log start.
                deleted = expected < batch.base_offset <= start
                if wrong or (batch.base_offset != expected and not deleted):
                    break  # no checksum covers offset and epoch
                expected = batch.next_offset
                for offset in range(max(batch.base_offset, start), batch.next_offset):
                    if offset - start < len(found):
                        found[offset - start] = entry_of(batch)
        except (InvalidBatch, DiskError):
            continue
    return found


class Shadow:
    """The state of one replica when the oracle last checked it."""

    __slots__ = (
        "broker",
        "cuts",
        "damage_from",
        "entries",
        "high_watermark",
        "incarnation",
        "leader_epoch",
        "leads",
        "log",
        "losses",
        "partition_epoch",
        "seen",
        "start",
    )

    def __init__(self, broker: BrokerId) -> None:
        self.broker = broker
        self.incarnation = 0
        self.start: Offset = 0
        """The log start. Records before it do not count, even if the files still have them."""
        self.entries: list[Entry] = []
        self.log: Log | None = None
        self.high_watermark: Offset = 0
        self.leader_epoch: LeaderEpoch = -1
        self.partition_epoch = -1
        self.leads = False
        self.cuts = -1
        self.damage_from: Offset | None = None
        """The first offset that the running process reported as damaged."""
        self.losses = 0
        self.seen: tuple[int, ...] = ()
        """Values that are cheap to compare; while they stay equal, the replica has not changed."""

    @property
    def end(self) -> Offset:
        return self.start + len(self.entries)

    def entry(self, offset: Offset) -> Entry | None:
        """Return the entry at an offset; None outside the log."""
        index = offset - self.start
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def first_difference(self, records: list[Entry]) -> Offset | None:
        """Return the first offset from the log start on where the log lacks one of `records`."""
        if len(records) <= self.start:
            return None
        wanted = records[self.start :] if self.start else records
        mine = self.entries[: len(wanted)]
        if mine == wanted:
            return None
        for index, (one, other) in enumerate(zip(mine, wanted, strict=False)):
            if one != other and other is not DELETED:
                return self.start + index
        if len(mine) == len(wanted):
            return None
        return self.start + len(mine)

    def drop_before(self, start: Offset) -> list[Entry]:
        """Remove the entries before `start` and return them."""
        removed = self.entries[: start - self.start]
        del self.entries[: start - self.start]
        self.start = start
        return removed

    def read_again(self, disk: Disk, log: Log, *, damaged: bool) -> None:
        """Replace the entries by those on disk.

        Where the files are damaged, keep the old entry: the broker may not have detected the
        damage yet.
        """
        start, found = log.log_start_offset, entries_on_disk(disk, log, damaged=damaged)
        entries: list[Entry] = []
        for offset, entry in enumerate(found, start):
            if offset >= start + len(entries):
                known = entry or self.entry(offset)
                # Records appended after the damage, in the same segment.
                behind = (log, offset, offset + 1)
                entries += [known] if known else read_entries(disk, *behind, check_crc=True)
            if offset >= start + len(entries):
                entries.append(HOLE)
        while entries and entries[-1] is HOLE:
            entries.pop()
        self.start, self.entries = start, entries

    def is_sound(self, disk: Disk) -> bool:
        """Return whether the files have every entry of this replica undamaged."""
        log = self.log
        return log is not None and entries_on_disk(disk, log, damaged=True) == self.entries

    def begin(self, log: Log) -> None:
        """Start with a new log, after a reassignment created the replica or recreated it."""
        self.log = log
        self.start = log.log_start_offset
        self.entries = []
        self.high_watermark = log.log_start_offset

    def noted(self, name: TopicPartition, notes: Sequence[Note]) -> None:
        """Read which damage of this replica its broker logged."""
        for note in notes:
            if note.event == "log_damaged" and note.values[:2] == name:
                offset: Offset = note.fields()["offset"]
                known = offset if self.damage_from is None else self.damage_from
                self.damage_from = min(known, offset)

    def adds_missing(
        self,
        reported: Sequence[tuple[Offset, Offset]],
        start: Offset,
        end: Offset,
        deleted_upto: Offset,
    ) -> bool:
        """Return whether the report of a drop of all records, from `start` to `end`, adds only
        records that the broker reported as missing at the start of its log.

        They were deleted, as all records before `deleted_upto`. The broker can't know that if its
        disk lied and lost the newer epochs. To it they are damaged, and count as lost.
        """
        known = self.damage_from
        first = reported[0][0] if len(reported) == 1 else start
        return (
            known is not None
            and known <= first < start <= deleted_upto
            and list(reported) == [(first, end)]
        )

    def forget_run(self) -> None:
        """Reset the state that a process keeps only in memory, because the process ended."""
        self.leader_epoch = self.partition_epoch = -1
        self.leads = False
        self.losses = 0
        self.damage_from = None
        self.seen = ()
