"""Files that change, vanish or can't be read while a log is open; damage outlives a crash."""

import pytest
from storage_kit import SMALL, batch, fill

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.disk import DiskError, DiskFull
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.storage.segment.damage import Damage, DamagedRecords, damage_by_size
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
FIRST, SECOND, THIRD = (f"orders-0/{base:020d}.log" for base in (0, 7, 14))
SIZE = batch(0).size


class BadSectors(MemoryDisk):
    """A disk on which reads of some files fail."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[str] = set()
        self.error: type[DiskError] = DiskError

    def read(self, path: str, position: int, length: int) -> bytes:
        if path in self.bad:
            raise self.error("input/output error", path)
        return super().read(path, position, length)


def small(_: TopicPartition) -> LogConfig:
    return SMALL


def opened(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, 0, small)


@pytest.fixture
def disk() -> BadSectors:
    """A disk with twenty records in three segments; the log was stopped cleanly."""
    disk = BadSectors()
    directory = opened(disk)
    fill(directory.create(ORDERS, bytes(16), 0, SMALL, revision=1), 20)
    directory.close({ORDERS: 20})
    return disk


@pytest.fixture
def log(disk: BadSectors) -> Log:
    return opened(disk).logs[ORDERS]


def found_by(log: Log) -> list[Damage]:
    found: list[Damage] = []
    log.on_damage = found.append
    return found


def test_a_file_that_cant_be_read_is_damage_of_the_log(disk: BadSectors, log: Log) -> None:
    found = found_by(log)
    disk.bad = {SECOND}
    assert log.read(3, 1 << 20).length, "others can be read"
    with pytest.raises(DamagedRecords):
        log.read(9, 1 << 20)
    with pytest.raises(DamagedRecords):
        log.offset_for_timestamp(1009)
    assert {damage.offset for damage in found} == {7}


def test_searches_by_time_report_a_damaged_batch(disk: BadSectors, log: Log) -> None:
    found = found_by(log)
    disk.files[SECOND][2 * SIZE + 16] = 9
    with pytest.raises(DamagedRecords):
        log.offset_for_timestamp(1009)
    assert "magic" in found[0].reason
    disk.bad = {FIRST, SECOND, THIRD}
    with pytest.raises(DamagedRecords):
        log.max_timestamp()


def test_an_index_that_cant_be_read_is_damage_of_its_segment(disk: BadSectors) -> None:
    log = opened(disk).logs[ORDERS]
    disk.bad = {SECOND}
    with pytest.raises(DamagedRecords) as caught, log.reading():
        raise DiskError("input/output error", f"orders-0/{7:020d}.timeindex")
    assert caught.value.damage.offset == 7
    with pytest.raises(DamagedRecords) as caught, log.reading():
        raise DiskError("input/output error", "orders-0")
    assert caught.value.damage.offset == 0


def test_a_full_disk_is_not_damage(disk: BadSectors, log: Log) -> None:
    found = found_by(log)
    with pytest.raises(DiskFull), log.reading():
        raise DiskFull("no space left", SECOND)
    assert found == []


@pytest.mark.parametrize(
    ("left", "offset"), [(0, 7), (3 * SIZE, 10), (3 * SIZE + 5, 10), (7 * SIZE - 1, 13)]
)
def test_a_short_file_is_found_by_its_size(
    disk: BadSectors, log: Log, left: int, offset: int
) -> None:
    segment = list(log.segments)[1]
    assert damage_by_size(disk, segment) is None
    del disk.files[SECOND][left:]
    damage = damage_by_size(disk, segment)
    assert damage is not None
    assert damage.offset == offset
    assert f"{left} bytes instead of {7 * SIZE}" in damage.reason


def test_a_missing_file_is_found_by_its_name(disk: BadSectors, log: Log) -> None:
    disk.delete(SECOND)
    damage = damage_by_size(disk, list(log.segments)[1])
    assert damage is not None
    assert damage.offset == 7


def test_headers_that_make_no_sense_are_damage_where_they_begin(disk: BadSectors, log: Log) -> None:
    found = found_by(log)
    disk.files[SECOND][2 * SIZE + 8] = 0xFF
    with pytest.raises(DamagedRecords):
        log.read(9, 1 << 20)
    assert log.read(13, 1).length, "the index leads past the damage"
    assert [damage.offset for damage in found] == [9]


def test_a_file_that_is_distrusted_is_checked_again(disk: BadSectors, log: Log) -> None:
    found = found_by(log)
    while log.verify_from(0) is not None:
        pass
    disk.files[SECOND][2 * SIZE + 70] ^= 1
    assert log.read(9, 1).length, "it was checked before"
    log.require_verification(SECOND)
    with pytest.raises(DamagedRecords):
        log.read(9, 1)
    assert [damage.offset for damage in found] == [9]


def test_a_log_whose_last_file_is_missing_can_be_truncated(disk: BadSectors, log: Log) -> None:
    disk.delete(THIRD)
    assert log.truncate_to(17) == 14
    fill(log, 2)
    assert (log.log_end_offset, disk.size(THIRD)) == (16, 2 * SIZE)


def test_a_deleted_folder_is_recreated(disk: BadSectors) -> None:
    directory = opened(disk)
    directory.restore_folder(directory.logs[ORDERS])
    before = disk.files[f"orders-0/{layout.PARTITION_METADATA}"]
    disk.delete_dir("orders-0")
    directory.restore_folder(directory.logs[ORDERS])
    assert disk.list_dir("orders-0") == ["leader-epoch-checkpoint", "partition.metadata"]
    assert disk.files[f"orders-0/{layout.PARTITION_METADATA}"] == before


def test_truncation_over_damage_leaves_the_log_usable(disk: BadSectors) -> None:
    """Producer state can't be replayed past the damaged batch."""
    directory = opened(disk)
    log = directory.logs[ORDERS]
    found = found_by(log)
    for name in disk.list_dir("orders-0"):
        if name.endswith(".snapshot"):
            disk.delete(f"orders-0/{name}")
    disk.files[SECOND][8] = 0xFF
    log.producers.producers.clear()
    assert log.truncate_to(18) == 18
    fill(log, 1)
    assert (log.log_end_offset, log.offline) == (19, False)
    assert all(damage.offset <= 7 for damage in found)


# -- over a crash


def crash_with(disk: MemoryDisk, damage: Damage | None) -> LogDirectory:
    """Open the log, report the damage and crash; then open the log again."""
    directory = opened(disk)
    if damage is not None:
        directory.damaged[ORDERS] = damage
    directory.save_damage()
    return opened(disk)


def test_damage_is_found_again_after_a_crash(disk: BadSectors) -> None:
    disk.files[SECOND][2 * SIZE + 70] ^= 1
    again = crash_with(disk, Damage(9, "checksum differs"))
    assert again.damaged[ORDERS].offset == 9
    assert again.damaged[ORDERS].inside
    assert "checksum differs" in again.damaged[ORDERS].reason
    assert disk.files[layout.DAMAGED_LOGS] == b"0\n1\norders 0 9\n"


def test_damage_that_was_repaired_before_the_crash_is_not(disk: BadSectors) -> None:
    again = crash_with(disk, Damage(9, "checksum differs"))
    assert again.damaged == {}
    assert disk.files[layout.DAMAGED_LOGS] == b"0\n0\n"


def test_a_lost_end_is_known_after_a_crash_though_the_checkpoints_were_corrected(
    disk: BadSectors,
) -> None:
    disk.truncate(THIRD, SIZE)
    assert opened(disk).damaged[ORDERS].offset == 15
    again = opened(disk)
    assert (again.damaged[ORDERS].offset, again.damaged[ORDERS].inside) == (15, False)
    fill(again.logs[ORDERS], 1)
    del again.damaged[ORDERS]
    again.save_damage()
    assert opened(disk).damaged == {}


def test_damage_below_the_log_start_is_forgotten(disk: BadSectors) -> None:
    directory = opened(disk)
    directory.damaged[ORDERS] = Damage(3, "checksum differs")
    directory.save_damage()
    log = directory.logs[ORDERS]
    log.epochs.drop_before(7)
    log.write_epochs()
    log.drop_before(7, 0)
    assert opened(disk).damaged == {}


def test_a_missing_start_is_known_after_the_epoch_file_is_damaged_too(disk: BadSectors) -> None:
    """The rebuilt epochs begin with the remaining log."""
    first = opened(disk).logs[ORDERS].segments.first.path
    disk.delete(first)
    missing = opened(disk).damaged[ORDERS].offset
    disk.write("orders-0/leader-epoch-checkpoint", b"?")
    assert opened(disk).damaged[ORDERS].offset == missing


def test_without_damage_no_damage_checkpoint_is_written(disk: BadSectors) -> None:
    assert crash_with(disk, None).damaged == {}
    assert not disk.exists(layout.DAMAGED_LOGS)


def test_a_deleted_log_leaves_nothing_of_its_damage(disk: BadSectors) -> None:
    directory = opened(disk)
    directory.damaged[ORDERS] = Damage(3, "checksum differs")
    directory.save_damage()
    directory.delete(ORDERS, 0)
    directory.save_damage()
    assert checkpoint.parse_offsets("f", bytes(disk.files[layout.DAMAGED_LOGS])) == {}
