"""The high watermark (M10, M11, M13): the formula, and the events that trigger it."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

import pytest
from playbook import (
    BROKERS,
    FETCHER,
    A,
    B,
    C,
    D,
    Playbook,
    answer,
    confirmed,
    elected,
    fetch,
    leader,
    produce,
    proposal_of,
)

from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.high_watermark import follower_high_watermark, leader_high_watermark
from tidelog.core.replication.isr import Committed, Isr, PendingExpand, PendingShrink
from tidelog.core.replication.log_end_offset import NEVER_MS, FollowerProgress
from tidelog.core.replication.partition import PartitionConfig
from tidelog.core.types import BrokerEpoch, BrokerId, Offset

NOW, LAG_MS = 1_000, 100
IN_SYNC, BEHIND = NOW, NEVER_MS
ABC = Committed(frozenset({A, B, C}))


def at(offset: Offset | None, caught_up_ms: int = IN_SYNC) -> FollowerProgress:
    return FollowerProgress(offset, 0, 0, NOW, caught_up_ms, None)


def high_watermark(
    followers: dict[BrokerId, FollowerProgress],
    *,
    current: Offset = 0,
    end: Offset = 10,
    durable: Offset | None = None,
    isr: Isr = ABC,
    eligible: Iterable[BrokerId] = (A, B, C, D),
    registered: dict[BrokerId, BrokerEpoch | None] | None = None,
    min_isr: int = 1,
) -> Offset:
    return leader_high_watermark(
        current,
        durable_end_offset=end if durable is None else durable,
        log_end_offset=end,
        isr=isr,
        followers=followers,
        eligible=registered or dict.fromkeys(eligible),
        min_isr=min_isr,
        now_ms=NOW,
        lag_ms_max=LAG_MS,
    )


def test_m10_leader_at_15_followers_at_3_and_4() -> None:
    assert high_watermark({B: at(3), C: at(4)}, end=15) == 3


@pytest.mark.parametrize("order", list(permutations([(B, 7), (C, 5), (D, 3)])))
def test_m10_high_watermark_waits_for_the_slowest_replica(
    order: tuple[tuple[BrokerId, Offset], ...],
) -> None:
    """Leader at 10, HW 3, followers at 3 fetch at 7, 5 and 3 in any order; then all at 10."""
    isr = Committed(frozenset({A, B, C, D}))
    followers = {B: at(3), C: at(3), D: at(3)}
    reached = 3
    for broker, offset in order:
        followers[broker] = at(offset)
        reached = high_watermark(followers, current=reached, isr=isr)
        assert reached == 3
    followers[D] = at(6)
    assert high_watermark(followers, current=reached, isr=isr) == 5


def test_m10_high_watermark_never_decreases() -> None:
    """C joined at 4 when the HW was 6: the smallest log end is below the HW that clients saw."""
    assert high_watermark({B: at(8), C: at(4)}, current=6) == 6


@pytest.mark.parametrize(
    ("isr", "expected"),
    [
        pytest.param(Committed(frozenset({A})), 10, id="the leader alone"),
        pytest.param(Committed(frozenset({A, B})), 7, id="committed: members only"),
        pytest.param(PendingExpand(frozenset({A, B}), C, 0), 4, id="expand: the joining one too"),
        pytest.param(
            PendingShrink(frozenset({A, B, C}), frozenset({C}), 0), 4, id="shrink: not yet gone"
        ),
    ],
)
def test_high_watermark_uses_the_maximal_isr(isr: Isr, expected: Offset) -> None:
    assert high_watermark({B: at(7, BEHIND), C: at(4, BEHIND)}, isr=isr) == expected


@pytest.mark.parametrize(
    ("follower", "eligible", "expected"),
    [
        pytest.param(at(4), (A, B, C), 4, id="caught up and about to join: wait"),
        pytest.param(at(4, BEHIND), (A, B, C), 10, id="behind: don't"),
        pytest.param(at(4), (A, B), 10, id="fenced or shutting down: don't (KAFKA-15021)"),
        pytest.param(at(4, NOW - LAG_MS), (A, B, C), 4, id="just within the lag limit"),
        pytest.param(at(4, NOW - LAG_MS - 1), (A, B, C), 10, id="just outside"),
    ],
)
def test_high_watermark_waits_for_a_follower_about_to_join(
    follower: FollowerProgress, eligible: tuple[BrokerId, ...], expected: Offset
) -> None:
    isr = Committed(frozenset({A, B}))
    assert high_watermark({B: at(10), C: follower}, isr=isr, eligible=eligible) == expected


@pytest.mark.parametrize(
    ("fetched_as", "expected"),
    [
        pytest.param(30, 4, id="the registered incarnation"),
        pytest.param(None, 4, id="an old broker names none"),
        pytest.param(29, 10, id="a former life: it can't join (KIP-903)"),
    ],
)
def test_high_watermark_waits_only_for_an_incarnation_that_may_join(
    fetched_as: BrokerEpoch | None, expected: Offset
) -> None:
    followers = {B: at(10), C: replace(at(4), broker_epoch=fetched_as)}
    isr = Committed(frozenset({A, B}))
    assert high_watermark(followers, isr=isr, registered={A: 10, B: 20, C: 30}) == expected


def test_high_watermark_waits_until_every_member_has_fetched_in_this_epoch() -> None:
    assert high_watermark({B: at(10), C: at(None)}, current=2) == 2


def test_replica_outside_the_isr_does_not_hold_the_high_watermark_back() -> None:
    isr = Committed(frozenset({A, B}))
    assert high_watermark({B: at(10), C: at(None, BEHIND)}, isr=isr) == 10
    assert high_watermark({B: at(10), C: at(None, IN_SYNC)}, isr=isr) == 10


@pytest.mark.parametrize(
    ("isr", "expected"),
    [
        pytest.param(Committed(frozenset({A})), 3, id="under min ISR: frozen"),
        pytest.param(
            PendingExpand(frozenset({A}), B, 0), 3, id="a proposed member does not count yet"
        ),
        pytest.param(Committed(frozenset({A, B})), 10, id="at min ISR: moves"),
        pytest.param(
            PendingShrink(frozenset({A, B}), frozenset({B}), 0), 10, id="a leaving one counts"
        ),
    ],
)
def test_kafka_15583_nothing_commits_under_min_isr(isr: Isr, expected: Offset) -> None:
    assert high_watermark({B: at(10)}, current=3, isr=isr, min_isr=2) == expected


def test_the_leader_counts_itself_only_as_far_as_it_has_flushed() -> None:
    assert high_watermark({B: at(10), C: at(10)}, durable=6) == 6
    assert high_watermark({B: at(4), C: at(10)}, durable=6) == 4
    assert high_watermark({B: at(10), C: at(10)}, current=8, durable=6) == 8


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(5, 5, id="the leader's, when the records are here"),
        pytest.param(12, 9, id="at most the own end"),
        pytest.param(1, 3, id="at least the log start"),
        pytest.param(9, 9, id="all of it"),
    ],
)
def test_m11_follower(told: Offset, expected: Offset) -> None:
    assert follower_high_watermark(told, log_start_offset=3, log_end_offset=9) == expected


# --- what sets it off -----------------------------------------------------------------------

SILENT_MS = 30_001
"""Later than any follower's credit lasts."""


def test_high_watermark_waits_for_a_joining_follower() -> None:
    partition = leader(isr=(A, B), log=(0, 6), epochs=[(0, 0)], hw=4)
    partition.step(produce(2))
    partition.step(fetch(C, 6))
    assert (
        Playbook(partition)
        >> fetch(B, 8)
        << do.AdvanceHighWatermark(6)
        << answer(FETCHER, 8, hw=6)
        >> fetch(C, 8)
        << do.AdvanceHighWatermark(8)
        << answer(FETCHER, 8, hw=8)
    )


def test_a_proposed_shrink_does_not_move_the_high_watermark_yet() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 20), epochs=[(0, 0)])
    partition.step(on.Ticked(now_ms=SILENT_MS))
    assert Playbook(partition) >> produce(now=SILENT_MS) << ...
    assert partition.high_watermark == 0


def test_follower_that_falls_behind_no_longer_holds_the_high_watermark_back() -> None:
    """C waits outside the ISR at 7 of 8, and stops fetching."""
    partition = leader(isr=(A, B), log=(0, 6), epochs=[(0, 0)], hw=4)
    partition.step(produce(2))
    brokers = dict(BROKERS)
    del brokers[C]
    partition.brokers = brokers
    partition.step(fetch(C, 8))
    partition.step(produce())
    brokers[C] = 30
    assert (
        Playbook(partition)
        >> fetch(B, 9)
        << do.AdvanceHighWatermark(8)
        << answer(FETCHER, 9, hw=8)
        >> on.Ticked(now_ms=SILENT_MS)
        << do.AdvanceHighWatermark(9)
    )


def test_kafka_15021_a_fenced_follower_no_longer_holds_the_high_watermark_back() -> None:
    """testHighWatermarkIncreasesWithFencedOrShutdownFollower."""
    brokers = dict(BROKERS)
    partition = leader(isr=(A, B), log=(0, 8), epochs=[(0, 0)], brokers=brokers)
    partition.step(fetch(C, 8))
    partition.step(elected(A, 1, partition_epoch=6, isr=(A, B)))
    partition.step(produce())
    partition.step(fetch(B, 9))
    assert partition.high_watermark == 8
    del brokers[C]
    assert (
        Playbook(partition)
        >> on.BrokersChanged(now_ms=0)
        << do.AdvanceLowWatermark()
        << do.AdvanceHighWatermark(9)
    )


def test_a_granted_expansion_may_lift_the_high_watermark_over_min_isr() -> None:
    config = PartitionConfig(min_insync_replicas=2)
    partition = leader(isr=(A,), replicas=(A, B), config=config)
    partition.step(produce())
    proposal = proposal_of(partition.step(fetch(B, 1)))
    assert partition.high_watermark == 0
    assert Playbook(partition) >> confirmed(proposal) << do.AdvanceHighWatermark(1)
