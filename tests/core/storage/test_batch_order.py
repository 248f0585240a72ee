"""Wrong offsets and leader epochs, which no checksum covers, are found by comparison."""

from functools import partial

import pytest
from storage_kit import append, batch, fill, new_log, reopen

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.storage.segment.batch_order import BatchOrder
from tidelog.core.storage.segment.batch_scan import BatchSpan
from tidelog.core.types import EpochEntry
from tidelog.lab.memory_disk import MemoryDisk

FILED = [(0, 0), (3, 10), (6, 20)]


def problems(
    filed: list[tuple[int, int]], found: list[tuple[int, int]], *, gaps: bool = True
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the offsets of invalid (offset, epoch) batches, and the epochs afterwards."""
    epochs = LeaderEpochs([EpochEntry(*entry) for entry in filed])
    order = BatchOrder(epochs, gaps)
    order.begin_segment(0)
    following = [BatchSpan(0, 61, offset, offset, epoch, 0) for offset, epoch in found[1:]]
    refused = [
        offset
        for (offset, epoch), after in zip(found, [*following, None], strict=True)
        if order.problem(batch(offset, epoch=epoch), partial(given, after))
    ]
    return refused, [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def given(span: BatchSpan | None) -> BatchSpan | None:
    return span


nothing_follows = partial(given, None)


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ([(0, 0), (9, 0), (10, 3), (19, 3), (20, 6), (99, 6)], []),
        ([(8, 0), (9, 3)], [9]),
        ([(9, 0), (10, 6)], [10]),
        ([(19, 3), (20, 7)], [20]),
        ([(19, 3), (20, 2**30 + 6), (21, 6)], [20]),
        ([(20, 6), (21, 3)], [21]),
        ([(10, 3), (11, 0), (12, 3)], [11]),
        ([(19, 3), (20, 0)], [20]),
        ([(19, 3), (20, -1)], [20]),
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
def test_epochs_match_the_file(found: list[tuple[int, int]], refused: list[int]) -> None:
    assert problems(FILED, found) == (refused, FILED)


def test_an_epoch_continues_after_the_start_of_the_next_one_in_the_file() -> None:
    """Kafka writes the file late after a truncation: epoch 6 was truncated, epoch 3 continued."""
    assert problems(FILED, [(19, 3), (20, 3), (21, 3)]) == ([], FILED[:2])


def test_a_batch_lies_across_the_start_of_an_epoch_in_the_file() -> None:
    order = BatchOrder(LeaderEpochs([EpochEntry(*entry) for entry in FILED]), False)
    order.begin_segment(18)
    assert order.problem(batch(18, 5, epoch=3), nothing_follows) is None
    assert order.problem(batch(23, 5, epoch=3), nothing_follows) is None
    assert order.epochs.entries == [EpochEntry(0, 0), EpochEntry(3, 10)]
    assert order.problem(batch(28, epoch=6), nothing_follows) is not None


def test_below_the_log_start_any_older_epoch_is_valid() -> None:
    filed = [(3, 10), (6, 20)]
    assert problems(filed, [(0, 0), (5, 2), (9, 3), (10, 3)]) == ([], filed)
    assert problems(filed, [(4, 2), (5, 4)]) == ([5], filed)
    assert problems(filed, [(4, 2), (5, -1)]) == ([5], filed)


def test_an_epoch_continues_after_a_gap_past_the_next_one_in_the_file() -> None:
    """The same on a follower that copies a compacted log."""
    assert problems(FILED, [(8, 0), (25, 0)]) == ([], FILED[:1])


@pytest.mark.parametrize(
    ("filed", "found", "rebuilt"),
    [
        ([(0, 0)], [(0, 0), (1, 2), (2, 2), (3, 4)], [(0, 0), (2, 1), (4, 3)]),
        ([(4, 0)], [(0, 0), (1, 0), (2, 0)], [(0, 0)]),
        ([(0, 0), (3, 14)], [(0, 0), (10, 3), (15, 3)], [(0, 0), (3, 10)]),
        ([(0, 0), (6, 2)], [(0, 0), (1, 3), (2, 6)], [(0, 0), (3, 1), (6, 2)]),
        ([(4, 0)], [(0, 0)], [(0, 0)]),
        ([(1, 5)], [(0, 0), (7, 0)], [(0, 0)]),
    ],
    ids=[
        "an old copy",
        "another epoch",
        "another start",
        "a line is missing",
        "a single batch",
        "the epoch of the batch before",
    ],
)
def test_an_epoch_file_that_contradicts_the_log_is_rebuilt(
    filed: list[tuple[int, int]], found: list[tuple[int, int]], rebuilt: list[tuple[int, int]]
) -> None:
    assert problems(filed, found)[0] == []
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, [batch(offset, epoch=epoch) for offset, epoch in found])
    log.epochs.clear()
    for entry in filed:
        log.epochs.assign(*entry)
    log.write_epochs()
    again, report = reopen(disk, compacted=True)
    assert again.log_end_offset == log.log_end_offset
    assert [tuple(entry) for entry in again.epochs.entries] == rebuilt
    assert report.warnings == [
        "orders-0/leader-epoch-checkpoint: does not match this log; rebuilt from the log"
    ]
    assert not reopen(disk, compacted=True)[1].changed


def test_an_epoch_too_new_for_the_file_is_damage_without_a_later_batch() -> None:
    assert problems([(4, 0)], [(0, 5)])[0] == [0]
    assert problems([(4, 0)], [(0, -1)])[0] == [0]


def test_without_a_file_epochs_come_from_the_batches() -> None:
    found = [(0, 0), (1, 0), (2, 4), (3, 4), (4, 1), (5, 4)]
    assert problems([], found) == ([4], [(0, 0), (4, 2)])
    assert problems([], [(0, -1), (1, -1)]) == ([], [])


@pytest.mark.parametrize(
    ("gaps", "refused"), [(False, [2, 9]), (True, [1])], ids=["no gaps", "gaps"]
)
def test_order_of_offsets(gaps: bool, refused: list[int]) -> None:
    found = [(0, 0), (2, 0), (9, 0), (1, 0)]
    assert problems([(0, 0)], found, gaps=gaps)[0] == refused


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ([(0, 0), (9, 0), (2, 0), (3, 0)], [9]),
        ([(5, 0), (9, 0), (2, 0)], [2]),
        ([(0, 0), (9, 0), (30, 0)], []),
    ],
    ids=["one too high", "one too low after a gap", "gaps"],
)
def test_a_wrong_offset_is_distinguished_from_a_gap(
    found: list[tuple[int, int]], refused: list[int]
) -> None:
    assert problems([(0, 0)], found)[0] == refused


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
    reason = report.cuts[0].reason
    assert reason.startswith("wrong leader epoch")
    assert reason.endswith("at offset 3")


def test_an_incomplete_batch_confirms_nothing() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    fill(log, 3, epoch=5)
    log.append([batch(3, epoch=6)], 0)
    disk.append(log.segments.active.path, [batch(4, epoch=6).view()[:60]])
    assert reopen(disk)[0].log_end_offset == 3
