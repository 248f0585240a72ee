"""Known bugs of Kafka's controller, tested against this one."""

from dataclasses import replace

from cluster_driver import KEY, Cluster

from tidelog.core.controller import events as on
from tidelog.core.controller.effects import AlterPartitionAnswer
from tidelog.core.errors import ErrorCode


def error_of(cluster: Cluster, event: on.AlterPartitionReceived) -> ErrorCode:
    answer = cluster.request(event)
    assert isinstance(answer, AlterPartitionAnswer)
    return answer.results[KEY].error if answer.results else answer.error


def shrunk() -> Cluster:
    """A partition of three replicas, of which broker 3 has left the ISR."""
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3), min_insync_replicas="2")
    cluster.alter(1, 2)
    return cluster


def test_kafka_13916_a_fenced_replica_does_not_join_the_isr() -> None:
    cluster = shrunk()
    cluster.heartbeat(3, want_fence=True)
    assert error_of(cluster, cluster.proposal(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition().isr == (1, 2)


def test_kafka_14140_a_replica_in_controlled_shutdown_does_not_join_the_isr() -> None:
    cluster = shrunk()
    cluster.heartbeat(3, want_shut_down=True)
    assert error_of(cluster, cluster.proposal(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA


def test_kafka_14139_and_14617_a_rebooted_replica_is_not_added_by_a_stale_request() -> None:
    """The leader saw broker 3 catch up; then broker 3 lost its disk and restarted empty."""
    cluster = shrunk()
    stale = cluster.proposal(1, 2, 3)
    cluster.restart(3)
    assert cluster.leader.image.brokers[3].active
    assert error_of(cluster, stale) is ErrorCode.INELIGIBLE_REPLICA
    unchecked = replace(stale.proposals[0], isr=tuple(on.IsrMember(b) for b in (1, 2, 3)))
    allowed = replace(stale, request=cluster.number(), proposals=(unchecked,))
    assert error_of(cluster, allowed) is ErrorCode.NONE


def test_kafka_14617_a_reboot_counts_before_it_is_noticed() -> None:
    cluster = shrunk()
    stale = cluster.proposal(1, 2, 3)
    cluster.deaf.add(1)
    session = cluster.hosts[3].session
    cluster.stop(3)
    cluster.store.expire(session)
    cluster.start(3)
    cluster.step(1, stale)
    cluster.run()
    assert cluster.partition().isr == (1, 2)
    cluster.deaf.clear()
    cluster.run()
    answer = cluster.leader.answers[stale.request]
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.results[KEY].error is ErrorCode.INELIGIBLE_REPLICA


def test_kafka_15021_a_shrinking_isr_keeps_the_leader_epoch() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.alter(1, 2)
    cluster.restart(2)
    partition = cluster.partition()
    assert partition.isr == (1,)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 2)


def test_kafka_18635_an_unclean_shutdown_is_noticed() -> None:
    cluster = shrunk()
    cluster.crash(2)
    assert cluster.partition().elr == (2,)
    cluster.start(2)
    assert cluster.partition().elr == ()
    cluster.crash(1)
    assert cluster.partition().leader is None, "2 must not lead: it may have lost records"
    assert cluster.partition().elr == (1,)


def test_kafka_19522_the_last_known_leader_is_not_elected_while_fenced() -> None:
    cluster = Cluster(1, 2)
    cluster.create((2,))
    cluster.crash(2)
    cluster.start(2)
    offline = cluster.partition()
    assert (offline.leader, offline.isr, offline.elr) == (None, (), ())
    assert offline.last_known_elr == (2,)
    cluster.heartbeat(1)
    assert cluster.partition().leader is None
    cluster.heartbeat(2)
    assert cluster.partition().leader == 2
