"""What clients get while a broker is down: topics, a first group, and a way to unregister it."""

from typing import Any

import pytest
from api_cluster import (
    DESCRIBE_CLUSTER,
    METADATA,
    NO_TOPIC_ID,
    UNREGISTER_BROKER,
    ApiCluster,
    creatable,
)

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.types import TopicPartition

OFFSETS = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "2"}


@pytest.fixture
def cluster() -> ApiCluster:
    """Three brokers of which the third died a while ago."""
    cluster = ApiCluster(texts=OFFSETS).start_all()
    cluster.crash(3, proof=True)
    cluster.run_until(lambda: all(3 not in node.image.active for node in cluster.nodes.values()))
    cluster.settle()
    return cluster


def partitions(cluster: ApiCluster, topic: str) -> list[Any]:
    asked = {"topics": [{"name": topic, "topic_id": NO_TOPIC_ID}]}
    answer = cluster.request(1, METADATA, {**asked, "allow_auto_topic_creation": False})
    return list(answer["topics"][0]["partitions"])


def described(cluster: ApiCluster, **request: Any) -> list[tuple[int, bool]]:
    asked = {"include_cluster_authorized_operations": False, **request}
    brokers = cluster.request(1, DESCRIBE_CLUSTER, asked)["brokers"]
    return [(each["broker_id"], each["is_fenced"]) for each in brokers]


def unregister(cluster: ApiCluster, broker: int, asked: int = 1) -> Any:
    return cluster.request(asked, UNREGISTER_BROKER, {"broker_id": broker})


def test_a_topic_is_created_and_its_third_replica_joins_later(cluster: ApiCluster) -> None:
    cluster.create("orders", 2, 3)
    for partition in partitions(cluster, "orders"):
        assert sorted(partition["replica_nodes"]) == [1, 2, 3]
        assert sorted(partition["isr_nodes"]) == [1, 2]
        assert partition["offline_replicas"] == [3]
        assert partition["leader_id"] in (1, 2)
    cluster.start(3, port=9093)
    cluster.run_until(
        lambda: all(len(each["isr_nodes"]) == 3 for each in partitions(cluster, "orders"))
    )
    assert cluster.nodes[3].directory.logs[TopicPartition("orders", 0)].log_start_offset == 0
    known = cluster.nodes[1].image.partition("orders", 0)
    assert known is not None
    assert (known.lost, known.behind) == ((), ()), "a log that was never there is not lost"


def test_the_first_group_gets_a_coordinator(cluster: ApiCluster) -> None:
    assert cluster.coordinator("group") in (1, 2)
    for partition in partitions(cluster, "__consumer_offsets"):
        assert sorted(partition["replica_nodes"]) == [1, 2, 3]
        assert sorted(partition["isr_nodes"]) == [1, 2]


def test_offline_broker_is_listed_only_on_request(cluster: ApiCluster) -> None:
    assert described(cluster) == [(1, False), (2, False)]
    everyone = described(cluster, include_fenced_brokers=True)
    assert everyone == [(1, False), (2, False), (3, True)]


def test_broker_registered_by_an_older_release_is_listed(cluster: ApiCluster) -> None:
    """Its address is not known until it is back."""
    old = b'{"epoch":1,"fenced":false,"shutting_down":false}'
    cluster.store.txn((), (Put(keys.broker_state(7), old),))
    cluster._notify()
    cluster.settle()
    assert described(cluster) == [(1, False), (2, False)]
    assert described(cluster, include_fenced_brokers=True)[-1] == (7, True)
    assert unregister(cluster, 7)["error_code"] == ErrorCode.NONE


def test_offline_broker_can_be_unregistered(cluster: ApiCluster) -> None:
    asked = next(broker for broker in cluster.nodes if broker != cluster.controller())
    done = {"throttle_time_ms": 0, "error_code": ErrorCode.NONE, "error_message": ""}
    assert unregister(cluster, 3, asked) == done
    cluster.settle()
    assert described(cluster, include_fenced_brokers=True) == [(1, False), (2, False)]
    refused = unregister(cluster, 3)
    assert refused["error_code"] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "3" in refused["error_message"]
    [topic] = cluster.create_topics([creatable("orders", 1, 3)])["topics"]
    assert topic["error_code"] == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.start(3, port=9093)
    cluster.run_until(lambda: cluster.nodes[3].acting)
    assert described(cluster)[-1] == (3, False)


@pytest.mark.parametrize("controller", [False, True], ids=["another", "the controller"])
def test_a_running_broker_that_is_unregistered_stays_out_until_restarted(controller: bool) -> None:
    """As in Kafka, where its heartbeats are rejected."""
    cluster = ApiCluster(texts=OFFSETS).start_all()
    cluster.create("orders", 1, 3)
    is_active = cluster.controller()
    victim = is_active if controller else min({1, 2, 3} - {is_active})
    assert unregister(cluster, victim, asked=victim)["error_code"] == ErrorCode.NONE
    left = {1, 2, 3} - {victim}
    cluster.run_until(lambda: all(cluster.nodes[each].acting for each in left))
    cluster.run(30_000)
    known = cluster.nodes[min(left)].image
    assert set(known.brokers) == left
    orders = known.partition("orders", 0)
    assert orders is not None
    assert set(orders.isr) == left
    assert orders.leader in left
    assert not cluster.nodes[victim].acting
    cluster.step(victim, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: victim in cluster.halted)
    cluster.start(victim, port=9090)
    cluster.run_until(lambda: victim in known.active)
    cluster.run_until(lambda: known.partition("orders", 0).isr == orders.replicas)  # type: ignore[union-attr]
