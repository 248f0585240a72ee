"""Our cleaner finds nothing to remove in a log that Kafka 4.3.1 compacted."""

from copy import deepcopy

import pytest
from cleaning_kit import COMPACT, all_batches, compact, plan_of, put
from test_golden_folders import CLEAN, CRASHED

from tidelog.core.record.decoder import decode
from tidelog.core.slotted import replace
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleaningResult
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

COMPACTED = TopicPartition("compacted", 0)
CONFIG = replace(COMPACT, delete_retention_ms=10**15, segment_bytes=1 << 20)


def opened(disk: MemoryDisk) -> Log:
    """Open the log, which Kafka had compacted up to offset 150."""
    directory = LogDirectory.open(disk, 0)
    assert directory.cleaner_offsets == {COMPACTED: 150}
    log = directory.logs[COMPACTED]
    assert not directory.reports[COMPACTED].cuts
    log.config = CONFIG
    return log


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for batch in all_batches(log) for r in decode(batch)]


@pytest.mark.parametrize("folder", [CLEAN[1], CRASHED[2]], ids=["clean", "crashed"])
def test_log_compacted_by_kafka_stays_unchanged(folder: MemoryDisk) -> None:
    disk = deepcopy(folder)
    plan = plan_of(opened(disk), 0)
    assert plan is not None
    (result,) = clean(disk, plan)
    assert isinstance(result, CleaningResult)
    assert result.end_offset == 150
    assert result.records_kept == result.records_read == result.keys == 30
    assert result.bytes_written == result.bytes_read


def test_compaction_continues_where_kafka_stopped() -> None:
    disk = deepcopy(CLEAN[1])
    log = opened(disk)
    log.config = replace(CONFIG, segment_bytes=700)
    before = records(log)
    key = before[0][1]
    assert key is not None
    for _ in range(20):
        put(log, (key.decode(), "newer"), epoch=log.epochs.latest or 0)
    newest = log.log_end_offset - 1
    compact(disk, log, 150)
    after = records(log)
    assert after[-1] == (newest, key, b"newer")
    assert set(before[1:]) <= set(after)
    assert before[0] not in after
