"""What each replica's log holds, kept beside it as it changes.

After a step only what was appended is read, from the files themselves and not from what the
node believes; a cut or a restart makes the whole log be read again. An offset's entry is its
batch's epoch, base offset and checksum: enough to tell any two records apart, and cheap.
"""

from typing import NamedTuple

from tidelog.core.record.record_batch import RecordBatch, batches
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import BrokerId, LeaderEpoch, Offset

_READ_MAX = 1 << 20


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
"""Stands for what was deleted at the head before anybody saw it committed."""


def entry_of(batch: RecordBatch) -> Entry:
    return Entry(batch.leader_epoch, batch.base_offset, batch.crc, batch.max_timestamp)


def read_entries(log: Log, start: Offset, end: Offset) -> list[Entry]:
    """One entry for each offset from `start` to `end`, as the log's files have them."""
    entries: list[Entry] = []
    offset = start
    while offset < end:
        data = log.read_bytes(log.read(offset, _READ_MAX, end))
        before = offset
        for batch in batches(data):
            entry = entry_of(batch)
            last = batch.last_offset
            if last >= offset:
                entries += [entry] * (last + 1 - offset)
                offset = last + 1
        if offset == before:
            break
    return entries


def entries_on_disk(disk: Disk, log: Log) -> list[Entry | None]:
    """One for each offset from log start to log end; None where no sound batch holds it.

    Reads the files itself: a read by the log would find damage before the broker does.
    """
    start = log.log_start_offset
    found: list[Entry | None] = [None] * (log.log_end_offset - start)
    for segment in log.segments:
        try:
            for batch in whole_batches(disk, segment.path, 0, segment.size, check_crc=True):
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

    def read_again(self, disk: Disk, log: Log) -> None:
        """Take what the files hold. Where they are damaged, take what was there before: the
        broker may not have read it yet."""
        start, found = log.log_start_offset, entries_on_disk(disk, log)
        entries: list[Entry] = []
        for offset, entry in enumerate(found, start):
            known = entry or self.entry(offset)
            if known is None:
                break
            entries.append(known)
        self.start, self.entries = start, entries

    def is_sound(self, disk: Disk) -> bool:
        """Whether the files hold every record that the replica passes for having."""
        log = self.log
        return log is not None and entries_on_disk(disk, log) == self.entries

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
