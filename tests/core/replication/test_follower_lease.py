"""The fetches of followers let a leader serve without the metadata store."""

import pytest
from playbook import A, B, C, elected, fetch, follower, leader

from tidelog.core.replication.follower_lease import holds_lease
from tidelog.core.replication.isr import PendingExpand
from tidelog.core.replication.partition import Partition, PartitionConfig

LEASE_MS = 9_000


def leased(partition: Partition, now: int, resting: dict[int, int] | None = None) -> bool:
    return holds_lease(partition, resting or {}, now_ms=now, lease_ms=LEASE_MS)


def led(isr: tuple[int, ...] = (A, B, C), *, unclean: bool = False) -> Partition:
    config = PartitionConfig(unclean_leader_election_enable=unclean)
    partition = leader(isr=isr, config=config)
    for broker in isr:
        if broker != A:
            partition.step(fetch(broker, 0, now=1_000))
    return partition


def test_lease_lasts_while_every_in_sync_follower_fetches() -> None:
    partition = led()
    assert leased(partition, 1_000 + LEASE_MS)
    assert not leased(partition, 1_001 + LEASE_MS)


@pytest.mark.parametrize("silent", [B, C])
def test_one_silent_follower_ends_the_lease(silent: int) -> None:
    partition = led()
    partition.step(fetch(B + C - silent, 0, now=5_000))
    assert not leased(partition, 1_001 + LEASE_MS)


def test_followers_outside_the_isr_do_not_count() -> None:
    partition = led(isr=(A, B))
    partition.step(fetch(B, 0, now=5_000))
    assert leased(partition, 5_000 + LEASE_MS)


def test_follower_that_is_about_to_join_counts() -> None:
    partition = led(isr=(A, B))
    partition.step(fetch(C, 0, now=2_000))
    assert isinstance(partition.isr, PendingExpand)
    partition.step(fetch(B, 0, now=5_000))
    assert not leased(partition, 5_000 + LEASE_MS)


def test_follower_that_rests_in_a_fetch_session_counts_by_the_session() -> None:
    assert leased(led(), 20_000, {B: 15_000, C: 15_000})
    assert not leased(led(), 20_000, {B: 15_000})


def test_leader_alone_in_its_isr_has_no_lease() -> None:
    assert not leased(led(isr=(A,)), 1_000)


def test_no_lease_where_unclean_elections_are_allowed() -> None:
    assert not leased(led(unclean=True), 1_000)


def test_fetches_of_an_earlier_epoch_do_not_count() -> None:
    partition = led()
    partition.step(elected(A, 2, now=1_500))
    assert not leased(partition, 1_500)


def test_follower_has_no_lease() -> None:
    assert not leased(follower(), 0)
