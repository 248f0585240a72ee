"""Completion of segment swaps that a crash interrupted."""

import pytest
from storage_kit import batch, contents, fill, names, new_log, reopen

from tidelog.core.storage import layout, segment_swap
from tidelog.lab.memory_disk import MemoryDisk

KINDS = (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX)


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with segments at 0, 7 and 14."""
    disk = MemoryDisk()
    fill(new_log(disk), 20)
    return disk


def complete_swaps(disk: MemoryDisk) -> list[str] | None:
    return segment_swap.complete_swaps(disk, "orders-0", names(disk))


def leave(disk: MemoryDisk, base: int, suffix: str, *offsets: int) -> None:
    """Write the files of a replacement that contains these offsets."""
    data = b"".join(batch(offset).view() for offset in offsets)
    disk.write(f"orders-0/{base:020d}.log{suffix}", data)
    for kind in KINDS[1:]:
        disk.write(f"orders-0/{base:020d}{kind}{suffix}", b"")


def offsets(disk: MemoryDisk) -> list[int]:
    log, _ = reopen(disk, compacted=True)
    return [int.from_bytes(data[:8]) for data in contents(log)]


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".tmp"])
def test_temporary_files_are_deleted(disk: MemoryDisk, suffix: str) -> None:
    leave(disk, 0, suffix, 0, 3)
    removed = complete_swaps(disk)
    assert removed is not None
    assert sorted(removed) == [f"orders-0/{0:020d}{kind}{suffix}" for kind in sorted(KINDS)]
    assert offsets(disk) == list(range(20))


def test_a_finished_replacement_takes_its_place(disk: MemoryDisk) -> None:
    leave(disk, 0, ".swap", 2, 9)
    complete_swaps(disk)
    bases = [name[:20] for name in names(disk) if name.endswith(".log")]
    assert bases == [f"{0:020d}", f"{14:020d}"]
    assert offsets(disk) == [2, 9, *range(14, 20)]


def test_a_replacement_whose_originals_are_deleted_is_renamed(disk: MemoryDisk) -> None:
    for base in (0, 7):
        for kind in KINDS:
            disk.delete(f"orders-0/{base:020d}{kind}")
    leave(disk, 0, ".swap", 2, 9)
    assert complete_swaps(disk) == []
    assert offsets(disk) == [2, 9, *range(14, 20)]


def test_a_rename_that_got_half_way_is_finished(disk: MemoryDisk) -> None:
    """The log file has its final name, the indexes do not."""
    leave(disk, 0, ".swap", 2, 9)
    complete_swaps(disk)
    for kind in KINDS[1:]:
        disk.rename(f"orders-0/{0:020d}{kind}", f"orders-0/{0:020d}{kind}.swap")
    complete_swaps(disk)
    assert offsets(disk) == [2, 9, *range(14, 20)]


def test_replacements_from_the_smallest_cleaned_on_are_undone(disk: MemoryDisk) -> None:
    leave(disk, 0, ".swap", 1, 6)
    leave(disk, 7, ".cleaned", 8)
    leave(disk, 14, ".swap", 19)
    complete_swaps(disk)
    assert offsets(disk) == [1, 6, *range(7, 20)]


def test_an_empty_replacement_covers_its_own_segment(disk: MemoryDisk) -> None:
    leave(disk, 7, ".swap")
    complete_swaps(disk)
    assert disk.size(f"orders-0/{7:020d}.log") == 0
    assert offsets(disk) == [*range(7), *range(14, 20)]


def test_nothing_to_do_changes_nothing(disk: MemoryDisk) -> None:
    before = dict(disk.files)
    assert complete_swaps(disk) is None
    assert disk.files == before


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"garbage", bytes(range(200))])
def test_a_replacement_that_is_damaged_is_removed(disk: MemoryDisk, garbage: bytes) -> None:
    leave(disk, 7, ".swap", 8)
    disk.write(f"orders-0/{7:020d}.log.swap", garbage)
    removed = complete_swaps(disk)
    assert removed is not None
    assert sorted(removed) == [f"orders-0/{7:020d}{kind}.swap" for kind in sorted(KINDS)]
    assert offsets(disk) == list(range(20))


def test_a_damaged_replacement_whose_original_is_deleted_is_kept_for_recovery(
    disk: MemoryDisk,
) -> None:
    for kind in KINDS:
        disk.delete(f"orders-0/{0:020d}{kind}")
    leave(disk, 0, ".swap", 2, 9)
    path = f"orders-0/{0:020d}.log.swap"
    disk.write(path, bytes(disk.read(path, 0, disk.size(path) - 5)))
    complete_swaps(disk)
    assert offsets(disk)[0] == 2
