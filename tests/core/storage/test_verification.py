"""Batches that this process did not write are checked before they are first read."""

import pytest
from storage_kit import batch, fill, new_log, reopen

from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.verification import DamagedRecords, verify_next
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
    """Read the second segment, as far as each read gets."""
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
    _, damage = verify_next(disk, segment, 1 << 20, 14)
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
    assert verify_next(disk, segment, 1 << 20, 14) == (7 * batch(0).size, None)
    disk.files[SECOND][70] ^= 1
    assert log.read(7, 1 << 20, 14).length == 7 * batch(0).size
