"""A broker that just left is still listed; a response waits while it would name a dead leader."""

from api_cluster import ApiCluster

from tidelog.core.api.context import KEPT_MS
from tidelog.core.api.settling import names_a_dead_leader

METADATA = 3
ALL = {"topics": None}


def named(cluster: ApiCluster) -> list[int]:
    answer = cluster.request(1, METADATA, {**ALL, "allow_auto_topic_creation": False})
    return [broker["node_id"] for broker in answer["brokers"]]


def test_dead_broker_is_listed_for_a_moment() -> None:
    cluster = ApiCluster().start_all()
    cluster.departed.note(cluster.nodes[1].image, cluster.now_ms)
    cluster.lose_session(3)
    cluster.crash(3)
    cluster.settle()
    died_ms = cluster.now_ms
    cluster.departed.note(cluster.nodes[1].image, died_ms)
    assert named(cluster) == [1, 2, 3]
    assert 3 not in cluster.nodes[1].image.active
    cluster.run(KEPT_MS)
    assert named(cluster) == [1, 2]


def test_returned_broker_is_listed_once() -> None:
    cluster = ApiCluster().start_all()
    image = cluster.nodes[1].image
    cluster.departed.note(image, cluster.now_ms)
    cluster.lose_session(3)
    cluster.crash(3)
    cluster.settle()
    cluster.departed.note(image, cluster.now_ms)
    cluster.start(3, port=7000)
    cluster.run_until(lambda: 3 in image.active)
    cluster.departed.note(image, cluster.now_ms)
    answer = cluster.request(1, METADATA, ALL)
    assert [(b["node_id"], b["port"]) for b in answer["brokers"]][2] == (3, 7000)
    assert named(cluster) == [1, 2, 3]


def test_dead_leader_is_detected_until_another_leads() -> None:
    cluster = ApiCluster().start_all()
    cluster.create_topic("orders", (3, 1, 2))
    cluster.create_topic("other", (1, 2), topic_id=b"o" * 16)
    image = cluster.nodes[1].image
    cluster.settle()
    orders = {"topics": [{"name": "orders"}]}
    by_id = {"topics": [{"name": None, "topic_id": b"t" * 16}]}
    other = {"topics": [{"name": "other"}, {"name": "no such"}]}
    assert not names_a_dead_leader(image, ALL)
    cluster.lose_session(3)
    cluster.crash(3)
    cluster.run_until(lambda: 3 not in image.active)
    for asked in (orders, by_id, ALL):
        assert names_a_dead_leader(image, asked)
    assert not names_a_dead_leader(image, other)
    cluster.run_until(lambda: cluster.leader() in (1, 2))
    cluster.settle()
    assert not names_a_dead_leader(image, ALL)
