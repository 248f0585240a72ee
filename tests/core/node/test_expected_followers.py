"""A follower fetches a newly led partition before records of other partitions arrive."""

import pytest
from node_cluster import DELAY_MS, ORDERS, Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Fetch, Produce, ProducePartition
from tidelog.core.node.serving.fetch import EXPECTED_MS, WAIT_MS, ExpectedFollowers
from tidelog.core.record.encoder import encode_value
from tidelog.core.types import BrokerId, TopicPartition

LATE = TopicPartition("late", 0)
SOON_MS = 2 * WAIT_MS + 10 * DELAY_MS


@pytest.fixture
def cluster() -> Cluster:
    """Followers of `orders` wait at broker 1 for records; broker 3 also waits at broker 2."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    cluster.create_topic("more", (2, 3), b"m" * 16)
    cluster.run(2100)
    return cluster


def make_late(cluster: Cluster) -> None:
    cluster.create_topic("late", topic_id=b"l" * 16, wait=False)
    cluster.run_until(lambda: cluster.leader(LATE) == 1)


def acknowledged_after_ms(cluster: Cluster, leader: BrokerId, name: TopicPartition) -> int:
    began_ms = cluster.now_ms
    request = Produce(-1, 30_000, [ProducePartition(name, encode_value(b"first"))])
    [answer] = cluster.call(leader, request).partitions
    assert answer.error is ErrorCode.NONE
    return cluster.now_ms - began_ms


def fetches(cluster: Cluster, follower: BrokerId, leader: BrokerId) -> int:
    sent = cluster.sent
    return sum(s == follower and t == leader and isinstance(r, Fetch) for s, t, r in sent)


def test_the_first_record_of_a_topic_does_not_wait_for_other_topics(cluster: Cluster) -> None:
    make_late(cluster)
    assert acknowledged_after_ms(cluster, 1, LATE) <= SOON_MS


def test_first_record_after_a_failover_does_not_wait(cluster: Cluster) -> None:
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: cluster.leader(ORDERS) == 2)
    assert acknowledged_after_ms(cluster, 2, ORDERS) <= SOON_MS


def test_a_follower_may_learn_of_the_topic_later(cluster: Cluster) -> None:
    cluster.storeless.add(3)
    make_late(cluster)
    cluster.run(EXPECTED_MS // 2)
    cluster.storeless.discard(3)
    cluster._notify()
    assert acknowledged_after_ms(cluster, 1, LATE) <= SOON_MS


def test_follower_that_fetched_the_partition_waits_as_usual(cluster: Cluster) -> None:
    make_late(cluster)
    cluster.run(SOON_MS)
    before = fetches(cluster, 3, 1)
    cluster.run(1500)
    assert fetches(cluster, 3, 1) - before <= 4


def test_a_follower_is_expected_for_a_short_time_only(cluster: Cluster) -> None:
    cluster.storeless.add(3)
    before = fetches(cluster, 3, 1)
    make_late(cluster)
    cluster.run(EXPECTED_MS + 10)
    hurried = fetches(cluster, 3, 1) - before
    assert EXPECTED_MS // (WAIT_MS + 4 * DELAY_MS) <= hurried <= EXPECTED_MS // WAIT_MS + 3
    cluster.run(1500)
    assert fetches(cluster, 3, 1) - before - hurried <= 4


def test_each_partition_is_checked_once() -> None:
    expected, names = ExpectedFollowers(), [TopicPartition("t", n) for n in range(1000)]
    for name in names:
        expected.expect(2, name, 0)
    looks: list[TopicPartition] = []

    class Asked(set[TopicPartition]):
        def __contains__(self, name: object) -> bool:
            assert isinstance(name, TopicPartition)
            looks.append(name)
            return super().__contains__(name)

    for known in range(0, 1000, 100):
        assert expected.lacks_any(2, Asked(names[:known]), 1)
    assert not expected.lacks_any(2, Asked(names), 1)
    assert not expected
    assert len(looks) <= 1000 + 10


def test_late_partitions_are_forgotten() -> None:
    expected = ExpectedFollowers()
    for number in range(1000):
        expected.expect(2, TopicPartition("t", number), number * EXPECTED_MS)
    assert len(expected._expected[2]) == 1
    assert not expected.lacks_any(2, (), 1000 * EXPECTED_MS)
    assert not expected
