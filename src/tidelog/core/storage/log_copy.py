"""The copy of a log that is being moved to another log directory of the same broker (KIP-113).

The copy is made in a folder `topic-partition.<id>-future` in the target directory, piece by piece.
When it has caught up, the caller switches to it (`LogDirectories.complete_move`):

1. the rest is copied, all files are synced, and the target's checkpoints get the log's offsets;
2. a synced file marks the folder as complete;
3. the log's folder in the source directory is renamed to `-delete`;
4. the copy's folder gets the name of the partition.

`settle_copies` runs at startup, after a crash between any two steps. A folder without the mark is
deleted, and so is any copy whose log still exists. Otherwise a complete copy is used as the log.

Invariants: nothing is appended to the log between the steps 1 and 4. A copy is used only if all log
directories can be read: a directory that is offline may have a newer log.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.disk import Disk, DiskError, read_file, replace_file
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import Offset

SEGMENT_COST_BYTES = 16_384
"""Cost of each segment besides its bytes: many small segments cost time too."""


class CopyLimits(NamedTuple):
    """The largest amount of copying in one step of the broker."""

    piece_bytes: int = 1_048_576
    """How many bytes are copied in one turn."""
    sync_bytes: int = 16_777_216
    """Copied bytes after which the files are synced, before more are copied."""
    rest_bytes: int = 1_048_576
    """At most this many copied bytes are synced in the step of the switch."""
    rest_files: int = 32


_INDEXES = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX)


class LogCopy:
    """The copy of one log, in the directory of `target`."""

    def __init__(self, log: Log, source: Disk, target: Disk, limits: CopyLimits) -> None:
        self.log = log
        self.folder = layout.marked_dir(log.partition, log.topic_id, "future")
        self.size = 0
        """How many bytes of batches the copy has."""
        self.copied = 0
        """How many bytes of batches were copied so far, including those that were deleted again."""
        self._source = source
        self._target = target
        self._limits = limits
        self._generation: int | None = None
        """The log's generation when the copy was started; None before."""
        self._segments: list[Segment] = []
        """The segments that are copied; of the last one, the first `_position` bytes."""
        self._position = 0
        self._snapshots: set[str] = set()
        self._unsynced: dict[str, None] = {}
        self._unsynced_bytes = 0

    def _begin(self) -> None:
        """Start the copy with an empty folder."""
        remove_copy(self._target, self.folder)
        self._target.make_dir(self.folder)
        self._target.sync_dir("")
        self._generation = self.log.generation
        self._segments.clear()
        self._snapshots.clear()
        self._unsynced.clear()
        self.size = self._position = self._unsynced_bytes = 0

    # -- progress --------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether the copy has all batches and all segments of the log."""
        if not self._segments:
            return False
        last = self._segments[-1]
        return last is self.log.segments.active and self._position == last.size

    @property
    def end_offset(self) -> Offset:
        """The offset up to which records are copied; the start of a segment if a part of it is."""
        if not self._segments:
            return self.log.segments.first.base_offset
        last = self._segments[-1]
        if self._position < last.size:
            return last.base_offset
        return self.log.segments.end_of(last) or self.log.log_end_offset

    @property
    def needs_sync(self) -> bool:
        """Whether files have to be synced before more is copied, or before the switch."""
        if not self.caught_up:
            return self._unsynced_bytes >= self._limits.sync_bytes
        limits = self._limits
        return self._unsynced_bytes > limits.rest_bytes or len(self._unsynced) > limits.rest_files

    def take_unsynced(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the files and folders to sync; the caller syncs them."""
        files = tuple(self._unsynced)
        self._unsynced = {}
        self._unsynced_bytes = 0
        return files, (self.folder,)

    # -- copying ---------------------------------------------------------------------------

    def work(self, most: int) -> None:
        """Copy at most this many bytes of batches. Raises DiskError."""
        if not self._follow_deletions():
            self._begin()
        segments = list(self.log.segments)
        while most > 0:
            if not self._segments:
                self._open(segments[0])
            segment = self._segments[-1]
            rest = segment.size - self._position
            if rest > 0:
                most -= self._copy_bytes(segment, min(rest, most))
            elif segment is segments[-1]:
                return
            else:
                for kind in _INDEXES:
                    self._copy_file(segment.file(kind))
                self._open(segments[len(self._segments)])
                most -= SEGMENT_COST_BYTES

    def _follow_deletions(self) -> bool:
        """Delete the copies of segments that retention deleted. Return False if the log was changed
        in another way, by a truncation, a repair or compaction."""
        if self._generation != self.log.generation:
            return False
        segments = self.log.segments
        first = segments.first.base_offset
        while self._segments and self._segments[0].base_offset < first:
            segment = self._segments.pop(0)
            copied = segment.size if self._segments else self._position
            self.size -= copied
            for kind in layout.SEGMENT_KINDS:
                path = self._path(segment.file(kind))
                self._target.delete(path)
                self._unsynced.pop(path, None)
            if not self._segments:
                self._position = 0
        return list(segments)[: len(self._segments)] == self._segments

    def _open(self, segment: Segment) -> None:
        path = self._path(segment.path)
        self._target.write(path, b"")
        self._unsynced[path] = None
        self._segments.append(segment)
        self._position = 0
        snapshot = segment.file(layout.SNAPSHOT)
        if self._source.exists(snapshot):
            self._copy_file(snapshot)
            self._snapshots.add(snapshot)

    def _copy_bytes(self, segment: Segment, length: int) -> int:
        data = self._source.read(segment.path, self._position, length)
        if len(data) != length:
            raise DiskError(f"the file ends at byte {self._position + len(data)}", segment.path)
        path = self._path(segment.path)
        at = self._target.append(path, [data])
        if at != self._position:
            raise DiskError(f"file ends at byte {at} instead of {self._position}", path)
        self._unsynced[path] = None
        self._position += length
        self._unsynced_bytes += length
        self.size += length
        self.copied += length
        return length

    def _copy_file(self, path: str) -> None:
        """Copy a small file. An index that is missing is rebuilt when it is needed."""
        copy = self._path(path)
        data = read_file(self._source, path)
        if data is None:
            self._target.delete(copy)
            self._unsynced.pop(copy, None)
            return
        self._target.write(copy, data)
        self._unsynced[copy] = None

    def _path(self, path: str) -> str:
        return f"{self.folder}/{path.rpartition('/')[2]}"

    # -- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Copy the rest and all small files, and sync everything that is not synced."""
        self.work(self._limits.rest_bytes)
        while not self.caught_up:
            self.work(self._limits.rest_bytes)
        active = self._segments[-1]
        active.load()
        active.write_indexes()
        for kind in _INDEXES:
            self._copy_file(active.file(kind))
        wanted = set(self.log.snapshot_paths)
        for path in self._snapshots - wanted:
            self._target.delete(self._path(path))
            self._unsynced.pop(self._path(path), None)
        for path in sorted(wanted - self._snapshots):
            self._copy_file(path)
        self._snapshots = wanted
        self._copy_file(f"{self.log.directory}/{layout.ACKS_HISTORY}")
        small = {layout.LEADER_EPOCHS: checkpoint.format_epochs(self.log.epochs.entries)}
        if self.log.topic_id is not None:
            topic = checkpoint.format_topic_metadata(self.log.topic_id)
            small[layout.PARTITION_METADATA] = topic
        for name, data in small.items():
            path = f"{self.folder}/{name}"
            self._target.write(path, data)
            self._unsynced[path] = None
        self._target.sync_many(*self.take_unsynced())

    def mark_complete(self) -> None:
        """Mark the copy as complete; all its files are synced."""
        mark = f"{self.folder}/{layout.MOVE_COMPLETE}"
        replace_file(self._target, mark, self.log.directory.encode())

    def use(self) -> None:
        """Give the folder the partition's name."""
        _use(self._target, self.folder, self.log.directory)

    def remove(self) -> None:
        remove_copy(self._target, self.folder)


def remove_copy(disk: Disk, folder: str) -> None:
    """Delete the folder of a copy, the mark first: a part of it must not look complete. Raises
    DiskError if it can't be read: `is_dir` alone would call it missing."""
    if disk.list_dir(folder) or disk.is_dir(folder):
        disk.delete(f"{folder}/{layout.MOVE_COMPLETE}")
        disk.sync_dir(folder)
        disk.delete_dir(folder)


def _use(disk: Disk, folder: str, name: str) -> None:
    disk.rename(folder, name)
    disk.sync_dir("")
    disk.delete(f"{name}/{layout.MOVE_COMPLETE}")


def settle_copies(disks: Mapping[int, Disk], *, every: bool) -> dict[int, DiskError]:
    """Use or delete the copies that a crash left, before the logs are opened. `every`: whether
    these are all directories of the broker. Return the disks that failed."""
    failed: dict[int, DiskError] = {}
    present: set[str] = set()
    copies: list[tuple[int, str]] = []
    for number, disk in disks.items():
        for name in disk.list_dir(""):
            if layout.parse_dir(name) is not None:
                present.add(name)
            elif layout.parse_mark(name) == "future" and disk.is_dir(name):
                copies.append((number, name))
    for number, folder in copies:
        disk = disks[number]
        try:
            log = _completed(disk, folder)
            if log is None or log in present:
                remove_copy(disk, folder)
            elif every:
                _use(disk, folder, log)
                present.add(log)
        except DiskError as error:
            failed[number] = error
    return failed


def _completed(disk: Disk, folder: str) -> str | None:
    """Return the name of the log whose complete copy is in this folder; None without a mark."""
    mark = read_file(disk, f"{folder}/{layout.MOVE_COMPLETE}")
    name = (mark or b"").decode(errors="replace")
    return name if layout.parse_dir(name) is not None else None
