"""Offsets and leader epochs that a checksum does not cover, seen by what is around them."""

import pytest
from storage_kit import append, batch, fill, new_log, reopen

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.storage.segment.succession import Succession
from tidelog.core.types import EpochEntry
from tidelog.lab.memory_disk import MemoryDisk

FILED = [(0, 0), (3, 10), (6, 20)]


def problems(
    filed: list[tuple[int, int]], found: list[tuple[int, int]], *, gaps: bool = True
) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of the (offset, epoch) batches that can't be, and the epochs afterwards."""
    epochs = LeaderEpochs([EpochEntry(*entry) for entry in filed])
    succession = Succession(epochs, gaps)
    succession.begin_segment(0)
    refused = [offset for offset, epoch in found if succession.problem(batch(offset, epoch=epoch))]
    return refused, [(entry.epoch, entry.start_offset) for entry in epochs.entries]


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ([(0, 0), (9, 0), (10, 3), (19, 3), (20, 6), (99, 6)], []),
        ([(9, 3)], [9]),
        ([(10, 6)], [10]),
        ([(20, 7)], [20]),
        ([(20, 2**30 + 6)], [20]),
        ([(21, 3)], [21]),
        ([(11, 0)], [11]),
        ([(20, 0)], [20]),
        ([(20, -1)], [20]),
    ],
    ids=[
        "as filed",
        "an epoch before its start",
        "the epoch after",
        "unknown to the file",
        "a flipped bit",
        "an epoch after its end",
        "the epoch before, in the middle",
        "two epochs back",
        "none",
    ],
)
def test_epochs_are_those_of_the_file(found: list[tuple[int, int]], refused: list[int]) -> None:
    assert problems(FILED, found) == (refused, FILED)


def test_an_epoch_goes_on_where_the_file_has_the_next_one() -> None:
    """Kafka writes the file late after a truncation: epoch 6 was cut away, 3 went on."""
    assert problems(FILED, [(19, 3), (20, 3), (21, 3)]) == ([], FILED[:2])


def test_a_batch_lies_across_the_start_of_an_epoch_in_the_file() -> None:
    succession = Succession(LeaderEpochs([EpochEntry(*entry) for entry in FILED]), False)
    succession.begin_segment(18)
    assert succession.problem(batch(18, 5, epoch=3)) is None
    assert succession.problem(batch(23, 5, epoch=3)) is None
    assert succession.epochs.entries == [EpochEntry(0, 0), EpochEntry(3, 10)]
    assert succession.problem(batch(28, epoch=6)) is not None


def test_below_the_log_start_any_older_epoch_may_be() -> None:
    filed = [(3, 10), (6, 20)]
    assert problems(filed, [(0, 0), (5, 2), (9, 3), (10, 3)]) == ([], filed)
    assert problems(filed, [(5, 4)]) == ([5], filed)
    assert problems(filed, [(5, -1)]) == ([5], filed)


def test_without_a_file_epochs_come_from_the_batches() -> None:
    found = [(0, 0), (1, 0), (2, 4), (3, 4), (4, 1), (5, 4)]
    assert problems([], found) == ([4], [(0, 0), (4, 2)])
    assert problems([], [(0, -1), (1, -1)]) == ([], [])


@pytest.mark.parametrize(
    ("gaps", "refused"), [(False, [2, 9, 4]), (True, [4])], ids=["no gaps", "gaps"]
)
def test_offsets(gaps: bool, refused: list[int]) -> None:
    found = [(0, 0), (2, 0), (9, 0), (4, 0)]
    assert problems([(0, 0)], found, gaps=gaps)[0] == refused


def test_an_offset_too_far_for_the_index() -> None:
    assert problems([(0, 0)], [(2**31 - 1, 0), (2**31, 0)])[0] == [2**31]


@pytest.mark.parametrize("bit", range(32))
def test_a_flipped_bit_in_a_leader_epoch_ends_the_log(bit: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 3, epoch=5)
    append(log, [batch(3, epoch=6)])
    append(log, [batch(4, epoch=6)])
    file = disk.files[log.segments.active.path]
    file[3 * batch(0).size + 12 + bit // 8] ^= 1 << bit % 8
    again, report = reopen(disk)
    assert again.log_end_offset == 3
    assert again.epochs.entries == [EpochEntry(5, 0)]
    assert report.cuts[0].reason.endswith("can't be at offset 3")
