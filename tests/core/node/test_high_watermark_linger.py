"""A follower learns a new high watermark with the next records, or a few milliseconds later."""

from node_cluster import ORDERS, Cluster

from tidelog.core.node.messages import Fetch


def fetches(cluster: Cluster) -> int:
    return sum(isinstance(request, Fetch) for _, _, request in cluster.sent)


def test_a_new_high_watermark_alone_is_sent_after_a_delay() -> None:
    cluster = Cluster(settings={"high_watermark_linger_ms": 50})
    cluster.start()
    cluster.create_topic()
    leader = cluster.leader()
    assert leader is not None
    cluster.run(1000)
    cluster.produce(leader, b"a")
    followers = [cluster.replica(broker) for broker in (1, 2, 3) if broker != leader]
    assert cluster.replica(leader).partition.high_watermark == 1
    assert [f.partition.high_watermark for f in followers] == [0, 0]
    cluster.run(49)
    assert [f.partition.high_watermark for f in followers] == [0, 0]
    cluster.run(5)
    assert [f.partition.high_watermark for f in followers] == [1, 1]


def test_new_records_carry_the_high_watermark_without_an_extra_message() -> None:
    sent = {}
    for linger_ms in (0, 50):
        cluster = Cluster(settings={"high_watermark_linger_ms": linger_ms})
        cluster.start()
        cluster.create_topic()
        leader = cluster.leader()
        assert leader is not None
        cluster.run(1000)
        before = fetches(cluster)
        for number in range(20):
            cluster.produce(leader, b"%d" % number)
        sent[linger_ms] = fetches(cluster) - before
        cluster.run(100)
        assert all(cluster.replica(b, ORDERS).partition.high_watermark == 20 for b in (1, 2, 3))
    assert sent[50] <= 42 < sent[0]
