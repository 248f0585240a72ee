"""The fetches of followers let a leader serve without the metadata store."""

import pytest
from playbook import A, B, C, elected, fetch, follower, leader

from tidelog.core.replication.follower_lease import holds_lease
from tidelog.core.replication.isr import PendingExpand
from tidelog.core.replication.partition import Partition, PartitionConfig


def leased(partition: Partition, *confirmed: int) -> bool:
    return holds_lease(partition, lambda broker: broker in confirmed)


def led(isr: tuple[int, ...] = (A, B, C), *, unclean: bool = False) -> Partition:
    config = PartitionConfig(unclean_leader_election_enable=unclean)
    partition = leader(isr=isr, config=config)
    for broker in isr:
        if broker != A:
            partition.step(fetch(broker, 0))
    return partition


def test_leader_has_a_lease_while_every_in_sync_follower_confirms() -> None:
    assert leased(led(), B, C)


@pytest.mark.parametrize("confirmed", [(), (B,), (C,)])
def test_one_silent_follower_ends_the_lease(confirmed: tuple[int, ...]) -> None:
    assert not leased(led(), *confirmed)


def test_followers_outside_the_isr_do_not_count() -> None:
    assert leased(led(isr=(A, B)), B)


def test_follower_that_is_about_to_join_counts() -> None:
    partition = led(isr=(A, B))
    partition.step(fetch(C, 0))
    assert isinstance(partition.isr, PendingExpand)
    assert not leased(partition, B)
    assert leased(partition, B, C)


def test_leader_alone_in_its_isr_has_no_lease() -> None:
    assert not leased(led(isr=(A,)), B, C)


def test_no_lease_where_unclean_elections_are_allowed() -> None:
    assert not leased(led(unclean=True), B, C)


def test_fetches_of_an_earlier_epoch_do_not_count() -> None:
    partition = led()
    partition.step(elected(A, 2))
    assert not leased(partition, B, C)


def test_follower_has_no_lease() -> None:
    assert not leased(follower(), A, B, C)
