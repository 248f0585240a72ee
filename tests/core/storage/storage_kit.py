"""Logs and batches for the storage tests, and disks that fail on purpose."""

from collections.abc import Mapping, Sequence

from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.encoder import NO_PRODUCER, Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import RecordBatch, batches, parse
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets
from tidelog.core.storage.disk import Disk, DiskFull, replace_file
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import NEVER, LogConfig
from tidelog.core.storage.recovery import RecoveryReport, open_log
from tidelog.core.storage.retention import expired_segments
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

PARTITION = TopicPartition("orders", 0)
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=150)
"""A handful of batches a segment, an index entry for every third."""


def batch(
    base_offset: int,
    count: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = 1000,
    size: int = 10,
    producer: Producer = NO_PRODUCER,
    attributes: int = 0,
) -> RecordBatch:
    """Return a batch of `count` records; the first has `timestamp`, each later one more."""
    records = [
        Record(None, bytes([(base_offset + n) % 256]) * size, timestamp + n) for n in range(count)
    ]
    data = encode_batch(records, producer=producer, attributes=attributes)
    made = parse(data)
    made.assign(base_offset, epoch)
    return made


def retention_point(log: Log, wall_ms: int, high_watermark: int, *, now_ms: int = 0) -> int | None:
    """Return the log start that retention proposes; None if nothing has expired."""
    written = (log.segments, log.config, log.log_end_offset)
    expired = expired_segments(*written, high_watermark, wall_ms, now_ms)
    return expired[-1].end_offset if expired else None


def new_log(disk: Disk, config: LogConfig = SMALL, now_ms: int = 0) -> Log:
    return reopen(disk, config, now_ms=now_ms)[0]


def reopen(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    now_ms: int = 0,
    recovery_point: int | None = 0,
    log_start_offset: int = 0,
    known_end: int = 0,
    clean: bool = False,
    compacted: bool = False,
    cleaned_upto: int = NEVER,
) -> tuple[Log, RecoveryReport]:
    return open_log(
        disk,
        PARTITION,
        config,
        now_ms,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        known_end=known_end,
        clean=clean,
        cleaned_upto=cleaned_upto if compacted or config.cleanup_compact else None,
    )


def append(log: Log, made: Sequence[RecordBatch], now_ms: int = 0) -> None:
    """Append as replication does: write an epoch before its first record."""
    for one in made:
        if log.epochs.assign(one.leader_epoch, one.base_offset):
            log.write_epochs()
    log.append(made, now_ms)


def truncate(log: Log, end: int) -> None:
    """Truncate as replication does: records and epochs."""
    if log.epochs.truncate_to(log.truncate_to(end)):
        log.write_epochs()


def fill(log: Log, count: int, *, epoch: int = 0, now_ms: int = 0) -> None:
    """Append `count` batches of one record; timestamps rise with the offsets."""
    for _ in range(count):
        offset = log.log_end_offset
        append(log, [batch(offset, epoch=epoch, timestamp=1000 + offset)], now_ms)


def contents(log: Log) -> list[bytes]:
    """Return every batch of the log as bytes, read as a consumer does."""
    found: list[bytes] = []
    offset = log.segments.first.base_offset
    log.log_start_offset, start = offset, log.log_start_offset
    while offset < log.log_end_offset:
        region = log.read(offset, 300)
        if not region.length:
            break
        for one in batches(log.read_bytes(region)):
            found.append(bytes(one.view()))
            offset = one.next_offset
    log.log_start_offset = start
    return found


def write_offsets(disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a checkpoint as Kafka or an older release does, without a checksum."""
    disk.delete(layout.CHECKPOINT_CHECKSUMS)
    replace_file(disk, name, format_offsets(offsets))


def names(disk: MemoryDisk) -> list[str]:
    return disk.list_dir("orders-0")


class Crash(BaseException):
    """The process died. No handler may treat this as an I/O error."""


class StoppingDisk(MemoryDisk):
    """Fails in the middle of the n-th change; then the process is dead (`crash`) or continues."""

    def __init__(self, changes: int = 2**31, error: BaseException | None = None) -> None:
        super().__init__()
        self.changes = changes
        self.error = error or Crash()

    def _change(self) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise self.error

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        if self.changes == 0:
            joined = b"".join(buffers)
            super().append(path, [joined[: len(joined) // 2]])
        self._change()
        return super().append(path, buffers)

    def write(self, path: str, data: Buffer) -> None:
        if self.changes == 0:
            super().write(path, bytes(data)[: len(data) // 2])
        self._change()
        super().write(path, data)

    def truncate(self, path: str, size: int) -> None:
        self._change()
        super().truncate(path, size)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)

    def sync(self, path: str) -> None:
        self._change()
        super().sync(path)

    def sync_dir(self, path: str) -> None:
        self._change()
        super().sync_dir(path)

    def survivor(self) -> MemoryDisk:
        """The disk after the process died, with all data that was written."""
        disk = MemoryDisk()
        disk.files = {path: bytearray(data) for path, data in self.files.items()}
        disk.directories = set(self.directories)
        return disk


def full_disk(changes: int) -> StoppingDisk:
    return StoppingDisk(changes, DiskFull("no space left", "orders-0"))


class ForgetfulDisk(MemoryDisk):
    """Tracks which data was synced; `power_failure` returns the disk with only that data."""

    def __init__(self) -> None:
        super().__init__()
        self._synced: dict[str, bytes] = {}
        self._durable: dict[str, bytes] = {}

    def sync(self, path: str) -> None:
        super().sync(path)
        self._synced[path] = bytes(self.files[path])
        if path in self._durable:
            self._durable[path] = self._synced[path]

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self._synced:
            self._synced[new] = self._synced.pop(old)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        inside = {name for name in self.files if name.rpartition("/")[0] == path}
        gone = {name for name in self._durable if name.rpartition("/")[0] == path} - inside
        for name in gone:
            del self._durable[name]
        for name in inside:
            self._durable[name] = self._synced.get(name, b"")

    def power_failure(self) -> MemoryDisk:
        disk = MemoryDisk()
        disk.files = {path: bytearray(data) for path, data in self._durable.items()}
        disk.directories = set(self.directories)
        return disk
