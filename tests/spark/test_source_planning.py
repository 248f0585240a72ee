"""Ranges are split into tasks, and limits divided among partitions."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.apps.spark.source.planning import (
    GATHERED_OFFSETS_MAX,
    TASK_OFFSETS_MAX,
    gather,
    share_limit,
    split_ranges,
)
from tidelog.apps.spark.source.range_reader import RangeToRead
from tidelog.apps.spark.source.source_options import Splitting
from tidelog.core.types import TopicPartition


def planned(*sizes: int, start: int = 100) -> list[RangeToRead]:
    return [RangeToRead("t", b"i" * 16, n, start, start + size, 3) for n, size in enumerate(sizes)]


def sizes(ranges: list[RangeToRead]) -> list[int]:
    return [each.end - each.start for each in ranges]


def test_small_reads_stay_whole_and_large_reads_are_split() -> None:
    assert sizes(split_ranges(planned(10, 0, 20), Splitting(), cores=8)) == [10, 20]
    assert sizes(split_ranges(planned(2 * TASK_OFFSETS_MAX + 1), Splitting(), cores=1)) == [
        333_333,
        333_334,
        333_334,
    ]
    assert len(split_ranges(planned(TASK_OFFSETS_MAX), Splitting(), cores=4)) == 4
    assert len(split_ranges(planned(150_000), Splitting(), cores=4)) == 1


def test_options_set_the_number_and_size_of_tasks() -> None:
    assert sizes(split_ranges(planned(10, 5), Splitting(max_records=4), cores=8)) == [3, 2, 3, 3, 4]
    assert sizes(split_ranges(planned(10, 5), Splitting(min_partitions=3), cores=1)) == [5, 5, 5]
    assert sizes(split_ranges(planned(10, 5), Splitting(min_partitions=2), cores=1)) == [10, 5]
    both = Splitting(min_partitions=6, max_records=10)
    assert len(split_ranges(planned(10, 50), both, cores=1)) == 6


@given(
    st.lists(st.integers(0, 3_000_000), max_size=5),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(60_000, 10**7),
    st.integers(1, 64),
)
def test_pieces_cover_the_ranges(
    found: list[int], pieces: int | None, most: int | None, cores: int
) -> None:
    cut = split_ranges(planned(*found), Splitting(pieces, most), cores)
    assert all(size > 0 for size in sizes(cut))
    if most is not None:
        assert all(size <= most for size in sizes(cut))
    for whole in planned(*found):
        mine = [each for each in cut if each.partition == whole.partition]
        edge = whole.start
        for each in mine:
            assert each.start == edge
            assert each._replace(start=0, end=0) == whole._replace(start=0, end=0)
            edge = each.end
        assert edge == whole.end


@given(st.lists(st.integers(0, 10**12), max_size=8), st.integers(1, 10**9))
def test_shares_follow_the_lag_and_are_above_zero(lags: list[int], limit: int) -> None:
    wanted = {TopicPartition("t", n): lag for n, lag in enumerate(lags)}
    shares = share_limit(wanted, limit)
    total = sum(lags)
    assert sum(shares.values()) <= limit + len(lags)  # as much as rounding up can add
    for key, lag in wanted.items():
        assert shares[key] <= lag
        assert (shares[key] > 0) == (lag > 0)
        if total > limit and lag:
            assert shares[key] <= max(limit * lag / total * (1 + 1e-9), 1)
    if total <= limit:
        assert shares == wanted


def test_small_micro_batches_are_one_task_unless_options_say_otherwise() -> None:
    small, large = planned(10, GATHERED_OFFSETS_MAX - 10), planned(10, GATHERED_OFFSETS_MAX)
    assert gather(small, Splitting()) == [tuple(small)]
    assert gather(large, Splitting()) == [(each,) for each in large]
    assert gather([], Splitting()) == []
    for splitting in (Splitting(min_partitions=2), Splitting(max_records=7)):
        assert gather(small, splitting) == [(each,) for each in small]
