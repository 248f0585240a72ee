"""A wrong but plausible value in a checkpoint is detected by its checksum."""

from collections.abc import Callable

import pytest
from storage_kit import SMALL, Crash, StoppingDisk, append, batch, fill

from tidelog.core.record.crc32c import crc32c
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
CHECKPOINTS = (
    layout.LOG_STARTS,
    layout.RECOVERY_POINTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
)


def small(_: TopicPartition) -> LogConfig:
    return SMALL


def opened(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, 0, small)


def filled(disk: MemoryDisk) -> LogDirectory:
    """`orders-0` with 20 records in three segments; it starts at offset 2."""
    directory = opened(disk)
    log = directory.create(ORDERS, bytes(16), 0, SMALL)
    fill(log, 20)
    log.drop_before(2, 0)
    log.flush()
    return directory


@pytest.fixture(params=["clean", "unclean"])
def disk(request: pytest.FixtureRequest) -> MemoryDisk:
    disk = MemoryDisk()
    directory = filled(disk)
    directory.set_cleaner_offset(ORDERS, 3)
    if request.param == "clean":
        directory.close({ORDERS: 18})
    else:
        write_all(directory)
        write_all(directory)
    return disk


def write_all(directory: LogDirectory) -> None:
    directory.write_recovery_points()
    directory.write_log_starts()
    directory.write_high_watermarks({ORDERS: 18})


def put(disk: MemoryDisk, name: str, offset: int) -> None:
    disk.write(name, checkpoint.format_offsets({ORDERS: offset}))


def test_unchanged_checkpoints_are_accepted(disk: MemoryDisk) -> None:
    directory = opened(disk)
    assert directory.warnings == []
    assert directory.logs[ORDERS].log_start_offset == 2
    assert directory.high_watermarks == {ORDERS: 18}
    assert directory.cleaner_offsets == {ORDERS: 3}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_wrong_value_inside_the_log_is_rejected(disk: MemoryDisk, name: str) -> None:
    put(disk, name, 12)
    directory = opened(disk)
    assert directory.warnings == [
        f"{name}: checksum mismatch: the file was changed after it was written; treated as empty"
    ]
    log = directory.logs[ORDERS]
    assert log.log_start_offset == (0 if name == layout.LOG_STARTS else 2)
    assert log.log_end_offset == 20
    assert log.recovery_point in (0 if name == layout.RECOVERY_POINTS else 20, 20)
    expected = log.log_start_offset if name == layout.HIGH_WATERMARKS else 18
    assert directory.high_watermarks == {ORDERS: expected}
    # The log has no gaps, so it needs no row.
    assert directory.cleaner_offsets == ({} if name == layout.CLEANER_OFFSETS else {ORDERS: 3})
    assert not directory.damaged, "all records are there"
    assert opened(disk).warnings == [], "it was written again"


def test_a_wrong_log_start_removes_no_segment(disk: MemoryDisk) -> None:
    before = {path: bytes(data) for path, data in disk.files.items() if path.endswith(".log")}
    put(disk, layout.LOG_STARTS, 19)
    opened(disk)
    assert {path: bytes(disk.files[path]) for path in before} == before


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_deleted_checkpoint_is_noticed(disk: MemoryDisk, name: str) -> None:
    disk.delete(name)
    directory = opened(disk)
    assert directory.warnings == [f"{name}: the file is missing; treated as empty"]
    assert directory.logs[ORDERS].log_end_offset == 20
    assert opened(disk).warnings == []


def test_without_checksums_the_checkpoints_are_accepted(disk: MemoryDisk) -> None:
    """Such as those of a folder that Kafka or an older release wrote."""
    disk.delete(layout.CHECKPOINT_CHECKSUMS)
    put(disk, layout.LOG_STARTS, 5)
    directory = opened(disk)
    assert (directory.warnings, directory.logs[ORDERS].log_start_offset) == ([], 5)
    put(disk, layout.LOG_STARTS, 9)
    assert len(opened(disk).warnings) == 1, "what was found is checked from then on"


@pytest.mark.parametrize("name", [layout.LOG_STARTS, layout.HIGH_WATERMARKS])
def test_a_checkpoint_of_another_writer_is_rejected(name: str) -> None:
    disk = MemoryDisk()
    fill(opened(disk).create(ORDERS, bytes(16), 0, SMALL), 20)
    put(disk, name, 12)
    directory = opened(disk)
    assert len(directory.warnings) == 1
    assert directory.logs[ORDERS].log_start_offset == directory.high_watermarks[ORDERS] == 0


@pytest.mark.parametrize("cut", [0, 1, 30])
@pytest.mark.parametrize("flipped", [None, 0, 10, -2])
def test_damaged_checksums_reject_no_checkpoint(
    disk: MemoryDisk, cut: int, flipped: int | None
) -> None:
    data = disk.files[layout.CHECKPOINT_CHECKSUMS]
    del data[len(data) - cut :]
    if flipped is not None:
        data[flipped] ^= 4
    elif not cut:
        data.clear()
    directory = opened(disk)
    assert directory.warnings == [
        "checkpoint-checksums is damaged: wrong values in checkpoints can't be detected"
    ]
    assert directory.logs[ORDERS].log_start_offset == 2
    directory.write_log_starts()
    assert opened(disk).warnings == []


def test_checksums_of_a_later_version_are_not_used(disk: MemoryDisk) -> None:
    text = b"1\nunknown\n"
    disk.write(layout.CHECKPOINT_CHECKSUMS, text + b"%08x\n" % crc32c(text))
    assert len(opened(disk).warnings) == 1


def move_all(directory: LogDirectory) -> None:
    fill(directory.logs[ORDERS], 1)
    directory.logs[ORDERS].drop_before(4, 0)
    directory.logs[ORDERS].flush()
    write_all(directory)
    directory.set_cleaner_offset(ORDERS, 5)


def close(directory: LogDirectory) -> None:
    fill(directory.logs[ORDERS], 1)
    directory.close({ORDERS: 19})


@pytest.mark.parametrize("deed", [write_all, move_all, close])
@pytest.mark.parametrize("written_before", [False, True])
def test_no_crash_makes_a_sound_checkpoint_look_wrong(
    deed: Callable[[LogDirectory], None], written_before: bool
) -> None:
    for changes in range(200):
        disk = StoppingDisk()
        directory = filled(disk)
        if written_before:
            write_all(directory)
        disk.changes = changes
        try:
            deed(directory)
        except Crash:
            assert opened(disk.survivor()).warnings == []
            continue
        assert opened(disk.survivor()).warnings == []
        return
    pytest.fail("the deed never came to its end")


@pytest.mark.parametrize("how", ["deleted", "emptied", "an older one"])
def test_gaps_of_a_compacted_log_without_its_cleaner_offset_are_allowed(how: str) -> None:
    """After a kill the whole log is read; gaps are allowed although no file says so."""
    disk = MemoryDisk()
    directory = filled(disk)
    log = directory.logs[ORDERS]
    append(log, [batch(30), batch(40)])
    write_all(directory)
    directory.set_cleaner_offset(ORDERS, 12)
    write_all(directory)
    if how == "deleted":
        disk.delete(layout.CLEANER_OFFSETS)
    elif how == "emptied":
        disk.write(layout.CLEANER_OFFSETS, b"")
    else:
        disk.write(layout.CLEANER_OFFSETS, checkpoint.format_offsets({}))
    again = opened(disk)
    assert (again.logs[ORDERS].log_end_offset, again.damaged) == (41, {})
    assert again.reports[ORDERS].cuts == []
    assert again.cleaner_offsets == {ORDERS: 2}


@pytest.mark.parametrize("how", ["replaced", "a batch removed"])
def test_damaged_cleaner_offsets_do_not_hide_later_damage(how: str) -> None:
    """Found by `tidelog verify --seed 2049272864`: missing records then counted as compacted."""
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(ORDERS, bytes(16), 0, SMALL, revision=1)
    fill(log, 20)
    write_all(directory)
    disk.write(layout.CLEANER_OFFSETS, b"garbage")
    assert len(opened(disk).warnings) == 1
    first, last = (f"orders-0/{base:020d}.log" for base in (0, 14))
    if how == "replaced":
        disk.write(first, disk.read(last, 0, disk.size(last)))
    else:
        del disk.files[first][: disk.size(first) // 7]
    again = opened(disk)
    assert again.damaged[ORDERS].offset == 0
