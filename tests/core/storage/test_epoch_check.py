"""A wrong leader epoch in a batch's header, or in `leader-epoch-checkpoint`, is noticed."""

import pytest
from storage_kit import SMALL, batch, fill, new_log, reopen

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.storage.recovery import RecoveryReport
from tidelog.core.storage.segment.damage import DamagedRecords, verify_next
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
SIZE = batch(0).size
EPOCHS = "orders-0/leader-epoch-checkpoint"
TRUE = [(1, 0), (4, 5), (5, 12), (9, 17)]
EPOCH_AT = 12


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with twenty records of four leaders in three segments; stopped cleanly."""
    disk = MemoryDisk()
    log = new_log(disk)
    for epoch, count in ((1, 5), (4, 7), (5, 5), (9, 3)):
        fill(log, count, epoch=epoch)
    log.close()
    return disk


def opened(disk: MemoryDisk, clean: bool = True) -> tuple[Log, RecoveryReport]:
    return reopen(disk, clean=clean, recovery_point=20)


def entries(log: Log) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in log.epochs.entries]  # type: ignore[misc]


def put(disk: MemoryDisk, written: list[tuple[int, int]]) -> None:
    disk.write(EPOCHS, checkpoint.format_epochs(EpochEntry(*pair) for pair in written))


def set_epoch(disk: MemoryDisk, offset: int, epoch: int) -> None:
    base = max(base for base in (0, 7, 14) if base <= offset)
    at = (offset - base) * SIZE + EPOCH_AT
    disk.files[f"orders-0/{base:020d}.log"][at : at + 4] = epoch.to_bytes(4, signed=True)


def read_all(log: Log) -> list[int]:
    """Return the offsets whose batches are refused."""
    refused = []
    for offset in range(log.log_end_offset):
        try:
            log.read(offset, 1)
        except DamagedRecords:
            refused.append(offset)
    return refused


@pytest.mark.parametrize("clean", [True, False])
def test_a_sound_log_and_its_file_agree(disk: MemoryDisk, clean: bool) -> None:
    log, report = opened(disk, clean)
    assert (entries(log), report.warnings, report.rebuilt) == (TRUE, [], [])
    assert read_all(log) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "written",
    [
        [(1, 0), (4, 4), (5, 12), (9, 17)],
        [(1, 0), (4, 8), (5, 12), (9, 17)],
        [(1, 0), (4, 5), (5, 12), (9, 15)],
        [(1, 0), (4, 5), (5, 12), (9, 19)],
        [(2, 0), (4, 5), (5, 12), (9, 17)],
        [(1, 0), (4, 5), (5, 12), (8, 17)],
        [(1, 0), (4, 5), (5, 12), (99, 17)],
        [(1, 0), (4, 5), (9, 17)],
        [(1, 0), (4, 5), (5, 12)],
        [(4, 5), (5, 13), (9, 17)],
        [(1, 0), (3, 3), (4, 5), (5, 12), (9, 17)],
    ],
)
def test_a_wrong_file_is_rebuilt_from_the_log(
    disk: MemoryDisk, written: list[tuple[int, int]], clean: bool
) -> None:
    put(disk, written)
    log, report = opened(disk, clean)
    assert entries(log) == TRUE
    assert report.rebuilt == [EPOCHS]
    assert report.damage is None
    assert read_all(log) == []
    assert opened(disk)[1].rebuilt == [], "it was written"


@pytest.mark.parametrize("offset", [0, 4, 5, 6, 7, 13, 14, 17, 18, 19])
@pytest.mark.parametrize("flipped", [1, 1 << 20, 1 << 31])
def test_a_wrong_epoch_of_one_batch_is_damage_of_that_batch(
    disk: MemoryDisk, offset: int, flipped: int
) -> None:
    true = LeaderEpochs([EpochEntry(*pair) for pair in TRUE]).epoch_for_offset(offset)
    assert true is not None
    wrong = true ^ flipped
    set_epoch(disk, offset, wrong - (1 << 32) if wrong >= 1 << 31 else wrong)
    log, report = opened(disk)
    assert entries(log) == TRUE, "one batch does not refute the file"
    assert report.rebuilt == []
    assert read_all(log) == [offset]


def test_the_scrubber_notices_a_wrong_epoch(disk: MemoryDisk) -> None:
    set_epoch(disk, 9, 5)
    log, _ = opened(disk)
    segment = list(log.segments)[1]
    _, damage = verify_next(disk, segment, 1 << 20, log.expected_of(segment))
    assert damage is not None
    assert damage.offset == 9
    assert "leader epoch 5" in damage.reason


def test_a_wrong_batch_beside_a_wrong_file_does_not_spoil_the_rebuilt_file(
    disk: MemoryDisk,
) -> None:
    set_epoch(disk, 9, 1000)
    set_epoch(disk, 2, 0)
    put(disk, [(1, 0), (4, 5), (9, 14)])
    log, report = opened(disk)
    assert (entries(log), report.rebuilt) == (TRUE, [EPOCHS])
    assert read_all(log) == [2, 9]


def test_a_wrong_batch_does_not_spoil_a_file_that_was_deleted(disk: MemoryDisk) -> None:
    set_epoch(disk, 9, 1000)
    disk.delete(EPOCHS)
    assert entries(opened(disk)[0]) == TRUE


def test_gaps_of_compaction_do_not_make_the_file_wrong() -> None:
    """No record of the epoch in the middle is left."""
    disk = MemoryDisk()
    log = new_log(disk)
    for epoch, start in TRUE:
        log.epochs.assign(epoch, start)
    log.write_epochs()
    log.append([batch(2, epoch=1), batch(8, epoch=4), batch(18, epoch=9)], 0)
    log.close()
    again, report = reopen(disk, clean=True, compacted=True)
    assert (entries(again), report.rebuilt) == (TRUE, [])


def test_batches_without_an_epoch_are_ignored() -> None:
    """Older Kafka releases wrote batches without an epoch."""
    disk = MemoryDisk()
    log = new_log(disk)
    log.append([batch(0, epoch=-1), batch(1, epoch=-1)], 0)
    fill(log, 2, epoch=3)
    log.close()
    again, report = reopen(disk, clean=True, recovery_point=4)
    assert (entries(again), report.rebuilt) == ([(3, 2)], [])
    assert read_all(again) == []


def test_a_log_that_starts_within_a_batch_has_no_epoch_before_that(disk: MemoryDisk) -> None:
    log, _ = opened(disk)
    log.epochs.drop_before(2)
    log.write_epochs()
    log.drop_before(2, 0)
    log.close()
    again, report = reopen(disk, clean=True, recovery_point=20, log_start_offset=2)
    assert entries(again) == [(1, 2), *TRUE[1:]]
    assert report.rebuilt == []


def test_damaged_headers_do_not_make_the_epoch_file_wrong(disk: MemoryDisk) -> None:
    """A header that can't be read proves nothing."""
    second = disk.files[f"orders-0/{7:020d}.log"]
    second[5 * SIZE + 8 : 5 * SIZE + 12] = b"\xff" * 4
    log, report = opened(disk)
    assert (entries(log), report.rebuilt) == (TRUE, [])


@pytest.mark.parametrize("start", [1, 9, 15])
def test_an_epoch_cant_start_within_a_batch(start: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for base in (0, 6, 12):
        log.epochs.assign(0, 0)
        log.append([batch(base, 6)], 0)
    log.close()
    put(disk, [(0, 0), (1, start)])
    again, report = reopen(disk, clean=True, recovery_point=18)
    assert (entries(again), report.rebuilt) == ([(0, 0)], [EPOCHS])


class CountingDisk(MemoryDisk):
    """A disk that counts reads of segments."""

    reads = 0

    def read(self, path: str, position: int, length: int) -> bytes:
        self.reads += path.endswith(".log")
        return super().read(path, position, length)


@pytest.mark.parametrize("damage", ["none", "checksums deleted", "epochs wrong"])
def test_epochs_of_a_clean_stop_are_not_compared_unless_the_file_has_changed(damage: str) -> None:
    disk = CountingDisk()
    directory = LogDirectory.open(disk, 0, lambda _: SMALL)
    log = directory.create(ORDERS, bytes(16), 0, SMALL)
    for epoch, count in ((1, 5), (4, 7), (5, 5), (9, 3)):
        fill(log, count, epoch=epoch)
    directory.close({ORDERS: 20})
    if damage == "checksums deleted":
        disk.delete(layout.EPOCH_CHECKSUMS)
    elif damage == "epochs wrong":
        put(disk, [(1, 0), (4, 8), (5, 12), (9, 17)])
    disk.reads = 0
    again = LogDirectory.open(disk, 0, lambda _: SMALL)
    assert (disk.reads > 4) == (damage != "none"), "the ends of segments are read anyway"
    assert entries(again.logs[ORDERS]) == TRUE
    assert len(again.warnings) == (damage == "checksums deleted")


def test_an_emptied_epoch_file_is_rebuilt(disk: MemoryDisk) -> None:
    """Without epochs a follower would truncate its log to its high watermark."""
    disk.write(EPOCHS, b"")
    log, report = opened(disk)
    assert entries(log) == TRUE
    assert report.rebuilt == [EPOCHS]
