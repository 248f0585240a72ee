"""Missing records are detected when a log is opened, and nothing is deleted."""

import pytest
from storage_kit import batch, fill, new_log, reopen, write_offsets

from tidelog.core.storage import checkpoint
from tidelog.core.storage.disk import replace_file
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
SEGMENTS = FIRST, SECOND, THIRD = tuple(f"orders-0/{base:020d}.log" for base in (0, 7, 14))


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with twenty records in three segments; the log was stopped cleanly."""
    disk = MemoryDisk()
    log = new_log(disk)
    log.epochs.assign(0, 0)
    fill(log, 20)
    log.write_epochs()
    log.close()
    return disk


def damage(disk: MemoryDisk, known_end: int = 0) -> Damage | None:
    _, report = reopen(disk, clean=True, recovery_point=20, known_end=known_end)
    return report.damage


def test_a_whole_log_is_not_damaged(disk: MemoryDisk) -> None:
    assert damage(disk, known_end=20) is None


def test_a_missing_first_segment_is_found_by_the_first_leader_epoch(disk: MemoryDisk) -> None:
    disk.delete(FIRST)
    found = damage(disk)
    assert found == Damage(0, "offsets 0 to 6 are missing at the start of the log")
    assert damage(disk) == found, "it is found again after a crash"


def test_segments_that_retention_dropped_are_not_missing(disk: MemoryDisk) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20)
    log.epochs.drop_before(7)
    log.write_epochs()
    log.drop_before(7, 0)
    assert damage(disk) is None


@pytest.mark.parametrize("compacted_upto", [0, 14])
def test_a_missing_segment_is_found_unless_compaction_may_have_left_the_gap(
    disk: MemoryDisk, compacted_upto: int
) -> None:
    disk.delete(SECOND)
    _, report = reopen(disk, clean=True, compacted=True, cleaned_upto=compacted_upto)
    if compacted_upto:
        assert report.damage is None
    else:
        assert report.damage is not None
        assert report.damage.offset == 7


def test_an_older_segment_that_is_cut_short_is_found(disk: MemoryDisk) -> None:
    disk.truncate(SECOND, 5 * batch(0).size)
    found = damage(disk)
    assert found is not None
    assert found.offset == 12
    assert "offsets 12 to 13 are missing" in found.reason


@pytest.mark.parametrize("end", [21, 10**8])
def test_a_checkpoint_beyond_the_log_end_is_damage(disk: MemoryDisk, end: int) -> None:
    found = damage(disk, known_end=end)
    reason = f"the log ends at offset 20, its checkpoints say {end}"
    assert found == Damage(20, reason, inside=False)


def test_opening_a_damaged_log_removes_nothing(disk: MemoryDisk) -> None:
    disk.delete(SECOND)
    sizes = {path: disk.size(path) for path in (FIRST, THIRD)}
    log, _ = reopen(disk, clean=True, compacted=False)
    assert {path: disk.size(path) for path in (FIRST, THIRD)} == sizes
    assert log.log_end_offset == 20


def test_a_log_directory_lists_its_damaged_logs(disk: MemoryDisk) -> None:
    write_offsets(disk, "recovery-point-offset-checkpoint", {ORDERS: 20})
    write_offsets(disk, "replication-offset-checkpoint", {ORDERS: 18})
    checkpoint.write_clean_shutdown(disk, 5)
    replace_file(disk, "metadata-revision", b"0\n3\n")
    disk.truncate(THIRD, 2 * batch(0).size)
    directory = LogDirectory.open(disk, 0)
    assert directory.damaged[ORDERS].offset == 16
    assert directory.broker_epoch == 5, "other logs of this broker are not affected"


def test_epochs_of_a_log_without_its_start_are_kept_as_proof(disk: MemoryDisk) -> None:
    disk.delete(FIRST)
    log, _ = reopen(disk, clean=True)
    assert log.epochs.entries == [EpochEntry(0, 0)]


def test_an_active_segment_with_records_of_lower_offsets_is_read_again(disk: MemoryDisk) -> None:
    disk.write(THIRD, disk.read(FIRST, 0, disk.size(FIRST)))
    log, report = reopen(disk, clean=True, recovery_point=20, known_end=20)
    assert report.damage is not None
    assert report.damage.offset == log.log_end_offset == 14


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"version: 7\n"])
def test_a_damaged_topic_id_is_treated_as_missing(disk: MemoryDisk, data: bytes) -> None:
    disk.write("orders-0/partition.metadata", data)
    log, report = reopen(disk, clean=True, recovery_point=20)
    assert log.topic_id is None
    assert any("partition.metadata" in line for line in report.lines())


def test_damaged_properties_are_treated_as_missing(disk: MemoryDisk) -> None:
    disk.write("meta.properties", b"version=1\ncluster.i")
    opened = LogDirectory.open(disk, 0)
    assert opened.properties is None
    assert any("meta.properties" in line for line in opened.warnings)


def test_log_never_ends_with_foreign_bytes(disk: MemoryDisk) -> None:
    """Two segments have each other's records; the third, above the recovery point, is deleted."""
    first, second = (disk.read(path, 0, disk.size(path)) for path in (FIRST, SECOND))
    disk.write(FIRST, second)
    disk.write(SECOND, first)
    log, report = reopen(disk, clean=False, recovery_point=8, known_end=8)
    assert report.damage is not None
    assert log.log_end_offset == 7
    assert log.segments.active.size == 0
    log.append([batch(offset, size=200) for offset in range(7, 12)], 0)
    assert log.log_end_offset == 12


def test_reasons_name_a_path_once_and_offsets_in_order(disk: MemoryDisk) -> None:
    """A renamed segment begins before the previous segment ends."""
    for path in [path for path in disk.files if f"{14:020d}" in path]:
        disk.rename(path, path.replace(f"{14:020d}", f"{10:020d}"))
    for clean in (True, False):
        _, report = reopen(disk, clean=clean, recovery_point=20, known_end=20)
        assert report.damage is not None
        overlap = "ends at offset 14, the next segment starts at 10"
        assert report.damage.reason == f"{SECOND}: {overlap}"


def test_a_transaction_index_that_cannot_be_right_is_named_once(disk: MemoryDisk) -> None:
    path = f"orders-0/{7:020d}.txnindex"
    disk.write(path, b"abc")
    _, report = reopen(disk, clean=True, recovery_point=20, known_end=20)
    assert report.warnings == [
        f"{path}: 3 bytes are not a whole number of entries; the log is read from here on"
    ]
