"""Three whole brokers: replication, high watermarks, changes of leader."""

import pytest
from node_cluster import ORDERS, Cluster, fetch, produce

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Fetch


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    return cluster


@pytest.mark.parametrize("acks", [1, -1], ids=["acks=1", "acks=all"])
def test_a_record_reaches_every_replica(cluster: Cluster, acks: int) -> None:
    leader = cluster.leader()
    assert leader is not None
    answers = cluster.produce(leader, b"one", b"two", acks=acks)
    assert [a.error for a in answers] == [ErrorCode.NONE, ErrorCode.NONE]
    assert [a.base_offset for a in answers] == [0, 1]
    cluster.run(1000)
    for broker in (1, 2, 3):
        partition = cluster.replica(broker).partition
        assert (partition.log_end_offset, partition.high_watermark) == (2, 2)
    assert cluster.consume(leader) == [b"one", b"two"]


def test_a_crashed_leader_is_replaced_and_its_acknowledged_records_stay(cluster: Cluster) -> None:
    old = cluster.leader()
    assert old is not None
    cluster.produce(old, b"one", b"two")
    cluster.crash(old)
    cluster.run_until(lambda: cluster.leader() is not None)
    new = cluster.leader()
    assert new is not None
    assert new != old
    assert cluster.produce(new, b"three")[0].base_offset == 2
    assert cluster.consume(new) == [b"one", b"two", b"three"]
    assert cluster.log(new) == [(0, 0), (1, 0), (2, cluster.replica(new).partition.leader_epoch)]

    cluster.start(old)
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3})
    assert cluster.log(old) == cluster.log(new)


def test_proof_of_death_replaces_a_leader_within_a_second(cluster: Cluster) -> None:
    old = cluster.leader()
    assert old is not None
    cluster.crash(old, proof=True)
    cluster.run_until(lambda: cluster.leader() is not None, within_ms=1000)


def test_unacknowledged_tail_of_the_old_leader_is_truncated(cluster: Cluster) -> None:
    old = cluster.leader()
    assert old is not None
    cluster.produce(old, b"one")
    others = {1, 2, 3} - {old}
    cluster.cut |= {(other, old) for other in others}
    answers = cluster.produce(old, b"lost", acks=1)
    assert answers[0].error is ErrorCode.NONE
    cluster.crash(old)
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.leader() is not None)
    new = cluster.leader()
    assert new is not None
    cluster.produce(new, b"two", b"three")
    cluster.start(old)
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3})
    assert cluster.log(old) == cluster.log(new)
    losses = list(cluster.nodes[old].losses.recent)
    assert [(loss.start, loss.end, loss.committed) for loss in losses] == [(1, 2, 0)]


def test_followers_learn_the_high_watermark_without_another_produce(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.run(2000)
    cluster.produce(leader, b"one")
    cluster.run(20)
    assert {cluster.replica(b).partition.high_watermark for b in (1, 2, 3)} == {1}


def test_idle_fetches_in_a_session_name_no_partition(cluster: Cluster) -> None:
    cluster.run(5000)
    leader = cluster.leader()
    cluster.sent.clear()
    cluster.run(2000)
    fetches = [r for _, target, r in cluster.sent if isinstance(r, Fetch) and target == leader]
    assert 6 <= len(fetches) <= 10
    assert all(f.session_id and f.session_epoch > 0 and not f.partitions for f in fetches)


def test_a_silent_follower_leaves_the_isr_and_rejoins(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    slow = min({1, 2, 3} - {leader})
    cluster.cut |= {(slow, leader)}
    # The record that only the silent one lacks is committed once it is out of the ISR.
    assert cluster.produce(leader, b"one", timeout_ms=60_000)[0].error is ErrorCode.NONE
    assert cluster.replica(leader).partition.isr.members == {1, 2, 3} - {slow}
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.replica(leader).partition.isr.members == {1, 2, 3}, 90_000)
    assert cluster.log(slow) == cluster.log(leader)


def test_too_few_in_sync_replicas_refuse_acks_all() -> None:
    cluster = Cluster(settings={"min_insync_replicas": 1})
    cluster.start()
    cluster.create_topic(min_insync_replicas="3")
    leader = cluster.leader()
    assert leader is not None
    cluster.crash(min({1, 2, 3} - {leader}), proof=True)
    cluster.run(1000)
    assert cluster.produce(leader, b"one")[0].error is ErrorCode.NOT_ENOUGH_REPLICAS
    damaged = produce(b"one")
    damaged.partitions[0].records[-1] ^= 1
    refused = cluster.call(leader, damaged)
    assert refused.partitions[0].error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce(leader, b"one", acks=1)[0].error is ErrorCode.NONE
    cluster.run(1000)
    assert cluster.consume(leader) == []


def test_an_acks_all_produce_times_out(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.cut |= {(other, leader) for other in {1, 2, 3} - {leader}}
    assert cluster.produce(leader, b"one", timeout_ms=700)[0].error is ErrorCode.REQUEST_TIMED_OUT
    assert len(cluster.replica(leader).commits) == 0


def test_a_long_poll_waits_for_a_commit(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    number = cluster.ask(leader, fetch(0, max_wait_ms=10_000))
    cluster.run(300)
    assert number not in cluster.answers
    cluster.produce(leader, b"one")
    cluster.run(1)
    assert cluster.answers[number].partitions[0].high_watermark == 1
    assert cluster.answers[number].partitions[0].records


def test_a_long_poll_ends_after_max_wait(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader is not None
    began = cluster.now_ms
    response = cluster.call(leader, fetch(0, max_wait_ms=500))
    assert cluster.now_ms - began == 500
    assert response.partitions[0].records is None
    assert response.partitions[0].error is ErrorCode.NONE


def test_unknown_topics_and_other_leaders_have_different_errors(cluster: Cluster) -> None:
    follower = min({1, 2, 3} - {cluster.leader()})
    assert cluster.produce(follower, b"x")[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    request = produce(b"x")
    request.partitions[0].topic_partition = ORDERS._replace(topic="nowhere")
    response = cluster.call(follower, request)
    assert response.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
