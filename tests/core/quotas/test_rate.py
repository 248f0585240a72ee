"""Rates and throttle times: the figures of Kafka's own tests, and properties of any traffic."""

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.quotas.rate import THROTTLE_MS_MAX, TokenBucket, WindowedRate

START_MS = 1_000_000_000


def test_throttle_time_is_that_of_kafkas_client_quota_manager() -> None:
    rate, quota, now_ms = WindowedRate(11, 1000), 500, START_MS

    def record(value: float) -> int:
        rate.record(value, now_ms)
        return rate.throttle_ms(quota, now_ms)

    for _ in range(10):
        assert record(400) == 0
        now_ms += 1000
    now_ms += 500

    # 6300 bytes in 10.5 s are 600 a second: 100 / 500 of 10.5 s.
    assert record(2300) == 2100

    now_ms += 2100
    for _ in range(10):
        record(400)
        now_ms += 1000
    assert record(0) == 0


def test_a_new_client_may_use_ten_seconds_of_its_quota_at_once() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(5000, START_MS)

    assert rate.throttle_ms(500, START_MS) == 0
    rate.record(500, START_MS)
    assert rate.throttle_ms(500, START_MS) == 1000


def test_what_was_recorded_and_taken_back_does_not_count() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(700, START_MS)
    before = rate.per_second(START_MS)
    rate.record(9000, START_MS)
    rate.record(-9000, START_MS)

    assert rate.per_second(START_MS) == before


def test_a_throttle_time_fits_into_a_response() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1e12, START_MS)

    assert rate.throttle_ms(1, START_MS) == THROTTLE_MS_MAX


@pytest.mark.parametrize("quota", [1e-7, 1e-300, 5e-324])
def test_a_quota_close_to_0_throttles_for_the_longest_time(quota: float) -> None:
    rate, bucket = WindowedRate(11, 1000), TokenBucket(11, 1000)
    rate.record(1e12, START_MS)
    bucket.record(1e12, quota, START_MS)

    assert rate.throttle_ms(quota, START_MS) == THROTTLE_MS_MAX
    assert bucket.throttle_ms(quota, START_MS) == THROTTLE_MS_MAX


def test_all_is_forgotten_after_the_window() -> None:
    rate = WindowedRate(3, 1000)
    rate.record(1e6, START_MS)

    assert rate.per_second(START_MS + 2999) > 0
    assert rate.per_second(START_MS + 3000) == 0


traffic = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 100_000)), min_size=1, max_size=60
)
"""Pauses before requests in milliseconds, and the bytes of each request."""


@given(traffic, st.integers(1, 20_000), st.integers(2, 12))
def test_a_client_waits_only_if_its_rate_exceeds_the_quota(
    requests: list[tuple[int, int]], quota: int, samples: int
) -> None:
    rate, now_ms = WindowedRate(samples, 1000), START_MS
    for pause_ms, size in requests:
        now_ms += pause_ms
        rate.record(size, now_ms)
        throttle_ms = rate.throttle_ms(quota, now_ms)
        measured = rate.per_second(now_ms)
        # The rate over the window and the wait together is the quota.
        span_ms = rate._span_ms(now_ms)
        if measured > quota:
            assert abs(measured * span_ms / (span_ms + throttle_ms) - quota) <= quota / span_ms
        else:
            assert throttle_ms == 0


@given(traffic, st.integers(100, 20_000))
def test_an_obedient_client_gets_its_quota_and_a_burst_of_one_window_at_most(
    requests: list[tuple[int, int]], quota: int
) -> None:
    rate, now_ms, sent, largest = WindowedRate(11, 1000), START_MS, 0, 0
    for pause_ms, size in requests:
        now_ms += pause_ms
        rate.record(size, now_ms)
        sent, largest = sent + size, max(largest, size)
        now_ms += rate.throttle_ms(quota, now_ms)
        elapsed_s = (now_ms - START_MS) / 1000
        # A request that exceeds the quota is answered before its client waits.
        windows = elapsed_s // 10 + 2
        assert sent <= quota * (elapsed_s + 11 * windows) + largest * windows


def test_tokens_are_those_of_kafkas_token_bucket() -> None:
    bucket = TokenBucket(10, 1000)
    assert bucket.tokens(10, START_MS) == 100
    bucket.record(90, 10, START_MS)
    assert bucket.tokens(10, START_MS) == 10
    bucket.record(90, 10, START_MS)

    assert bucket.tokens(10, START_MS) == -80
    assert bucket.throttle_ms(10, START_MS) == 8000
    assert bucket.throttle_ms(10, START_MS + 5000) == 3000
    assert bucket.tokens(10, START_MS + 60_000) == 100


def test_a_look_at_an_earlier_time_earns_nothing_twice() -> None:
    bucket = TokenBucket(10, 1000)
    bucket.record(180, 10, START_MS)

    assert bucket.tokens(10, START_MS + 5000) == -30
    assert bucket.tokens(10, START_MS) == -30
    assert bucket.tokens(10, START_MS + 5000) == -30


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500)), max_size=50),
    st.floats(0.1, 1000),
)
def test_a_bucket_never_holds_more_than_its_burst(
    changes: list[tuple[int, int]], quota: float
) -> None:
    bucket, now_ms = TokenBucket(11, 1000), START_MS
    for pause_ms, count in changes:
        now_ms += pause_ms
        assert bucket.tokens(quota, now_ms) <= quota * 11 + 1e-6
        bucket.record(count, quota, now_ms)
        wait_ms = bucket.throttle_ms(quota, now_ms)
        assert copy(bucket).tokens(quota, now_ms + wait_ms) >= -quota / 1000


@pytest.mark.parametrize("samples", [1, 2, 11])
def test_memory_does_not_grow_with_time(samples: int) -> None:
    rate = WindowedRate(samples, 1000)
    for second in range(100):
        rate.record(1, START_MS + second * 1000)

    assert len(rate._samples) == samples + 1
