"""Replace the damaged records of a log with those of another replica's folder.

Invariants: a log is changed only if the other folder has every damaged range of it, of the same
topic id and leader epochs. Each segment is replaced as a whole; a crash leaves the old one or the
new one (core/storage/repair.py).
"""

import time
from collections.abc import Iterator

from tidelog.apps.repair.log_check import Checkpoints, LogCheck
from tidelog.core.record.record_batch import RecordBatch, batches
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import open_log
from tidelog.core.storage.repair import CannotRepair, LogRepair
from tidelog.core.types import Offset, TopicPartition

WORK_BYTES = 1 << 20


class Source:
    """The other folder. `disk` is an overlay: nothing is changed there."""

    def __init__(self, disk: Disk, checks: list[LogCheck]) -> None:
        self._disk = disk
        self._checks = {check.partition: check for check in checks}

    def problem(self, damaged: LogCheck) -> str | None:
        """Return why this folder can't repair the log; None if it can."""
        other = self._checks.get(damaged.partition)
        if other is None:
            return "the other folder has no replica of this partition"
        if damaged.topic_id is not None and other.topic_id != damaged.topic_id:
            return "the topic ids differ: the other folder's topic only has the same name"
        for each in damaged.damaged:
            if not other.has(each):
                return f"the other folder lacks offsets {each.start} to {each.end - 1} too"
        return None

    def log(self, partition: TopicPartition) -> Log:
        check = self._checks[partition]
        return _open(self._disk, partition, check.log_start_offset, check.log_end_offset)


def mend(disk: Disk, check: LogCheck, checkpoints: Checkpoints, source: Log) -> None:
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
    """The batches of the other log, which must be of the leader epochs that this log has."""
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
                    f"offset {batch.base_offset} is of leader epoch {batch.leader_epoch} in the"
                    f" other folder, of {filed} here"
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
