"""ReplicaTest and IsrExpirationTest: the leader's view of a follower, and how long it is valid."""

import pytest

from tidelog.core.replication.log_end_offset import (
    NEVER_MS,
    FollowerProgress,
    unknown_follower,
)

LAG_MS = 100
LEADER_LEO = 20


def progress(
    offset: int | None = 0, *, leader: int = LEADER_LEO, fetched: int = 1_000, caught_up: int = 500
) -> FollowerProgress:
    """A follower that last fetched at 1000, when the leader's log ended at 20."""
    return FollowerProgress(offset, 0, leader, fetched, caught_up, None)


@pytest.mark.parametrize(
    ("offset", "leader_end", "caught_up_ms"),
    [
        pytest.param(30, 30, 2_000, id="1: at the leader's end, caught up now"),
        pytest.param(31, 30, 2_000, id="1: even beyond it"),
        pytest.param(20, 30, 1_000, id="2: where the leader was at the last fetch: as of then"),
        pytest.param(25, 30, 1_000, id="2: or further"),
        pytest.param(19, 30, 500, id="3: behind even that: no credit"),
    ],
)
def test_last_caught_up(offset: int, leader_end: int, caught_up_ms: int) -> None:
    follower = progress(10)
    follower.fetched(offset, leader_log_end_offset=leader_end, now_ms=2_000)
    assert follower.last_caught_up_ms == caught_up_ms
    assert follower.log_end_offset == offset
    assert (follower.leader_log_end_offset, follower.last_fetch_ms) == (leader_end, 2_000)


def test_caught_up_time_never_goes_back() -> None:
    follower = progress(10, fetched=1_000, caught_up=5_000)
    follower.fetched(30, leader_log_end_offset=30, now_ms=2_000)
    assert follower.last_caught_up_ms == 5_000
    follower = progress(10, fetched=1_000, caught_up=5_000)
    follower.fetched(20, leader_log_end_offset=30, now_ms=6_000)
    assert follower.last_caught_up_ms == 5_000


def test_leaders_end_at_a_fetch_never_decreases() -> None:
    follower = progress(10, leader=40)
    follower.fetched(15, leader_log_end_offset=30, now_ms=2_000)
    assert follower.leader_log_end_offset == 40


def test_follower_log_end_is_the_fetch_offset_and_may_decrease() -> None:
    """A follower that has truncated fetches from a lower offset than before."""
    follower = progress(15)
    follower.fetched(12, leader_log_end_offset=20, now_ms=2_000)
    assert follower.log_end_offset == 12


def test_first_fetch_of_an_epoch_does_not_count_as_caught_up_before() -> None:
    follower = unknown_follower(in_sync=False, now_ms=50)
    follower.fetched(5, leader_log_end_offset=20, now_ms=60)
    assert follower.last_caught_up_ms == NEVER_MS


@pytest.mark.parametrize("in_sync", [True, False], ids=["in the ISR", "outside"])
def test_new_epoch_forgets_all_progress(in_sync: bool) -> None:
    follower = unknown_follower(in_sync=in_sync, now_ms=77)
    assert follower == FollowerProgress(None, 0, -1, NEVER_MS, 77 if in_sync else NEVER_MS, None)


@pytest.mark.parametrize(
    ("offset", "last_caught_up", "now", "in_sync"),
    [
        pytest.param(LEADER_LEO, 0, 10_000, True, id="idle at the leader's end: for ever"),
        pytest.param(15, 900, 1_000, True, id="behind, but caught up within the limit"),
        pytest.param(15, 899, 1_000, False, id="behind for one millisecond too long"),
        pytest.param(None, 950, 1_000, True, id="not fetched yet, counted from the election"),
        pytest.param(None, 0, 1_000, False, id="never fetched at all"),
        pytest.param(21, 0, 1_000, False, id="an offset beyond the end is not the end"),
    ],
)
def test_caught_up(offset: int | None, last_caught_up: int, now: int, in_sync: bool) -> None:
    follower = progress(offset, caught_up=last_caught_up)
    assert in_sync == follower.caught_up(
        leader_log_end_offset=LEADER_LEO, now_ms=now, lag_ms_max=LAG_MS
    )


def test_a_follower_outside_the_isr_is_not_caught_up_by_an_early_clock() -> None:
    """Time zero is valid: a new follower did not catch up at time zero."""
    follower = unknown_follower(in_sync=False, now_ms=0)
    assert not follower.caught_up(leader_log_end_offset=20, now_ms=0, lag_ms_max=30_000)


def test_a_slow_follower_leaves_and_returns() -> None:
    """The follower fetches all the time but is always behind; then it reaches the end."""
    follower = unknown_follower(in_sync=True, now_ms=0)

    def in_sync(now: int) -> bool:
        return follower.caught_up(leader_log_end_offset=LEADER_LEO, now_ms=now, lag_ms_max=LAG_MS)

    follower.fetched(10, leader_log_end_offset=15, now_ms=0)
    assert in_sync(0)
    follower.fetched(13, leader_log_end_offset=LEADER_LEO, now_ms=75)
    assert in_sync(75)
    follower.fetched(18, leader_log_end_offset=LEADER_LEO, now_ms=150)
    assert not in_sync(201)
    follower.fetched(LEADER_LEO, leader_log_end_offset=LEADER_LEO, now_ms=210)
    assert in_sync(210)
    assert in_sync(10_000)


def test_one_round_trip_behind_a_busy_leader_is_in_sync() -> None:
    """Each fetch reaches the log end of the previous fetch, never the current one."""
    follower = unknown_follower(in_sync=True, now_ms=0)
    for round_trip in range(1, 50):
        now = round_trip * 90
        follower.fetched((round_trip - 1) * 10, leader_log_end_offset=round_trip * 10, now_ms=now)
        assert follower.caught_up(
            leader_log_end_offset=round_trip * 10, now_ms=now, lag_ms_max=LAG_MS
        )


def test_a_copy_is_independent() -> None:
    follower = progress(3)
    twin = follower.copy()
    assert twin == follower
    twin.fetched(9, leader_log_end_offset=20, now_ms=1)
    assert follower.log_end_offset == 3
