"""A damaged log is restored from its own sound batches and those of a peer."""

from collections.abc import Callable
from random import Random

import pytest
from storage_kit import (
    PARTITION,
    SMALL,
    Crash,
    StoppingDisk,
    append,
    batch,
    contents,
    fill,
    new_log,
    reopen,
)

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, RecordBatch, batches, parse
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.storage.repair import CannotRepair, LogRepair
from tidelog.lab.memory_disk import MemoryDisk

FIRST, SECOND, ACTIVE = (f"orders-0/{base:020d}.log" for base in (0, 7, 14))
SIZE = batch(0).size
FEW_BYTES = 3 * SIZE


def whole_disk(disk: MemoryDisk | None = None) -> MemoryDisk:
    """Twenty records in three segments; the log was stopped cleanly."""
    disk = disk or MemoryDisk()
    log = new_log(disk)
    fill(log, 5)
    fill(log, 15, epoch=2)
    log.close()
    return disk


@pytest.fixture
def disk() -> MemoryDisk:
    return whole_disk()


WHOLE = contents(new_log(whole_disk()))


def leader_batches(start: int, end: int) -> list[RecordBatch]:
    """Return the batches that a leader with the whole log returns for a fetch at `start`."""
    return [one for data in WHOLE for one in batches(data) if start <= one.base_offset < end]


def without_gaps(log: Log) -> Log:
    """Open a log as the log directory does if it was never compacted."""
    log.before_gap = lambda: None
    return log


def opened(disk: MemoryDisk) -> Log:
    return without_gaps(reopen(disk, clean=True, recovery_point=20)[0])


def repair(disk: MemoryDisk, log: Log, *offsets: int) -> list[tuple[int, int]]:
    """Repair the log; return the ranges that came from the leader."""
    work = LogRepair(disk, log, offsets, 0)
    while not work.done:
        work.work(FEW_BYTES)
        if work.needed is not None:
            start, end = work.needed
            some = leader_batches(start, min(end, start + 2))
            work.supply(some, some[-1].next_offset)
        if work.ready:
            work.put_in_place(0)
    return work.replaced


def flip(path: str, at: int) -> Callable[[MemoryDisk], None]:
    def change(disk: MemoryDisk) -> None:
        disk.files[path][at] ^= 0x10

    return change


def offset_changed(path: str, number: int, by: int) -> Callable[[MemoryDisk], None]:
    """Change the first offset of a batch, which no checksum covers."""

    def change(disk: MemoryDisk) -> None:
        disk.files[path][number * SIZE + 7] += by

    return change


def zeros(path: str, at: int, size: int) -> Callable[[MemoryDisk], None]:
    def change(disk: MemoryDisk) -> None:
        disk.files[path][at : at + size] = bytes(size)

    return change


def removed(path: str, first: int, last: int) -> Callable[[MemoryDisk], None]:
    """Cut batches out of a segment."""

    def change(disk: MemoryDisk) -> None:
        del disk.files[path][first * SIZE : last * SIZE]

    return change


def cut(path: str, size: int) -> Callable[[MemoryDisk], None]:
    return lambda disk: disk.truncate(path, size)


def delete(path: str) -> Callable[[MemoryDisk], None]:
    return lambda disk: disk.delete(path)


DAMAGE = {
    "a flipped bit in the first batch": (flip(FIRST, 70), 0, [(0, 1)]),
    "a flipped bit in the middle": (flip(SECOND, 2 * SIZE + 70), 9, [(9, 10)]),
    "a flipped bit in the last batch": (flip(SECOND, 7 * SIZE - 1), 13, [(13, 14)]),
    "a flipped bit in the active segment": (flip(ACTIVE, SIZE + 70), 15, [(15, 16)]),
    "a wrong length": (flip(FIRST, 2 * SIZE + 10), 2, [(2, 4)]),
    "a wrong base offset": (flip(FIRST, 2 * SIZE + 7), 2, [(2, 3)]),
    "the next base offset": (offset_changed(FIRST, 2, 1), 2, [(2, 3)]),
    "a later base offset": (offset_changed(SECOND, 1, 3), 8, [(8, 9)]),
    "the base offset of the last batch": (offset_changed(FIRST, 5, 1), 5, [(5, 6)]),
    "a wrong leader epoch": (flip(FIRST, SIZE + 15), 1, [(1, 2)]),
    "zeros over two batches": (zeros(SECOND, SIZE + 5, SIZE + 9), 8, [(8, 11)]),
    "zeros everywhere": (zeros(SECOND, 0, 7 * SIZE), 7, [(7, 14)]),
    "batches cut out": (removed(SECOND, 2, 4), 9, [(9, 11)]),
    "a segment cut short": (cut(SECOND, 3 * SIZE + 9), 10, [(10, 14)]),
    "a segment emptied": (cut(SECOND, 0), 7, [(7, 14)]),
    "the second segment deleted": (delete(SECOND), 7, [(7, 14)]),
}


@pytest.mark.parametrize(("damage", "offset", "ranges"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_repair_fetches_only_what_is_damaged(
    disk: MemoryDisk,
    damage: Callable[[MemoryDisk], None],
    offset: int,
    ranges: list[tuple[int, int]],
) -> None:
    log = opened(disk)
    damage(disk)
    if not disk.exists(SECOND):
        log = opened(disk)
    assert repair(disk, log, offset) == ranges
    assert contents(log) == WHOLE
    assert contents(opened(disk)) == WHOLE, "and after a restart"
    assert not [name for name in disk.list_dir("orders-0") if name.endswith(".cleaned")]


def test_a_missing_first_segment_is_fetched(disk: MemoryDisk) -> None:
    disk.delete(FIRST)
    log, report = reopen(disk, clean=True, recovery_point=20)
    assert report.damage is not None
    log.log_start_offset = report.damage.offset
    assert repair(disk, log, report.damage.offset) == [(0, 7)]
    assert contents(log) == WHOLE


def test_every_segment_that_ends_too_early_is_repaired(disk: MemoryDisk) -> None:
    """At startup only the first one is reported."""
    cut(FIRST, 0)(disk)
    cut(SECOND, 3 * SIZE)(disk)
    log, report = reopen(disk, clean=True, recovery_point=20)
    assert report.damage is not None
    assert repair(disk, without_gaps(log), report.damage.offset) == [(0, 7), (10, 14)]
    assert contents(log) == WHOLE


def test_several_segments_are_repaired_in_one_repair(disk: MemoryDisk) -> None:
    log = opened(disk)
    for change, *_ in (DAMAGE["a wrong length"], DAMAGE["zeros over two batches"]):
        change(disk)
    work = LogRepair(disk, log, [2], 0)
    work.add(8)
    assert work.offset == 2
    assert repair(disk, log, 2, 8) == [(2, 4), (8, 11)]
    assert contents(log) == WHOLE


def test_segments_of_a_long_gap_are_not_larger_than_others() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 5)
    fill(log, 35, epoch=2)
    log.close()
    whole = contents(log)
    for base in (7, 14, 21):
        disk.delete(f"orders-0/{base:020d}.log")
    log = without_gaps(reopen(disk, clean=True, recovery_point=40)[0])
    work = LogRepair(disk, log, [7], 0)
    while not work.done:
        work.work(FEW_BYTES)
        if work.needed is not None:
            start, end = work.needed
            some = [b for data in whole for b in batches(data) if start <= b.base_offset < end]
            work.supply(some, end)
        if work.ready:
            work.put_in_place(0)
    assert contents(log) == whole
    assert max(segment.size for segment in log.segments) <= SMALL.segment_bytes


def test_a_compacted_leader_may_lack_records(disk: MemoryDisk) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20, compacted=True)
    zeros(SECOND, SIZE, 3 * SIZE)(disk)
    work = LogRepair(disk, log, [8], 0)
    work.work(10**6)
    assert work.needed == (8, 11), "up to the next batch that the index knows"
    work.supply([batch(9, epoch=2)], 10)
    assert work.needed == (10, 11)
    work.supply([], 11)
    work.work(10**6)
    work.put_in_place(0)
    work.work(10**6)
    assert work.done
    kept = [one.base_offset for data in contents(log) for one in batches(data)]
    assert kept == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19]


def test_a_wrong_base_offset_in_a_compacted_log_is_not_taken_for_a_gap(disk: MemoryDisk) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20, compacted=True)
    offset_changed(FIRST, 2, 1)(disk)
    assert repair(disk, log, 2) == [(2, 3)]
    assert contents(log) == WHOLE


def test_a_gap_that_compaction_left_stays(disk: MemoryDisk) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20, compacted=True)
    removed(SECOND, 6, 7)(disk)
    log, _ = reopen(disk, clean=True, recovery_point=20, compacted=True)
    work = LogRepair(disk, log, [7], 0)
    while not work.done:
        work.work(10**6)
        if work.needed is not None:
            assert work.needed == (13, 14), "it may be a missing segment"
            work.supply([], 14)
        if work.ready:
            work.put_in_place(0)
    kept = [one.base_offset for data in contents(log) for one in batches(data) if one.count]
    assert kept == [*range(13), *range(14, 20)]


@pytest.mark.parametrize("clean", [True, False])
def test_where_compaction_removed_the_end_of_a_segment_no_damage_is_left(
    disk: MemoryDisk, clean: bool
) -> None:
    log, _ = reopen(disk, clean=True, recovery_point=20)
    flip(SECOND, 7 * SIZE - 1)(disk)
    flip(ACTIVE, 6 * SIZE - 1)(disk)
    work = LogRepair(disk, log, [13, 19], 0)
    while not work.done:
        work.work(10**6)
        if work.needed is not None:
            work.supply([], work.needed[1])
        if work.ready:
            work.put_in_place(0)
    assert work.replaced == [(13, 14), (19, 20)]
    fill(log, 5, epoch=2)
    if clean:
        log.close()
    log, report = reopen(disk, clean=clean, recovery_point=7, compacted=True, cleaned_upto=0)
    assert report.damage is None
    assert log.log_end_offset == 25
    assert log.verify_from(0) is None


@pytest.mark.parametrize(("some", "upto"), [([batch(10, epoch=2)], 11), ([], 10)])
def test_a_leader_that_lacks_the_records_too(
    disk: MemoryDisk, some: list[RecordBatch], upto: int
) -> None:
    log = opened(disk)
    flip(SECOND, 2 * SIZE + 70)(disk)
    work = LogRepair(disk, log, [9], 0)
    work.work(10**6)
    with pytest.raises(CannotRepair, match="offset 9 is missing on the leader"):
        work.supply(some, upto)
    work.discard()
    assert work.done
    assert not [name for name in disk.list_dir("orders-0") if name.endswith(".cleaned")]


def test_aborted_transactions_are_kept(disk: MemoryDisk) -> None:
    log = opened(disk)
    aborted = AbortedTransaction(5, 8, 10, 8)
    next(log.segments.from_offset(7)).add_aborted(aborted)
    flip(SECOND, 2 * SIZE + 70)(disk)
    assert repair(disk, log, 9) == [(9, 10)]
    assert opened(disk).aborted_transactions(7, 14) == [aborted]


def test_an_unreadable_index_of_aborted_transactions_can_not_be_copied(disk: MemoryDisk) -> None:
    log = opened(disk)
    disk.write("orders-0/00000000000000000007.txnindex", b"?" * 40)
    next(log.segments.from_offset(7))._aborted = None
    work = LogRepair(disk, log, [8], 0)
    with pytest.raises(CannotRepair):
        work.work(10**6)


def test_markers_of_a_missing_segment_can_not_be_indexed(disk: MemoryDisk) -> None:
    disk.delete(SECOND)
    log = opened(disk)
    work = LogRepair(disk, log, [7], 0)
    work.work(10**6)
    control = 0x20
    with pytest.raises(CannotRepair, match="aborted transactions"):
        work.supply([batch(7, epoch=2, attributes=control)], 8)


def test_deleted_records_are_not_fetched(disk: MemoryDisk) -> None:
    log = opened(disk)
    zeros(FIRST, SIZE, SIZE + 70)(disk)
    log.drop_before(2, 0)
    assert repair(disk, log, 2) == [(2, 4)]
    kept = [one.base_offset for data in contents(log) for one in batches(data)]
    assert kept == [0, *range(2, 20)]


def test_records_that_were_deleted_meanwhile_need_no_repair(disk: MemoryDisk) -> None:
    log = opened(disk)
    flip(FIRST, 70)(disk)
    log.drop_before(7, 0)
    assert repair(disk, log, 0) == []


@pytest.mark.parametrize(
    "change", [lambda log: log.drop_before(14, 0), lambda log: log.truncate_to(16)]
)
def test_a_log_that_changed_ends_the_repair(
    disk: MemoryDisk, change: Callable[[Log], object]
) -> None:
    log = opened(disk)
    flip(SECOND, 2 * SIZE + 70)(disk)
    work = LogRepair(disk, log, [9], 0)
    work.work(10**6)
    before = work.is_current
    change(log)
    assert (before, work.is_current) == (True, False)


class BadSector(MemoryDisk):
    """A disk on which reads of some bytes of a file fail."""

    bad: tuple[str, int, int] | None = None

    def read(self, path: str, position: int, length: int) -> bytes:
        if self.bad is not None:
            file, start, end = self.bad
            if path == file and position < end and position + length > start:
                raise DiskError("input/output error", path)
        return super().read(path, position, length)

    def rename(self, old: str, new: str) -> None:
        """The bad bytes belong to the file, not to its name."""
        if self.bad is not None and self.bad[0] == old:
            self.bad = None
        super().rename(old, new)


def test_bytes_that_can_not_be_read_are_fetched() -> None:
    disk = BadSector()
    whole_disk(disk)
    log = opened(disk)
    log.segments.first.load()
    disk.bad = FIRST, 2 * SIZE, 2 * SIZE + 1
    assert repair(disk, log, 2) == [(2, 4)]
    assert contents(log) == WHOLE


def test_a_batch_is_not_trusted_if_the_header_after_it_can_not_be_read() -> None:
    disk = BadSector()
    whole_disk(disk)
    log = opened(disk)
    log.segments.first.load()
    offset_changed(FIRST, 2, 1)(disk)
    disk.bad = FIRST, 3 * SIZE, 3 * SIZE + 1
    assert repair(disk, log, 2) == [(2, 4)]
    assert contents(log) == WHOLE


def test_an_index_that_can_not_be_rebuilt_is_not_used(disk: MemoryDisk) -> None:
    log = opened(disk)
    disk.write("orders-0/00000000000000000007.index", b"?" * 12)
    next(log.segments.from_offset(7))._loaded = False
    zeros(SECOND, SIZE, SIZE)(disk)
    assert repair(disk, log, 8) == [(8, 14)]
    assert contents(log) == WHOLE


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_crash_at_any_step_loses_no_sound_record(kind: str) -> None:
    """After each crash the log still has its sound records, and can be repaired again."""
    damage, offset, _ = DAMAGE[kind]
    for changes in range(400):
        disk = StoppingDisk()
        whole_disk(disk)
        log = opened(disk)
        damage(disk)
        if not disk.exists(SECOND):
            log = opened(disk)
        disk.changes = changes
        try:
            repair(disk, log, offset)
        except Crash:
            pass
        else:
            break
        left = disk.survivor()
        # As a broker that was killed: nothing below its recovery point is read at startup.
        log, report = reopen(left, recovery_point=20)
        again = offset if report.damage is None else report.damage.offset
        repair(left, without_gaps(log), again)
        # In the active segment recovery truncates at the damage; the end is fetched as usual.
        end = log.log_end_offset if kind.endswith("active segment") else 20
        assert contents(log) == WHOLE[:end], f"crashed at change {changes}"
    else:
        pytest.fail("the repair never ended")


def test_random_damage_is_repaired_or_harmless() -> None:
    draw = Random(16)
    config = LogConfig(segment_bytes=900, index_interval_bytes=100)
    for _ in range(150):
        disk = MemoryDisk()
        log = reopen(disk, config)[0]
        for number in range(30):
            append(log, [batch(log.log_end_offset, 1 + number % 3, epoch=number // 9)])
        log.close()
        whole, end = contents(log), log.log_end_offset
        peer = [one for data in whole for one in batches(data)]
        log = reopen(disk, config, clean=True, recovery_point=end)[0]
        segment = draw.choice(list(log.segments))
        data = disk.files[segment.path]
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(data))
            if draw.random() < 0.5:
                data[at] ^= 1 << draw.randrange(8)
            else:
                data[at : at + 40] = bytes(len(data[at : at + 40]))
        work = LogRepair(disk, log, [segment.base_offset], 0)
        while not work.done:
            work.work(500)
            if work.needed is not None:
                start, upto = work.needed
                some = [one for one in peer if start <= one.base_offset < upto]
                work.supply(some, upto)
            if work.ready:
                work.put_in_place(0)
        assert contents(log) == whole


@pytest.mark.parametrize("stopped_before", [False, True], ids=["at once", "after a clean stop"])
def test_producer_state_includes_repaired_batches(
    stopped_before: bool,
) -> None:
    """A kill left no snapshot; the marker that ends a transaction is damaged."""
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    log = directory.create(PARTITION, b"t" * 16, 0)
    append(log, [batch(0, producer=Producer(7, 0, 0), attributes=TRANSACTIONAL)])
    marker = parse(encode_marker(ControlType.COMMIT, Producer(7, 0, -1), 0, 5))
    marker.assign(1, 0)
    append(log, [marker])
    fill(log, 5)
    log.flush()
    directory.write_recovery_points()
    flip(FIRST, SIZE + 65)(disk)
    directory = LogDirectory.open(disk, 0)
    if stopped_before:
        directory.close({PARTITION: 7})
        directory = LogDirectory.open(disk, 0)
        assert directory.clean
    log = directory.logs[PARTITION]
    assert log.producers.open_transactions, "nobody knows yet that it ended"
    work = LogRepair(disk, log, [directory.damaged[PARTITION].offset], 0)
    while not work.done:
        work.work(10**6)
        if work.needed is not None:
            assert work.needed == (1, 2)
            work.supply([marker], 2)
        if work.ready:
            work.put_in_place(0)
    assert not log.producers.open_transactions
    log.close()
    log, _ = reopen(disk, clean=True, recovery_point=7)
    assert not log.producers.open_transactions
