"""Recovery keeps sound records after damage that no crash can have caused."""

import pytest
from storage_kit import append, batch, fill, new_log, reopen

from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.storage.log import Log
from tidelog.core.storage.recovery import RecoveryReport
from tidelog.core.storage.segment.batch_scan import batch_behind
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.lab.memory_disk import MemoryDisk

SIZE = batch(0).size
FIRST, SECOND, THIRD = (f"orders-0/{base:020d}.log" for base in (0, 7, 14))
FIELDS = {"checksum": 17, "length": 11, "magic": 16, "base offset": 0, "last offset": 23}


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with twenty records in three segments; the log was stopped cleanly."""
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 20)
    log.close()
    return disk


def opened(disk: MemoryDisk, clean: bool, recovery_point: int = 20) -> tuple[Log, RecoveryReport]:
    return reopen(disk, clean=clean, recovery_point=recovery_point)


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: bytes(data) for path, data in disk.files.items() if path.endswith(".log")}


def readable(log: Log) -> list[int]:
    """Return the offsets that a reader gets."""
    found = []
    for offset in range(log.log_end_offset):
        try:
            found.append(parse(log.read_bytes(log.read(offset, 1))).base_offset)
        except DamagedRecords:
            continue
    return found


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("index", ["present", "missing"])
def test_nothing_behind_a_damaged_batch_of_an_older_segment_is_removed(
    disk: MemoryDisk, clean: bool, field: str, index: str
) -> None:
    disk.files[SECOND][3 * SIZE + FIELDS[field]] ^= 0x40
    if index == "missing":
        disk.delete(f"orders-0/{7:020d}.index")
    before = files(disk)
    log, report = opened(disk, clean)
    assert files(disk) == before
    assert (report.cuts, log.log_end_offset) == ([], 20)
    assert readable(log) == [*range(10), *range(11, 20)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_damaged_batch_of_the_active_segment_that_was_synced_is_skipped(
    disk: MemoryDisk, clean: bool, field: str, number: int
) -> None:
    disk.files[THIRD][number * SIZE + FIELDS[field]] ^= 0x40
    disk.delete(f"orders-0/{14:020d}.index")
    disk.delete(f"orders-0/{14:020d}.txnindex")
    before = files(disk)
    log, report = opened(disk, clean)
    assert files(disk) == before
    assert log.log_end_offset == 20
    if not clean or field in ("length", "magic"):
        assert report.damage is not None
        assert (report.damage.offset, report.damage.inside) == (14 + number, True)
    assert readable(log) == [n for n in range(20) if n != 14 + number]
    fill(log, 3)
    assert readable(log) == [n for n in range(23) if n != 14 + number]


def test_behind_the_recovery_point_the_log_ends_at_the_damaged_batch(disk: MemoryDisk) -> None:
    disk.files[THIRD][1 * SIZE + 70] ^= 1
    disk.files[THIRD][4 * SIZE + 70] ^= 1
    log, report = opened(disk, clean=False, recovery_point=17)
    assert log.log_end_offset == 18
    assert report.cuts[0].to_size == 4 * SIZE
    assert report.damage is not None
    assert report.damage.offset == 15
    assert readable(log) == [*range(15), 16, 17]


def test_without_a_recovery_point_only_the_last_segment_is_cut(disk: MemoryDisk) -> None:
    disk.files[FIRST][70] ^= 1
    disk.files[THIRD][4 * SIZE + 70] ^= 1
    log, report = reopen(disk, recovery_point=None)
    assert (log.log_end_offset, report.deleted) == (18, [])
    assert report.damage is not None
    assert (report.damage.offset, report.damage.inside) == (0, True)
    assert readable(log) == [*range(1, 18)]


def test_a_damaged_end_of_an_older_segment_keeps_the_later_ones(disk: MemoryDisk) -> None:
    disk.files[SECOND][-40:] = b"\xff" * 40
    disk.files[SECOND][-SIZE + 11] = 0xFF
    disk.delete(f"orders-0/{7:020d}.index")
    disk.delete(f"orders-0/{0:020d}.index")
    before = files(disk)
    log, report = opened(disk, clean=True)
    assert files(disk) == before
    assert report.damage is not None
    assert readable(log) == [*range(13), *range(14, 20)]


def test_a_missing_segment_is_not_made_worse_by_a_scan(disk: MemoryDisk) -> None:
    """A damaged transaction index causes all later segments to be read again."""
    disk.write(f"orders-0/{0:020d}.txnindex", b"x")
    disk.delete(SECOND)
    log, report = opened(disk, clean=False)
    assert (log.log_end_offset, disk.exists(THIRD)) == (20, True)
    assert report.damage is not None
    assert report.damage.offset == 7


def test_a_log_that_seems_longer_after_a_clean_stop_is_read(disk: MemoryDisk) -> None:
    """The last offset of the last batch is wrong: it would be the log end."""
    disk.files[THIRD][5 * SIZE + 24] ^= 0x40
    log, report = opened(disk, clean=True)
    assert log.log_end_offset == 19
    assert "after its recovery point 20" in report.warnings[0]


def test_aborts_whose_marker_is_damaged_stay_listed() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [batch(0, producer=Producer(1, 0, 0), attributes=TRANSACTIONAL)])
    marker = parse(encode_marker(ControlType.ABORT, Producer(1, 0), 0, 1000))
    marker.assign(1, 0)
    append(log, [marker])
    fill(log, 1)
    log.flush()
    [expected] = log.aborted_transactions(0, 3)
    disk.files[FIRST][SIZE + 70] ^= 1
    again, report = reopen(disk, recovery_point=3)
    assert report.damage is not None
    assert again.aborted_transactions(0, 3) == [expected]


@pytest.mark.parametrize("following", [True, False])
def test_a_batch_inside_a_record_is_not_used_as_a_batch_of_the_log(following: bool) -> None:
    """A record may contain any bytes, even a whole batch."""
    disk = MemoryDisk()
    inner = bytes(batch(50).view())
    outer = bytearray(batch(0, size=400).view())
    outer[100 : 100 + len(inner)] = inner
    outer[8:12] = b"\xff" * 4
    disk.append("f", [outer])
    if following:
        disk.append("f", [batch(1).view()])
    expected = (len(outer), 1) if following else None
    assert batch_behind(disk, "f", 0, disk.size("f"), 0) == expected


def test_the_search_for_a_batch_passes_the_edges_of_its_chunks() -> None:
    disk = MemoryDisk()
    for garbage in range(1_048_576 - 70, 1_048_576 + 70, 13):
        disk.write("f", bytes(garbage))
        disk.append("f", [batch(1).view()])
        assert batch_behind(disk, "f", 0, disk.size("f"), 0) == (garbage, 1)


@pytest.mark.parametrize("path", [SECOND, THIRD])
def test_a_wrong_offset_after_a_damaged_batch_is_damage_too(disk: MemoryDisk, path: str) -> None:
    """No checksum covers it: the log ended at offset 67,108,888, without the records after it."""
    disk.files[path][SIZE + FIELDS["checksum"]] ^= 0x40
    disk.files[path][2 * SIZE + 4] ^= 0x04
    disk.delete(path.replace(".log", ".index"))  # else the second segment is not read
    before = files(disk)
    log, report = opened(disk, clean=False)
    assert files(disk) == before
    assert log.log_end_offset == 20
    first = {SECOND: 8, THIRD: 15}[path]
    assert report.damage is not None
    assert report.damage.offset == first
    assert readable(log) == [offset for offset in range(20) if offset not in (first, first + 1)]
