"""The file of the loss ledger: lines survive restarts, and its size is limited."""

import pytest

from tidelog.core.storage import layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.loss_ledger import PAGE_BYTES, Cursor, LossLedger, read_lines, read_page
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.lab.sim.machine.disk import PowerLossWeights, SimDisk
from tidelog.lab.sim.world import World


def line(number: int) -> bytes:
    return f'{{"number": {number:06d}}}'.encode()


def test_lines_are_read_in_order_after_a_restart() -> None:
    disk = MemoryDisk()
    LossLedger(disk).add(line(1))
    LossLedger(disk).add(line(2))
    assert list(read_lines(disk)) == [line(1), line(2)]


def test_no_file_is_an_empty_ledger() -> None:
    assert list(read_lines(MemoryDisk())) == []


def test_the_oldest_lines_are_dropped() -> None:
    disk = MemoryDisk()
    ledger = LossLedger(disk, file_bytes_max=100)
    for number in range(30):
        ledger.add(line(number))
    assert disk.size(layout.LOSSES) <= 100
    assert disk.size(layout.OLD_LOSSES) <= 100
    kept = list(read_lines(disk))
    assert kept == [line(number) for number in range(30 - len(kept), 30)]
    assert len(kept) >= 5


def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next_one() -> None:
    disk = MemoryDisk()
    LossLedger(disk).add(line(1))
    disk.append(layout.LOSSES, [line(2)[:7]])
    assert list(read_lines(disk)) == [line(1)]
    LossLedger(disk).add(line(3))
    assert list(read_lines(disk)) == [line(1), line(2)[:7], line(3)]


def test_pages_cover_all_lines_once() -> None:
    disk = MemoryDisk()
    ledger = LossLedger(disk, file_bytes_max=3 * PAGE_BYTES)
    wanted = [line(number) for number in range(10_000)]
    for each in wanted:
        ledger.add(each)
    found: list[bytes] = []
    cursor: Cursor | None = Cursor()
    pages = 0
    while cursor is not None:
        lines, cursor = read_page(disk, cursor)
        found += lines
        pages += 1
    assert found == wanted[-len(found) :]
    assert pages >= 3


@pytest.mark.parametrize("cursor", [(2, 0), (-1, 0), (0, 99), (1, -5), (1, 10**9)])
def test_a_cursor_that_is_out_of_range_ends_the_file(cursor: tuple[int, int]) -> None:
    disk = MemoryDisk()
    LossLedger(disk).add(line(1))
    assert read_page(disk, Cursor(*cursor)).lines == []


def test_a_line_survives_a_power_failure_once_it_is_written() -> None:
    for seed in range(20):
        disk = SimDisk(World(seed), "disk", PowerLossWeights())
        LossLedger(disk).add(line(1))
        LossLedger(disk).add(line(2))
        disk.lose_power()
        assert list(read_lines(disk)) == [line(1), line(2)]


def test_a_failed_write_is_raised() -> None:
    disk = MemoryDisk()
    disk.make_dir(layout.LOSSES)
    disk.append(f"{layout.LOSSES}/x", [b"x"])
    with pytest.raises(DiskError):
        LossLedger(disk).add(line(1))
