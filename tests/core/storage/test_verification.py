"""Batches that this process did not write are checked before they are first read."""

import pytest
from storage_kit import batch, fill, new_log, reopen

from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.damage import DamagedRecords, verify_next
from tidelog.lab.memory_disk import MemoryDisk

SECOND = f"orders-0/{7:020d}.log"
"""Holds offsets 7 to 13."""


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 20)
    log.close()
    return disk


def read_all(log: Log) -> None:
    """Read the second segment, as far as reads succeed."""
    offset = 7
    while offset < 14:
        offset += log.read(offset, 1 << 20, 14).length // batch(0).size


@pytest.mark.parametrize("byte", [7, 5, 70], ids=["offset low", "offset high", "records"])
@pytest.mark.parametrize("number", [0, 2, 6], ids=["first", "middle", "last"])
def test_a_flipped_bit_is_found_by_the_scrubber_and_by_a_read(
    disk: MemoryDisk, byte: int, number: int
) -> None:
    disk.files[SECOND][number * batch(0).size + byte] ^= 32
    log, _ = reopen(disk, clean=True, recovery_point=20)
    segment = next(log.segments.from_offset(7))
    _, damage = verify_next(disk, segment, 1 << 20, log.expected_of(segment))
    assert damage is not None
    assert damage.offset <= 7 + number
    log, _ = reopen(disk, clean=True, recovery_point=20)
    found: list[object] = []
    log.on_damage = found.append
    with pytest.raises(DamagedRecords):
        read_all(log)
    assert found


def test_sound_batches_are_checked_once(disk: MemoryDisk) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20)
    segment = next(log.segments.from_offset(7))
    assert verify_next(disk, segment, 1 << 20, log.expected_of(segment)) == (
        7 * batch(0).size,
        None,
    )
    disk.files[SECOND][70] ^= 1
    assert log.read(7, 1 << 20, 14).length == 7 * batch(0).size


@pytest.mark.parametrize("number", [0, 2, 6], ids=["first", "middle", "last"])
def test_a_missing_batch_is_found_where_the_log_has_no_gaps(disk: MemoryDisk, number: int) -> None:
    size = batch(0).size
    log, _ = reopen(disk, clean=True, recovery_point=20)
    segment = next(log.segments.from_offset(7))
    segment.size = segment.opened_size = 6 * size
    del disk.files[SECOND][number * size : (number + 1) * size]
    compacted = verify_next(disk, segment, 1 << 20, log.expected_of(segment))
    assert compacted == (6 * size, None), "compaction may have left it out"
    segment.verified = 0
    log.before_gap = lambda: None
    _, damage = verify_next(disk, segment, 1 << 20, log.expected_of(segment))
    if number == 6:
        assert damage is None, "the end of a segment is compared with the next one"
        return
    assert damage is not None
    assert damage.offset == 7 + number
    with pytest.raises(DamagedRecords):
        log.read(7 + number, 1 << 20, 14)
    log.log_start_offset = 14
    segment.verified = 0
    _, damage = verify_next(disk, segment, 1 << 20, log.expected_of(segment))
    assert damage is None, "deleted records need not be there"


def test_a_read_of_a_missing_segment_does_not_skip_it(disk: MemoryDisk) -> None:
    """The log was never compacted; otherwise the reader would not notice the gap."""
    disk.delete(SECOND)
    log, _ = reopen(disk, clean=True, recovery_point=20)
    assert log.read(7, 1 << 20).path != SECOND, "of a log that may have gaps"
    log, _ = reopen(disk, clean=True, recovery_point=20)
    log.before_gap = lambda: None
    with pytest.raises(DamagedRecords, match="offsets 9 to 13 are missing"):
        log.read(9, 1 << 20)
    assert log.read(14, 1 << 20).length
