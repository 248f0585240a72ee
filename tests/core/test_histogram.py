"""Histograms of times, and their percentiles."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.histogram import BOUNDS_NS, RECENT_MS, Histogram, quantiles


class Ticking:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_every_time_is_counted_once() -> None:
    times = Histogram(Ticking())
    for took_ns in (0, 999, 1000, 5_000_000, 10**15):
        times.note(took_ns)
    assert (times.count, times.sum_ns) == (5, 10**15 + 5_001_999)
    assert (times.counts[0], times.counts[-1]) == (2, 1)


def test_since_notes_the_elapsed_time() -> None:
    clock = Ticking()
    times = Histogram(clock)
    clock.ns = 3_000_000
    times.since(1_000_000)
    assert times.sum_ns == 2_000_000


@given(st.lists(st.integers(1000, 10**11), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_as_far_off_as_a_bucket_is_wide(took: list[int], share: float) -> None:
    times = Histogram(Ticking())
    for took_ns in took:
        times.note(took_ns)
    (found,) = quantiles(times.counts, (share,))
    exact = sorted(took)[max(0, math.ceil(share * len(took) - 1e-9) - 1)]
    assert exact / 1.2 <= found <= exact * 1.2


def test_empty_histogram_has_no_quantile() -> None:
    assert all(math.isnan(q) for q in quantiles(Histogram(Ticking()).counts, (0.5, 0.99)))


@pytest.mark.parametrize("bound", [0, 8, 40])
def test_upto_counts_times_below_a_bound(bound: int) -> None:
    times = Histogram(Ticking())
    times.note(BOUNDS_NS[bound] - 1)
    times.note(BOUNDS_NS[bound] + 1)
    assert times.upto(BOUNDS_NS[bound]) == 1


def test_percentiles_cover_recent_times_only() -> None:
    times = Histogram(Ticking())
    times.note(1_000_000)
    assert sum(times.recent(0)) == 1
    assert sum(times.recent(RECENT_MS - 1)) == 1
    times.note(2_000_000)
    assert sum(times.recent(RECENT_MS)) == 1, "since the first mark"
    assert sum(times.recent(2 * RECENT_MS)) == 0
    assert times.count == 2
