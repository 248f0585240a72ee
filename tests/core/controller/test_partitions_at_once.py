"""A broker that led many partitions dies: the controller decides on a few of them at a time."""

import pytest
from cluster_driver import TOPIC, Cluster

from tidelog.core.controller.controller import Controller, ControllerSettings
from tidelog.core.controller.effects import ControllerEffect, Elected, StoreTransaction
from tidelog.core.controller.events import AlterPartitionReceived, IsrMember, IsrProposal
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import PartitionKey

AT_ONCE = 10
COUNT = 45


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of partitions that each step wrote, for steps that wrote any."""
    counts: list[int] = []
    finish = Controller._finish

    def watched(controller: Controller) -> list[ControllerEffect]:
        effects = finish(controller)
        sent = [op.key for e in effects if isinstance(e, StoreTransaction) for op in e.ops]
        if count := sum(key.startswith(keys.TOPIC_IDS) for key in sent):
            counts.append(count)
        return effects

    monkeypatch.setattr(Controller, "_finish", watched)
    return counts


def made(*assignments: tuple[int, ...], rebalance_interval_ms: int = 10**9) -> Cluster:
    settings = ControllerSettings(
        rebalance_interval_ms=rebalance_interval_ms, partitions_at_once=AT_ONCE
    )
    cluster = Cluster(1, 2, 3, settings=settings)
    cluster.create(*(assignments[n % len(assignments)] for n in range(COUNT)))
    cluster.tick(500)
    return cluster


def leaders(cluster: Cluster) -> list[int | None]:
    image = cluster.leader.image
    return [image.partitions[PartitionKey(TOPIC, n)].leader for n in range(COUNT)]


def test_no_step_decides_on_more_than_allowed(decided: list[int]) -> None:
    cluster = made((2, 3, 1))
    decided.clear()
    cluster.crash(2)
    assert leaders(cluster) == [3] * COUNT
    assert decided == [AT_ONCE] * 4 + [COUNT - 4 * AT_ONCE]
    elected = [effect for effect in cluster.leader.seen if isinstance(effect, Elected)]
    assert len(elected) == COUNT, "each is told once"


def test_events_of_one_turn_share_what_is_allowed(decided: list[int]) -> None:
    cluster = made((2, 3, 1))
    host = cluster.leader
    cluster.deaf.add(host.broker)
    session = cluster.hosts[2].session
    cluster.stop(2)
    cluster.store.expire(session)
    decided.clear()
    cluster.watch(host.broker)
    for _ in range(5):
        cluster.carry_out(host.broker)
        cluster.watch(host.broker)
        if not host.queue:
            break
    assert decided == [AT_ONCE], "the next are decided on when the clock ticks"
    assert leaders(cluster).count(3) == AT_ONCE
    assert host.controller.unfinished
    cluster.deaf.clear()
    cluster.run()
    assert leaders(cluster) == [3] * COUNT


def test_partitions_without_candidates_do_not_delay_others() -> None:
    cluster = made((2,), (3,), (2,), (2,))
    cluster.crash(2)
    cluster.crash(3)
    assert leaders(cluster) == [None] * COUNT
    cluster.start(3)
    cluster.heartbeat(3)
    mine = [n for n in range(COUNT) if n % 4 == 1]
    assert len(mine) > AT_ONCE
    assert [n for n, leader in enumerate(leaders(cluster)) if leader == 3] == mine


def test_a_broker_with_more_partitions_than_one_step_allows_returns(decided: list[int]) -> None:
    cluster = made((2, 3), (3, 2), (2, 1))
    decided.clear()
    cluster.restart(2)
    image = cluster.leader.image
    assert not image.brokers[2].fenced
    assert all(leader in (1, 3) for leader in leaders(cluster))
    assert max(decided) == AT_ONCE


def test_a_new_term_continues_unfinished_upkeep() -> None:
    cluster = made((3, 2))
    office = cluster.leader.broker
    session = cluster.hosts[3].session
    cluster.stop(3)
    cluster.store.expire(session)
    cluster.watch(office)
    cluster.carry_out(office)
    cluster.crash(office)
    assert leaders(cluster) == [2] * COUNT


def test_preferred_leaders_are_elected_a_few_at_a_time(decided: list[int]) -> None:
    cluster = made((2, 3), rebalance_interval_ms=20_000)
    cluster.restart(2, clean=True)
    members = tuple(IsrMember(broker, cluster.hosts[broker].epoch) for broker in (2, 3))
    of_all = [cluster.partition(PartitionKey(TOPIC, n)) for n in range(COUNT)]
    assert {(p.leader, p.isr) for p in of_all} == {(3, (3,))}
    proposals = tuple(
        IsrProposal(p.key, p.leader_epoch, p.partition_epoch, members) for p in of_all
    )
    cluster.request(AlterPartitionReceived(cluster.number(), 3, cluster.hosts[3].epoch, proposals))
    assert leaders(cluster) == [3] * COUNT
    decided.clear()
    cluster.tick(21_000)
    assert leaders(cluster) == [2] * COUNT
    assert decided == [AT_ONCE] * 4 + [COUNT - 4 * AT_ONCE]


def test_partitions_without_leader_are_decided_first() -> None:
    """Clients wait for a leader, not for a smaller ISR."""
    cluster = made((3, 2), (2, 3), (3, 2))
    host = cluster.leader
    session = cluster.hosts[2].session
    cluster.stop(2)
    cluster.store.expire(session)
    cluster.watch(host.broker)
    sent = [op.key for transaction in host.queue for op in transaction.ops]
    led = [keys.partition(TOPIC, n) for n in range(COUNT) if n % 3 == 1]
    assert [key for key in sent if key.startswith(keys.TOPIC_IDS)] == led[:AT_ONCE]
