"""Which time is trusted when the wall clock can jump."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.wall_clock import JUMP_MS, ClockReading, WallClock, confirmed_at_start

DAY_MS = 86_400_000
HOLD_MS = DAY_MS
WEEK_MS = 7 * DAY_MS


def started(now_ms: int = 0, wall_ms: int = 1000 * DAY_MS) -> WallClock:
    clock = WallClock(HOLD_MS)
    clock.start(now_ms, wall_ms, wall_ms)
    return clock


def test_ages_and_stamps_follow_a_clock_that_was_never_set() -> None:
    clock = started(now_ms=5, wall_ms=1005)
    assert clock.at_ms(7) == clock.earliest_ms(7) == clock.latest_ms(7) == 1007
    assert clock.doubt_ms == 0


@pytest.mark.parametrize("jump_ms", [8 * DAY_MS, -8 * DAY_MS, JUMP_MS + 1, -JUMP_MS - 1])
def test_jump_changes_no_age_and_is_forgotten_when_undone(jump_ms: int) -> None:
    clock = started(wall_ms=0)
    assert clock.read(10, 10 + jump_ms) == jump_ms
    assert clock.at_ms(20) == 20 + jump_ms
    assert clock.earliest_ms(20) == 20 + min(0, jump_ms)
    assert clock.latest_ms(20) == 20 + max(0, jump_ms)
    assert clock.read(75_000, 75_000) == -jump_ms
    assert clock.earliest_ms(75_001) == clock.latest_ms(75_001) == 75_001
    clock.read(10 * HOLD_MS, 10 * HOLD_MS)
    assert clock.earliest_ms(0) == 0


def test_a_time_that_has_held_is_trusted() -> None:
    clock = started(wall_ms=0)
    clock.read(10, 10 + WEEK_MS)
    clock.read(9 + HOLD_MS, 9 + HOLD_MS + WEEK_MS)
    assert (clock.doubt_ms, clock.earliest_ms(0)) == (WEEK_MS, 0)
    clock.read(10 + HOLD_MS, 10 + HOLD_MS + WEEK_MS)
    assert (clock.doubt_ms, clock.earliest_ms(0)) == (0, WEEK_MS)


def test_another_jump_starts_the_hold_again() -> None:
    clock = started(wall_ms=0)
    clock.read(10, 10 + WEEK_MS)
    clock.read(20, 20 + 2 * WEEK_MS)
    clock.read(10 + HOLD_MS, 10 + HOLD_MS + 2 * WEEK_MS + JUMP_MS)
    assert clock.earliest_ms(0) == 0
    clock.read(20 + HOLD_MS, 20 + HOLD_MS + 2 * WEEK_MS + JUMP_MS)
    assert clock.earliest_ms(0) == 2 * WEEK_MS + JUMP_MS, "a small step is no jump"


def test_many_small_steps_do_not_add_up_to_a_trusted_jump() -> None:
    clock = started(wall_ms=0)
    for step in range(1000):
        clock.read(step, step + step * (JUMP_MS // 2))
        assert clock.earliest_ms(step) <= step + JUMP_MS


def test_without_a_hold_every_clock_is_trusted() -> None:
    clock = WallClock(0)
    clock.start(0, WEEK_MS, 0)
    assert clock.earliest_ms(0) == WEEK_MS


@given(st.lists(st.tuples(st.integers(1, HOLD_MS - 1), st.integers(-(10**12), 10**12))))
def test_ages_are_never_ahead_of_a_time_that_is_right_often_enough(
    jumps: list[tuple[int, int]],
) -> None:
    """Each time, the clock is wrong by any amount, but for less than the hold."""
    clock, now = started(wall_ms=0), 0
    for wrong_for_ms, by_ms in jumps:
        clock.read(now, now + by_ms)
        now += wrong_for_ms
        clock.read(now, now + by_ms)
        assert clock.earliest_ms(now) <= now <= clock.latest_ms(now)
        clock.read(now, now)
        assert clock.earliest_ms(now) == now == clock.latest_ms(now)


SAVED = ClockReading(wall_ms=1000, boot_id="a", boot_ms=50)


@pytest.mark.parametrize(
    ("reading", "saved", "newest_record_ms", "confirmed_ms"),
    [
        (ClockReading(9 * DAY_MS, "a", 80), SAVED, None, 1030),
        (ClockReading(9 * DAY_MS, "b", 80), SAVED, None, 1000),
        (ClockReading(9 * DAY_MS, "a", 20), SAVED, None, 1000),
        (ClockReading(9 * DAY_MS, "a", 80), None, 700, 700),
        (ClockReading(500, "a", 80), None, 700, 500),
        (ClockReading(9 * DAY_MS, "a", 80), None, None, 9 * DAY_MS),
    ],
    ids=[
        "the same boot",
        "another boot",
        "a boot clock that went back",
        "no file, but records",
        "a record from the future",
        "nothing to compare with",
    ],
)
def test_clock_that_is_trusted_at_startup(
    reading: ClockReading, saved: ClockReading | None, newest_record_ms: int, confirmed_ms: int
) -> None:
    assert confirmed_at_start(reading, saved, newest_record_ms) == confirmed_ms
