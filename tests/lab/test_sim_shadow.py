"""The simulator's own copy of a log."""

import pytest

from tidelog.core.node.measuring.journal import Note
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import open_log
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.lab.sim.oracle.shadow import Shadow, entries_on_disk


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


@pytest.mark.parametrize(
    ("reported", "deleted_upto", "adds"),
    [
        ([(0, 40)], 13, True),
        ([(0, 40)], 12, False),  # offset 12 was not deleted
        ([(0, 39)], 13, False),  # offset 39 was dropped, too
        ([(0, 41)], 13, False),
        ([(14, 40)], 13, False),
        ([(0, 13), (13, 40)], 13, False),
        ([], 13, False),
    ],
)
def test_a_report_may_add_records_that_are_missing_at_the_start_of_the_log(
    reported: list[tuple[int, int]], deleted_upto: int, adds: bool
) -> None:
    """Seed 810667: a disk lied, so the broker did not know that the records were deleted."""
    shadow = Shadow(1)
    assert not shadow.adds_missing(reported, 13, 40, deleted_upto), "no damage is known"
    other = TopicPartition("t", 1)
    shadow.noted(other, [Note("log_damaged", ("t", 0, 0, "the start is missing"))])
    assert not shadow.adds_missing(reported, 13, 40, deleted_upto), "of another partition"
    shadow.noted(other, [Note("log_damaged", ("t", 1, 0, "the start is missing"))])
    assert shadow.adds_missing(reported, 13, 40, deleted_upto) is adds
    shadow.forget_run()
    assert not shadow.adds_missing(reported, 13, 40, deleted_upto)
