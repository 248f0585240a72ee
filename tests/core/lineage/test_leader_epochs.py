"""The vectors of Kafka's LeaderEpochFileCacheTest, and a comparison with a naive version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.types import EpochEnd, EpochEntry

Pairs = list[tuple[int, int]]


def assigned(pairs: Pairs) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in pairs:
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("assignments", "kept"),
    [
        pytest.param([(2, 10)], [(2, 10)], id="first"),
        pytest.param([(2, 11), (2, 12)], [(2, 11)], id="same epoch, later offset: ignored"),
        pytest.param([(2, 9), (2, 10)], [(2, 9)], id="the first start stays"),
        pytest.param([(2, 9), (3, 9)], [(3, 9)], id="new epoch at the same offset replaces"),
        pytest.param([(1, 5), (2, 6), (1, 7)], [(1, 7)], id="epoch goes back"),
        pytest.param([(2, 6), (3, 5)], [(3, 5)], id="offset goes back"),
        pytest.param(
            [(5, 11), (6, 12), (7, 13), (7, 12)],
            [(5, 11), (7, 12)],
            id="same epoch, earlier offset, truncates",
        ),
        pytest.param([(0, 0), (1, 0)], [(1, 0)], id="a leader that wrote nothing"),
    ],
)
def test_assign(assignments: Pairs, kept: Pairs) -> None:
    assert assigned(assignments).entries == [EpochEntry(*pair) for pair in kept]


@pytest.mark.parametrize(
    ("cached", "log_end_offset", "asked", "answer"),
    [
        pytest.param([(2, 10)], 11, 2, (2, 11), id="latest epoch ends at the LEO"),
        pytest.param([(2, 11), (2, 12)], 14, 2, (2, 14), id="latest, after more records"),
        pytest.param([(2, 10)], 11, None, None, id="undefined asked"),
        pytest.param([], 0, None, None, id="undefined asked of an empty cache"),
        pytest.param([], 5, 0, None, id="empty cache knows nothing"),
        pytest.param([(5, 11), (6, 12), (7, 13)], 14, 4, (4, 11), id="below the first"),
        pytest.param([(5, 11), (7, 12)], 14, 5, (5, 12), id="end is the next start"),
        pytest.param([(5, 11), (7, 12)], 14, 6, (5, 12), id="the neighbour answers for 6"),
        pytest.param([(1, 11), (2, 13), (3, 15)], 17, 2, (2, 15), id="next epoch's start"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 18, 1, (0, 13), id="gap at 1"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 18, 2, (2, 17), id="no gap at 2"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 18, 3, (2, 17), id="gap at 3"),
        pytest.param([(2, 100)], 200, 3, None, id="above the last"),
        pytest.param([(1, 7)], 8, 1, (1, 8), id="after an epoch went back"),
        pytest.param([(1, 7)], 8, 2, None, id="the epoch that was undone is unknown"),
        pytest.param([(0, 0), (1, 0)], 0, 1, (1, 0), id="many changes: latest"),
        pytest.param([(0, 0), (1, 0)], 0, 0, (0, 0), id="many changes: before"),
        pytest.param([(0, 0), (1, 0)], 5, 1, (1, 5), id="many changes: latest wrote"),
        pytest.param([(0, 0), (1, 0), (2, 5)], 10, 2, (2, 10), id="many changes: third"),
        pytest.param([(0, 0), (1, 0), (2, 5)], 10, 1, (1, 5), id="many changes: second"),
        pytest.param([(0, 0), (1, 0), (2, 5)], 10, 0, (0, 0), id="many changes: first"),
        pytest.param([(0, 0), (1, 3), (2, 6)], 9, 2, (2, 9), id="follower stream, epoch 2"),
        pytest.param([(0, 0), (1, 3), (2, 6)], 9, 0, (0, 3), id="follower stream, epoch 0"),
        pytest.param([(0, 0), (1, 3), (2, 6)], 9, 1, (1, 6), id="follower stream, epoch 1"),
    ],
)
def test_end_offset_for(
    cached: Pairs, log_end_offset: int, asked: int | None, answer: tuple[int, int] | None
) -> None:
    expected = None if answer is None else EpochEnd(*answer)
    assert assigned(cached).end_offset_for(asked, log_end_offset) == expected


THREE = [(2, 6), (3, 8), (4, 11)]


@pytest.mark.parametrize(
    ("end", "kept"),
    [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (-1, THREE), (12, THREE), (11, [(2, 6), (3, 8)])],
)
def test_truncate_to(end: int, kept: Pairs) -> None:
    epochs = assigned(THREE)
    assert epochs.truncate_to(end) == (kept != THREE)
    assert epochs == assigned(kept)


@pytest.mark.parametrize(
    ("cached", "start", "kept"),
    [
        (THREE, 8, [(3, 8), (4, 11)]),
        (THREE, 9, [(3, 9), (4, 11)]),
        (THREE, 1, THREE),
        (THREE, 6, THREE),
        (THREE, 11, [(4, 11)]),
        (THREE, 15, [(4, 15)]),
        (THREE, -1, THREE),
        ([(0, 0), (1, 7), (2, 10)], 5, [(0, 5), (1, 7), (2, 10)]),
    ],
)
def test_drop_before(cached: Pairs, start: int, kept: Pairs) -> None:
    epochs = assigned(cached)
    assert epochs.drop_before(start) == (kept != cached)
    assert epochs == assigned(kept)


def test_empty_cache_supports_every_call() -> None:
    epochs = LeaderEpochs()
    assert not epochs.truncate_to(3)
    assert not epochs.drop_before(3)
    assert epochs.latest is None
    assert epochs.epoch_for_offset(3) is None
    epochs.clear()
    assert epochs.freeze() == ()


@pytest.mark.parametrize(("offset", "epoch"), [(25, 1), (20, 1), (30, 5), (50, 5), (5, None)])
def test_epoch_for_offset(offset: int, epoch: int | None) -> None:
    assert assigned([(0, 10), (1, 20), (5, 30)]).epoch_for_offset(offset) == epoch


def test_lookups_copies_and_frozen_state() -> None:
    epochs = assigned(THREE)
    assert epochs.start_of(3) == 8
    assert epochs.start_of(1) is None
    assert epochs.start_of(5) is None
    twin = epochs.copy()
    twin.assign(9, 20)
    assert epochs.latest == 4
    assert epochs != twin
    assert epochs != THREE
    assert epochs.freeze() == (2, 6, 3, 8, 4, 11)
    assert LeaderEpochs.thaw(epochs.freeze()) == epochs
    assert repr(epochs) == "LeaderEpochs([(2, 6), (3, 8), (4, 11)])"
    twin.clear()
    assert twin == LeaderEpochs()


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_negative_is_a_programming_error(epoch: int, start: int) -> None:
    with pytest.raises(AssertionError):
        LeaderEpochs().assign(epoch, start)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 6))
def test_end_offset_agrees_with_a_scan_of_the_log(steps: list[int], asked: int) -> None:
    # A log as the list of its records' epochs, which never fall.
    log: list[int] = []
    epochs = LeaderEpochs()
    epoch = 0
    for step in steps:
        epoch += step
        epochs.assign(epoch, len(log))
        log.append(epoch)
    answer = epochs.end_offset_for(asked, len(log))
    if not log or asked > log[-1]:
        assert answer is None
    else:
        later = [offset for offset, written in enumerate(log) if written > asked]
        end = len(log) if asked == log[-1] else later[0]
        not_later = [written for written in log if written <= asked]
        assert answer == EpochEnd(max(not_later, default=asked), end)
