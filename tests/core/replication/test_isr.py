"""Maximal ISR (KIP-497), and how a leader changes the ISR."""

from collections.abc import Callable

import pytest
from playbook import (
    BROKERS,
    FETCHER,
    NONE,
    A,
    B,
    C,
    Playbook,
    answer,
    confirmed,
    elected,
    fetch,
    leader,
    produce,
    proposal_of,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.isr import (
    NO_ISR,
    Committed,
    Isr,
    PendingExpand,
    PendingShrink,
    freeze_isr,
    thaw_isr,
)
from tidelog.core.replication.partition import Partition
from tidelog.core.types import BrokerEpoch, BrokerId

AB, ABC = frozenset({A, B}), frozenset({A, B, C})
LAG_MS = 30_000


@pytest.mark.parametrize(
    ("isr", "members", "maximal"),
    [
        pytest.param(Committed(AB), AB, AB, id="committed: what the controller confirmed"),
        pytest.param(
            PendingExpand(AB, joining=C, proposed_at=5), AB, ABC, id="expand: stricter at once"
        ),
        pytest.param(
            PendingShrink(ABC, leaving=frozenset({C}), proposed_at=5),
            ABC,
            ABC,
            id="shrink: no looser before it is granted",
        ),
        pytest.param(NO_ISR, frozenset(), frozenset(), id="a follower keeps none"),
    ],
)
def test_maximal_isr(isr: Isr, members: frozenset[BrokerId], maximal: frozenset[BrokerId]) -> None:
    assert (isr.members, isr.maximal) == (members, maximal)
    assert thaw_isr(freeze_isr(isr)) == isr


def test_proposed_isr() -> None:
    assert PendingExpand(AB, joining=C, proposed_at=5).proposed == ABC
    assert PendingShrink(ABC, leaving=frozenset({C}), proposed_at=5).proposed == AB


def test_frozen_isrs_differ_by_proposal() -> None:
    """Proposals that refer to different partition epochs are different."""
    isrs: list[Isr] = [
        Committed(AB),
        PendingExpand(AB, C, 5),
        PendingExpand(AB, C, 6),
        PendingShrink(AB, frozenset({B}), 5),
        PendingShrink(AB, frozenset({B}), 6),
    ]
    assert len({freeze_isr(isr) for isr in isrs}) == len(set(isrs)) == len(isrs)


# --- joining --------------------------------------------------------------------------------


def awaiting(
    *, brokers: dict[BrokerId, BrokerEpoch | None] | None = None, hw: int = 4
) -> Partition:
    """A leads from 6 on, log end 8, HW 4; B is in the ISR, C is not."""
    partition = leader(
        isr=(A, B), log=(0, 6), epochs=[(0, 0)], hw=hw, brokers=brokers or dict(BROKERS)
    )
    partition.step(produce(2))
    return partition


def test_a_follower_that_has_caught_up_is_proposed() -> None:
    """testIsrExpansion: each member is named with its broker epoch, if it has fetched."""
    partition = awaiting()
    assert (
        Playbook(partition)
        >> fetch(C, 6, incarnation=30)
        << do.ProposeIsr(((A, 10), (B, None), (C, 30)), 1, 5)
        << answer(FETCHER, 6, 8, hw=4)
    )
    assert partition.isr == PendingExpand(AB, C, 5)
    assert proposal_of([do.ProposeIsr(((A, 10), (C, 30)), 1, 5)]).members == {A, C}


@pytest.mark.parametrize(
    ("offset", "hw", "joins"),
    [
        pytest.param(6, 4, True, id="at the epoch start and past the HW"),
        pytest.param(5, 4, False, id="KAFKA-7128: past the HW, short of the epoch start"),
        pytest.param(8, 4, True, id="at the end"),
        pytest.param(3, 4, False, id="short of both"),
    ],
)
def test_m15_follower_joins_past_high_watermark_and_epoch_start(
    offset: int, hw: int, joins: bool
) -> None:
    partition = awaiting(hw=hw)
    partition.step(fetch(C, offset))
    assert isinstance(partition.isr, PendingExpand) is joins


def test_follower_below_the_high_watermark_does_not_join() -> None:
    partition = awaiting()
    partition.step(fetch(B, 8))
    assert partition.high_watermark == 8
    assert partition.step(fetch(C, 7)) == [answer(FETCHER, 7, 8, hw=8)]
    assert proposal_of(partition.step(fetch(C, 8))).members == ABC


@pytest.mark.parametrize(
    ("registered", "sent", "joins"),
    [
        pytest.param({C: 30}, 30, True, id="this incarnation"),
        pytest.param({C: 30}, None, True, id="an old broker sends none"),
        pytest.param({C: 30}, 31, False, id="KIP-903: not the one that metadata knows"),
        pytest.param({}, 30, False, id="KIP-841: fenced or shutting down"),
    ],
)
def test_only_eligible_replicas_join(
    registered: dict[BrokerId, BrokerEpoch | None], sent: int | None, joins: bool
) -> None:
    partition = awaiting(brokers={A: 10, B: 20, **registered})
    partition.step(fetch(C, 8, incarnation=sent))
    assert isinstance(partition.isr, PendingExpand) is joins


def test_an_older_incarnation_does_not_replace_the_one_that_fetched_last() -> None:
    """Or C, fenced at that time, would count as one that can't join, and rest for ever."""
    brokers: dict[BrokerId, BrokerEpoch | None] = {A: 10, B: 20}
    partition = awaiting(brokers=brokers)
    partition.step(fetch(C, 8, incarnation=31))
    refused = partition.step(fetch(C, 6, incarnation=30))
    assert [effect.error for effect in refused if isinstance(effect, do.AnswerFetch)] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    assert partition.followers[C].log_end_offset == 8
    brokers[C] = 31
    assert partition.needs_fetches_of(C)


def test_lag_time_does_not_matter_for_joining() -> None:
    partition = awaiting()
    partition.step(fetch(C, 6, now=999_999))
    assert partition.isr == PendingExpand(AB, C, 5)


def test_one_change_at_a_time() -> None:
    """SingleInFlightAlterIsr: no second expansion, no shrink, while one is pending."""
    partition = leader(isr=(A,))
    partition.step(fetch(B, 0))
    pending = partition.isr
    assert (
        Playbook(partition)
        >> fetch(C, 0)
        << answer(FETCHER, 0)
        >> on.Ticked(now_ms=LAG_MS + 1)
        << None
    )
    assert partition.isr == pending == PendingExpand(frozenset({A}), B, 5)


def test_a_member_is_not_proposed_again() -> None:
    partition = leader(isr=(A, B), replicas=(A, B))
    assert Playbook(partition) >> fetch(B, 0) << answer(FETCHER, 0)


# --- leaving --------------------------------------------------------------------------------


def test_m14_a_stuck_follower_is_dropped_after_the_lag_limit() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 20), epochs=[(0, 0)])
    partition.step(fetch(B, 10, incarnation=20, now=0))
    assert (
        Playbook(partition)
        >> on.Ticked(now_ms=LAG_MS)
        << None
        >> on.Ticked(now_ms=LAG_MS + 1)
        << do.ProposeIsr(((A, 10),), 1, 5)
    )
    assert partition.isr == PendingShrink(AB, frozenset({B}), 5)


def test_a_follower_that_never_fetched_is_dropped_after_the_lag_limit() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 20), epochs=[(0, 0)], now=500)
    assert partition.step(on.Ticked(now_ms=500 + LAG_MS)) == []
    assert partition.step(on.Ticked(now_ms=501 + LAG_MS)) == [do.ProposeIsr(((A, 10),), 1, 5)]


def test_an_idle_follower_at_the_end_stays() -> None:
    """testShouldNotShrinkIsrIfFollowerCaughtUpToLogEnd."""
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 20), epochs=[(0, 0)])
    partition.step(fetch(B, 20))
    assert Playbook(partition) >> on.Ticked(now_ms=99 * LAG_MS) << None


def test_a_follower_one_round_trip_behind_stays() -> None:
    """testShouldNotShrinkIsrIfPreviousFetchIsCaughtUp."""
    partition = leader(isr=(A, B), replicas=(A, B))
    partition.step(fetch(B, 0, now=0))
    for now in range(LAG_MS, 10 * LAG_MS, LAG_MS):
        partition.step(produce(2))
        partition.step(fetch(B, partition.log_end_offset - 2, now=now))
        assert partition.step(on.Ticked(now_ms=now)) == []


def test_a_slow_follower_is_dropped_although_it_fetches_and_may_return() -> None:
    partition = leader(isr=(A, B), replicas=(A, B), log=(0, 20), epochs=[(0, 0)])
    partition.step(fetch(B, 5, now=LAG_MS // 2))
    partition.step(fetch(B, 19, now=LAG_MS))
    proposal = proposal_of(partition.step(on.Ticked(now_ms=LAG_MS + 1)))
    assert proposal.members == {A}
    partition.step(confirmed(proposal))
    back = proposal_of(partition.step(fetch(B, 20, now=LAG_MS + 2)))
    assert (back.members, back.partition_epoch) == (AB, 6)


def test_several_are_dropped_at_once() -> None:
    partition = leader(isr=(A, B, C), log=(0, 20), epochs=[(0, 0)])
    assert proposal_of(partition.step(on.Ticked(now_ms=LAG_MS + 1))).members == {A}
    assert partition.isr == PendingShrink(ABC, frozenset({B, C}), 5)


# --- the controller's answer ----------------------------------------------------------------


def proposed_expansion() -> tuple[Partition, do.ProposeIsr]:
    partition = awaiting()
    return partition, proposal_of(partition.step(fetch(C, 8, incarnation=30)))


def proposed_shrink() -> tuple[Partition, do.ProposeIsr]:
    partition = awaiting()
    partition.step(fetch(B, 7, incarnation=20))
    return partition, proposal_of(partition.step(on.Ticked(now_ms=LAG_MS + 1)))


BOTH = pytest.mark.parametrize(
    "propose", [proposed_expansion, proposed_shrink], ids=["expand", "shrink"]
)
Propose = Callable[[], tuple[Partition, do.ProposeIsr]]


@BOTH
def test_accepted_proposal_is_applied(propose: Propose) -> None:
    partition, proposal = propose()
    partition.step(confirmed(proposal))
    assert partition.isr == Committed(proposal.members)
    assert partition.partition_epoch == 6


@BOTH
def test_accepted_proposal_without_a_new_partition_epoch(propose: Propose) -> None:
    """The controller had this ISR already."""
    partition, proposal = propose()
    partition.step(confirmed(proposal, partition_epoch=5))
    assert partition.isr == Committed(proposal.members)


def test_silent_follower_holds_nothing_back_after_a_rollback() -> None:
    partition = awaiting()
    proposal = proposal_of(partition.step(fetch(C, 6)))
    partition.step(fetch(B, 8))
    refused = confirmed(proposal, error=ErrorCode.INELIGIBLE_REPLICA, now=LAG_MS + 1)
    assert Playbook(partition) >> refused << do.AdvanceHighWatermark(8)


@BOTH
@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_proposal_that_was_not_applied_is_rolled_back(propose: Propose, error: ErrorCode) -> None:
    partition, proposal = propose()
    assert Playbook(partition) >> confirmed(proposal, error=error) << ...
    assert partition.isr == Committed(AB)
    assert partition.partition_epoch == 5


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_outdated_proposal_stays_pending(propose: Propose, error: ErrorCode) -> None:
    """testInvalidAlterPartitionRequestsAreNotRetried."""
    partition, proposal = propose()
    before = partition.freeze()
    assert Playbook(partition) >> confirmed(proposal, error=error) << None
    assert partition.freeze() == before


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_other_errors_are_retried(propose: Propose, error: ErrorCode) -> None:
    partition, proposal = propose()
    before = partition.freeze()
    assert Playbook(partition) >> confirmed(proposal, error=error) << proposal
    assert partition.freeze() == before


@BOTH
@pytest.mark.parametrize(
    "answered",
    [
        pytest.param({"epoch": 2}, id="granted by a newer leader epoch"),
        pytest.param({"partition_epoch": 4}, id="an older partition epoch"),
    ],
)
def test_outdated_acceptance_changes_nothing(propose: Propose, answered: dict[str, int]) -> None:
    partition, proposal = propose()
    before = partition.freeze()
    event = confirmed(
        proposal,
        epoch=answered.get("epoch"),
        partition_epoch=answered.get("partition_epoch"),
    )
    assert Playbook(partition) >> event << None
    assert partition.freeze() == before


@BOTH
@pytest.mark.parametrize("error", [NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER])
def test_response_to_an_outdated_proposal_is_ignored(propose: Propose, error: ErrorCode) -> None:
    """testAlterIsrLeaderAndIsrRace: the metadata arrived before the response."""
    partition, proposal = propose()
    partition.step(elected(A, 1, partition_epoch=6, isr=(A, C)))
    before = partition.freeze()
    assert Playbook(partition) >> confirmed(proposal, error=error) << None
    assert partition.freeze() == before
    assert partition.isr == Committed(frozenset({A, C}))


def test_response_to_another_proposal_is_ignored() -> None:
    partition, proposal = proposed_expansion()
    before = partition.freeze()
    proposal.partition_epoch = 4
    assert Playbook(partition) >> confirmed(proposal) << None
    other = do.ProposeIsr(((A, 10),), 1, 5)
    assert Playbook(partition) >> confirmed(other) << None
    assert partition.freeze() == before


def test_response_to_a_replaced_leader_is_ignored() -> None:
    partition, proposal = proposed_expansion()
    partition.step(elected(B, 2))
    before = partition.freeze()
    assert Playbook(partition) >> confirmed(proposal) << None
    assert partition.freeze() == before


def test_metadata_with_the_accepted_epoch_changes_nothing() -> None:
    partition, proposal = proposed_expansion()
    partition.step(confirmed(proposal))
    partition.step(elected(A, 1, partition_epoch=6, isr=(A, B)))
    assert partition.isr == Committed(ABC)


def test_a_late_copy_of_old_metadata_does_not_forget_a_proposal() -> None:
    partition, _ = proposed_expansion()
    before = partition.freeze()
    assert Playbook(partition) >> elected(A, 1, partition_epoch=5, isr=(A, B)) << None
    assert partition.freeze() == before
