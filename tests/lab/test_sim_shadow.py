"""The simulator's own copy of a log."""

import pytest

from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import open_log
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.lab.sim.oracle.shadow import entries_on_disk


@pytest.mark.parametrize(("log_start", "sound"), [(1, True), (0, False)])
def test_a_gap_before_the_log_start_is_no_damage(log_start: int, sound: bool) -> None:
    """A repair leaves out records that were deleted."""
    disk = MemoryDisk()
    log, _ = open_log(disk, TopicPartition("t", 0), LogConfig(), 0)
    batch = parse(encode_batch([Record(None, b"v", 0)]))
    batch.assign(1, 0)
    log.append([batch], 0)
    log.log_start_offset = log_start
    assert (entries_on_disk(disk, log, damaged=True)[-1] is not None) is sound
