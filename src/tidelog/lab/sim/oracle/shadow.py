"""What each replica's log holds, kept beside it as it changes.

After a step only what was appended is read, from the files themselves and not from what the
node believes; a cut or a restart makes the whole log be read again. An offset's entry is its
batch's epoch, base offset and checksum: enough to tell any two records apart, and cheap.
"""

from typing import NamedTuple

from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import BrokerId, LeaderEpoch, Offset


class Entry(NamedTuple):
    """The batch that holds an offset."""

    epoch: LeaderEpoch
    base: Offset
    crc: int
    newest_ms: int
    """The largest timestamp of its records."""

    def __str__(self) -> str:
        return f"batch {self.base} of epoch {self.epoch} (crc {self.crc:08x})"


DELETED = Entry(-1, -1, -1, -1)
"""Stands for what was deleted at the head before anybody saw it committed, and for what a leader
lacks that is alone with its damage."""


HOLE = Entry(-2, -2, -2, -2)
"""Stands for what a damaged replica lacks while it has records behind it: it is being repaired."""


def entry_of(batch: RecordBatch) -> Entry:
    return Entry(batch.leader_epoch, batch.base_offset, batch.crc, batch.max_timestamp)


def read_entries(
    disk: Disk, log: Log, start: Offset, end: Offset, *, check_crc: bool = False
) -> list[Entry]:
    """One entry for each offset from `start` to `end`, as the log's files have them.

    Reads the files itself: a read by the log would find damage before the broker does.
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
    """One for each offset from log start to log end; None where no sound batch holds it. In a
    damaged log a leader epoch is sound only if the log's own list of epochs has it there.

    Reads the files itself: a read by the log would find damage before the broker does.
    """
    start = log.log_start_offset
    found: list[Entry | None] = [None] * (log.log_end_offset - start)
    for segment in log.segments:
        expected = segment.base_offset
        try:
            for batch in whole_batches(disk, segment.path, 0, segment.size, check_crc=True):
                # Of what was deleted the list has no epoch.
                epoch = log.epochs.epoch_for_offset(batch.base_offset)
                wrong = damaged and epoch not in (None, batch.leader_epoch)
                if batch.base_offset != expected or wrong:
                    break  # no checksum covers these
                expected = batch.next_offset
                for offset in range(max(batch.base_offset, start), batch.next_offset):
                    if offset - start < len(found):
                        found[offset - start] = entry_of(batch)
        except (InvalidBatch, DiskError):
            continue
    return found


class Shadow:
    """One replica as the oracle last saw it."""

    __slots__ = (
        "broker",
        "cuts",
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
        """The log start: what lies before it is nobody's business, though files still have it."""
        self.entries: list[Entry] = []
        self.log: Log | None = None
        self.high_watermark: Offset = 0
        self.leader_epoch: LeaderEpoch = -1
        self.partition_epoch = -1
        self.leads = False
        self.cuts = -1
        self.losses = 0
        self.seen: tuple[int, ...] = ()
        """Everything cheap to compare; while it stays the same, nothing has changed."""

    @property
    def end(self) -> Offset:
        return self.start + len(self.entries)

    def entry(self, offset: Offset) -> Entry | None:
        """What the replica has there; None outside its log."""
        index = offset - self.start
        return self.entries[index] if 0 <= index < len(self.entries) else None

    def first_difference(self, records: list[Entry]) -> Offset | None:
        """The first offset from the log start on at which it lacks one of `records`."""
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
        """Forget what lies before; the entries that went."""
        gone = self.entries[: start - self.start]
        del self.entries[: start - self.start]
        self.start = start
        return gone

    def read_again(self, disk: Disk, log: Log, *, damaged: bool) -> None:
        """Take what the files hold. Where they are damaged, take what was there before: the
        broker may not have read it yet."""
        start, found = log.log_start_offset, entries_on_disk(disk, log, damaged=damaged)
        entries: list[Entry] = []
        for offset, entry in enumerate(found, start):
            if offset >= start + len(entries):
                known = entry or self.entry(offset)
                # What was appended behind damage in the same segment.
                behind = (log, offset, offset + 1)
                entries += [known] if known else read_entries(disk, *behind, check_crc=True)
            if offset >= start + len(entries):
                entries.append(HOLE)
        while entries and entries[-1] is HOLE:
            entries.pop()
        self.start, self.entries = start, entries

    def is_sound(self, disk: Disk) -> bool:
        """Whether the files hold every record that the replica passes for having."""
        log = self.log
        return log is not None and entries_on_disk(disk, log, damaged=True) == self.entries

    def begin(self, log: Log) -> None:
        """The replica was made anew: a reassignment brought it here, perhaps once more."""
        self.log = log
        self.start = log.log_start_offset
        self.entries = []
        self.high_watermark = log.log_start_offset

    def forget_run(self) -> None:
        """The process ended: what was only in its memory is gone."""
        self.leader_epoch = self.partition_epoch = -1
        self.leads = False
        self.losses = 0
        self.seen = ()
