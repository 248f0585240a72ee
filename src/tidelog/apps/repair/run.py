"""One run of `tidelog repair`: lock the folder, check it, and repair it with `--from`.

Invariants: nothing is written without a source, or with `plan`. A log is changed only if the
source has every damaged range of it, of the same topic id and leader epochs. Each segment is
replaced as a whole; a crash leaves the old one or the new one (core/storage/repair.py).
"""

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.apps.repair.log_check import Checkpoints, LogCheck, check_folder, read_checkpoints
from tidelog.apps.repair.overlay_disk import OverlayDisk
from tidelog.core.record.record_batch import RecordBatch, batches
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import UnsupportedFormat, open_log
from tidelog.core.storage.repair import CannotRepair, LogRepair
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.os_disk import OsDisk
from tidelog.shell.store.log_dir_lock import LOCK_NAME, LogDirInUse, LogDirLock, is_free

WORK_BYTES = 1 << 20


class Source:
    """The folder to copy records from. `disk` is an overlay, so the folder does not change."""

    def __init__(self, disk: Disk, checks: list[LogCheck]) -> None:
        self._disk = disk
        self._checks = {check.partition: check for check in checks}

    def problem(self, damaged: LogCheck) -> str | None:
        """Return why this folder can't repair the log; None if it can."""
        other = self._checks.get(damaged.partition)
        if other is None:
            return "the other folder has no replica of this partition"
        if damaged.topic_id is not None and other.topic_id != damaged.topic_id:
            return "the topic ids differ: it is another topic with the same name"
        for each in damaged.damaged:
            if not other.has(each):
                return f"the other folder lacks offsets {each.start} to {each.end - 1} too"
        return None

    def log(self, partition: TopicPartition) -> Log:
        check = self._checks[partition]
        return _open(self._disk, partition, check.log_start_offset, check.log_end_offset)


def replace_damage(disk: Disk, check: LogCheck, checkpoints: Checkpoints, source: Log) -> None:
    """Replace the damaged ranges of one log. Raises CannotRepair, DiskError."""
    partition = check.partition
    log_start = checkpoints.log_starts.get(partition, 0)
    log = _open(disk, partition, log_start, check.log_end_offset)
    log.log_start_offset = min(log.log_start_offset, *(each.start for each in check.damaged))
    if partition not in checkpoints.cleaner_offsets:
        log.before_gap = _allow
    now_ms = int(time.time() * 1000)
    inside = [each.start for each in check.damaged if each.start < log.log_end_offset]
    repair = LogRepair(disk, log, inside, now_ms)
    while not repair.done:
        repair.work(WORK_BYTES)
        if repair.needed is not None:
            start, end = repair.needed
            repair.supply(list(_records(source, log, start, end)), end)
        if repair.ready:
            repair.put_in_place(now_ms)
    for batch in _records(source, log, log.log_end_offset, check.damaged[-1].end):
        log.epochs.assign(batch.leader_epoch, batch.base_offset)
        log.append([batch], now_ms)
    log.write_epochs()
    log.close()


def _records(source: Log, log: Log, start: Offset, end: Offset) -> Iterator[RecordBatch]:
    """Yield the batches of the source; their leader epochs must be those of this log."""
    while start < end:
        data = source.read_bytes(source.read(start, WORK_BYTES))
        found = [batch for batch in batches(data) if batch.base_offset < end]
        if not found:
            return
        for batch in found:
            filed = log.epochs.epoch_for_offset(batch.base_offset)
            known = batch.base_offset < log.log_end_offset
            if known and filed not in (None, batch.leader_epoch):
                raise CannotRepair(
                    f"offset {batch.base_offset} has leader epoch {batch.leader_epoch} in the"
                    f" other folder, but {filed} in this folder"
                )
            yield batch
        start = found[-1].next_offset


def _open(disk: Disk, partition: TopicPartition, log_start: Offset, recovery_point: Offset) -> Log:
    """Open a log as after a clean stop: records after a damaged batch are kept."""
    log, _ = open_log(
        disk,
        partition,
        LogConfig(),
        0,
        recovery_point=recovery_point,
        log_start_offset=log_start,
        clean=True,
    )
    return log


def _allow() -> None:
    """Accept a gap that is copied from the other folder; the log's own gaps are damage."""


class CannotCheck(Exception):
    """The folder can't be checked or is in use. The text is one line with the remedy."""


class Repaired(NamedTuple):
    """The check of one log, and the result of its repair."""

    check: LogCheck
    problem: str | None = None
    """Why the log could not be repaired; None if it was, or if no repair was tried."""
    mended: bool | None = None
    """None if no repair was tried, False if it was only planned."""


class Report(NamedTuple):
    """The result for a whole folder."""

    folder: str
    partitions: list[Repaired]
    remarks: list[str]

    @property
    def holds(self) -> bool:
        return all(each.mended or not each.check.damaged for each in self.partitions)

    def as_data(self) -> dict[str, Any]:
        partitions = [
            {**each.check.as_data(), "problem": each.problem, "mended": bool(each.mended)}
            for each in self.partitions
        ]
        return {"folder": self.folder, "partitions": partitions, "remarks": self.remarks}


def run(folder: str, source: str | None, *, plan: bool) -> Report:
    """Check a broker's folder, and replace its damaged records with those of `source`.

    Raises CannotCheck.
    """
    for each in (folder, source):
        _check_usable(each)
    try:
        return _run(folder, source, plan)
    except LogDirInUse as error:
        raise CannotCheck(str(error)) from error
    except (CheckpointError, DiskError, UnsupportedFormat) as error:
        raise CannotCheck(f"can't check {folder}: {error}") from error


def _check_usable(folder: str | None) -> None:
    if folder is None:
        return
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if not any(layout.parse_dir(name) for name in names):
        raise CannotCheck(
            f"{folder} has no partition folders; give the folder of a broker, such as"
            " tidelog-data/broker-1"
        )
    lock = os.path.join(folder, LOCK_NAME)
    if os.path.exists(lock) and not is_free(lock):
        raise CannotCheck(f"a broker is running in {folder}; stop it first")


def _run(folder: str, source: str | None, plan: bool) -> Report:
    disk = OsDisk(folder)
    checks, remarks = check_folder(disk)
    damaged = any(check.damaged for check in checks)
    if source is None or not damaged:
        return Report(folder, [Repaired(check) for check in checks], remarks)
    overlay = OverlayDisk(OsDisk(source))
    other = Source(overlay, check_folder(overlay)[0])
    lock = None if plan else LogDirLock.acquire(folder)
    try:
        target: Disk = OverlayDisk(disk) if plan else disk
        checkpoints = read_checkpoints(disk)
        done = [_repair(target, check, checkpoints, other, plan=plan) for check in checks]
    finally:
        if lock is not None:
            lock.release()
        disk.close()
    return Report(folder, done, remarks)


def _repair(
    disk: Disk, check: LogCheck, checkpoints: Checkpoints, other: Source, *, plan: bool
) -> Repaired:
    if not check.damaged:
        return Repaired(check)
    problem = other.problem(check)
    if problem is not None:
        return Repaired(check, problem)
    try:
        replace_damage(disk, check, checkpoints, other.log(check.partition))
    except (CannotRepair, DamagedRecords, DiskError) as error:
        return Repaired(check, str(error))
    return Repaired(check, mended=not plan)
