"""Metadata and DescribeCluster: what clients see of the cluster, also when brokers are down."""

from typing import Any

import pytest
from api_cluster import (
    CLUSTER_ID,
    DESCRIBE_CLUSTER,
    METADATA,
    NO_TOPIC_ID,
    ApiCluster,
    errors,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.settings.listeners import Listener

NOT_ASKED_FOR = -(2**31)


@pytest.fixture
def cluster() -> ApiCluster:
    """Three brokers with racks, and a topic on all of them."""
    cluster = ApiCluster(texts={"num.partitions": "2", "default.replication.factor": "3"})
    for broker in cluster.brokers:
        cluster.start(broker, port=9090 + broker, rack=f"rack-{broker}")
    cluster.run_until(lambda: all(cluster.nodes[broker].acting for broker in cluster.brokers))
    cluster.create("orders", -1, -1, assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    return cluster


def ask(
    cluster: ApiCluster,
    *names: str | None,
    broker: int = 1,
    version: int = 13,
    ids: tuple[bytes, ...] = (),
    **request: Any,
) -> Any:
    topics = [{"name": name, "topic_id": NO_TOPIC_ID} for name in names]
    topics += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    asked = {"topics": topics, "allow_auto_topic_creation": False, **request}
    return cluster.request(broker, METADATA, asked, version)


def test_a_topic_with_all_its_replicas(cluster: ApiCluster) -> None:
    answer = ask(cluster, "orders", broker=3)
    assert answer["brokers"] == [
        {"node_id": id, "host": "localhost", "port": 9090 + id, "rack": f"rack-{id}"}
        for id in (1, 2, 3)
    ]
    assert answer["cluster_id"] == CLUSTER_ID
    assert answer["controller_id"] == cluster.controller()
    [topic] = answer["topics"]
    assert topic["name"] == "orders"
    assert topic["topic_id"] == cluster.nodes[1].image.topics["orders"].topic_id
    assert topic["is_internal"] is False
    assert topic["topic_authorized_operations"] == NOT_ASKED_FOR
    assert topic["partitions"][1] == {
        "error_code": ErrorCode.NONE,
        "partition_index": 1,
        "leader_id": 2,
        "leader_epoch": 0,
        "replica_nodes": [2, 3, 1],
        "isr_nodes": [2, 3, 1],
        "offline_replicas": [],
    }


def test_all_topics_no_topics_and_version_0(cluster: ApiCluster) -> None:
    cluster.create("payments")
    everything = {"orders": ErrorCode.NONE, "payments": ErrorCode.NONE}
    assert errors(ask(cluster, topics=None)["topics"]) == everything
    assert ask(cluster)["topics"] == []
    assert errors(ask(cluster, version=0)["topics"]) == everything
    assert errors(ask(cluster, "orders", "orders")["topics"]) == {"orders": ErrorCode.NONE}


def test_topics_by_id(cluster: ApiCluster) -> None:
    known, unknown = cluster.nodes[1].image.topics["orders"].topic_id, b"u" * 16
    answer = ask(cluster, ids=(known, unknown, known))
    assert [topic["name"] for topic in answer["topics"]] == ["orders", None]
    assert [len(topic["partitions"]) for topic in answer["topics"]] == [2, 0]
    assert errors(answer["topics"], "topic_id") == {
        known: ErrorCode.NONE,
        unknown: ErrorCode.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_not_served_before_version_12(cluster: ApiCluster, version: int) -> None:
    known = cluster.nodes[1].image.topics["orders"].topic_id
    answer = ask(cluster, "orders", ids=(known,), version=version)
    assert errors(answer["topics"]) == {
        "orders": ErrorCode.INVALID_REQUEST,
        "": ErrorCode.INVALID_REQUEST,
    }


def test_topic_without_name_and_id_is_refused(cluster: ApiCluster) -> None:
    answer = ask(cluster, None)
    assert errors(answer["topics"]) == {None: ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250])
def test_illegal_names_are_refused(cluster: ApiCluster, name: str) -> None:
    for auto in (False, True):
        answer = ask(cluster, name, allow_auto_topic_creation=auto)
        assert errors(answer["topics"]) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert set(cluster.nodes[1].image.topics) == {"orders"}


def test_authorised_operations_only_on_request(cluster: ApiCluster) -> None:
    answer = ask(
        cluster,
        "orders",
        "nowhere",
        version=8,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert answer["cluster_authorized_operations"] == 8096
    assert [t["topic_authorized_operations"] for t in answer["topics"]] == [3576, 3576]
    assert ask(cluster, version=10)["cluster_authorized_operations"] == NOT_ASKED_FOR


# -- topics that are not there -------------------------------------------------------------


def test_missing_topic_is_created_on_request(cluster: ApiCluster) -> None:
    answer = ask(cluster, "new", "orders", allow_auto_topic_creation=True)
    assert errors(answer["topics"])["orders"] is ErrorCode.NONE
    assert errors(answer["topics"])["new"] in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    cluster.settle()
    [topic] = ask(cluster, "new", broker=2)["topics"]
    assert topic["error_code"] == ErrorCode.NONE
    assert [len(p["replica_nodes"]) for p in topic["partitions"]] == [3, 3]


@pytest.mark.parametrize("version", [1, 3])
def test_old_clients_always_create(cluster: ApiCluster, version: int) -> None:
    ask(cluster, "new", version=version)
    cluster.settle()
    assert "new" in cluster.nodes[1].image.topics


def test_no_topic_is_created_without_the_flag(cluster: ApiCluster) -> None:
    unknown = {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(ask(cluster, "new")["topics"]) == unknown
    ask(cluster, topics=None, allow_auto_topic_creation=True)
    cluster.texts["auto.create.topics.enable"] = "false"
    assert errors(ask(cluster, "new", allow_auto_topic_creation=True)["topics"]) == unknown
    cluster.settle()
    assert set(cluster.nodes[1].image.topics) == {"orders"}


def test_internal_topics_are_not_created_by_metadata(cluster: ApiCluster) -> None:
    [topic] = ask(cluster, "__consumer_offsets", allow_auto_topic_creation=True)["topics"]
    assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic["is_internal"] is True


def test_failed_creation_is_reported(cluster: ApiCluster) -> None:
    cluster.texts["default.replication.factor"] = "4"
    answer = ask(cluster, "new", allow_auto_topic_creation=True)
    assert errors(answer["topics"]) == {"new": ErrorCode.INVALID_REPLICATION_FACTOR}


def test_creation_without_a_controller_is_retriable(cluster: ApiCluster) -> None:
    controller = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != controller)
    cluster.cut |= {(asked, controller)}
    answer = ask(cluster, "new", broker=asked, allow_auto_topic_creation=True)
    assert errors(answer["topics"]) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_topic_created_meanwhile_by_another_client(cluster: ApiCluster) -> None:
    """The answer of this broker's image is older than the controller's refusal."""
    controller = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != controller)
    cluster.storeless.add(asked)
    cluster.create_topics([{**TOPIC, "name": "new"}])
    answer = ask(cluster, "new", broker=asked, allow_auto_topic_creation=True)
    assert errors(answer["topics"]) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}


TOPIC = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


# -- brokers that are not there ------------------------------------------------------------


def stop(cluster: ApiCluster, *brokers: int) -> int:
    """Kill brokers, wait until the others know it, and return a remaining one."""
    for broker in brokers:
        cluster.crash(broker, proof=True)
    left = next(broker for broker in cluster.brokers if broker not in brokers)
    image = cluster.nodes[left].image
    cluster.run_until(lambda: not image.active.intersection(brokers))
    return left


def test_a_dead_broker_is_offline(cluster: ApiCluster) -> None:
    left = stop(cluster, 3)
    cluster.settle()
    answer = ask(cluster, "orders", broker=left)
    assert [broker["node_id"] for broker in answer["brokers"]] == [1, 2]
    for partition in answer["topics"][0]["partitions"]:
        assert partition["offline_replicas"] == [3]
        assert partition["error_code"] == ErrorCode.NONE
        assert 3 in partition["replica_nodes"]


def test_version_0_names_only_brokers_in_its_list(cluster: ApiCluster) -> None:
    left = stop(cluster, 3)
    [topic] = ask(cluster, "orders", broker=left, version=0)["topics"]
    for partition in topic["partitions"]:
        assert partition["error_code"] == ErrorCode.REPLICA_NOT_AVAILABLE
        assert sorted(partition["replica_nodes"]) == sorted(partition["isr_nodes"]) == [1, 2]


def test_a_partition_without_a_leader(cluster: ApiCluster) -> None:
    cluster.create("lonely", -1, -1, assignments={0: [3]})
    left = stop(cluster, 3)
    [topic] = ask(cluster, "lonely", broker=left)["topics"]
    assert topic["error_code"] == ErrorCode.NONE
    [partition] = topic["partitions"]
    assert partition["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition["leader_id"] == -1
    assert partition["leader_epoch"] >= 0


def test_a_broker_of_an_older_release_has_one_address_for_every_listener(
    cluster: ApiCluster,
) -> None:
    for listener in ("CLIENT", "OUT"):
        answer = cluster.request(1, METADATA, {"topics": []}, listener=listener)
        assert [one["port"] for one in answer["brokers"]] == [9091, 9092, 9093]


def test_brokers_without_the_clients_listener_are_left_out() -> None:
    """As in Kafka: a live leader without the listener is LISTENER_NOT_FOUND from version 6 on."""
    cluster = ApiCluster(texts={"default.replication.factor": "3"})
    for broker in cluster.brokers:
        named = [Listener("IN", "in", broker), Listener("OUT", f"out-{broker}", broker)]
        some = tuple(named[:1] if broker == 3 else named)
        cluster.start(broker, port=9090 + broker, listeners=some)
    cluster.run_until(lambda: all(cluster.nodes[broker].acting for broker in cluster.brokers))
    cluster.create("orders", -1, -1, assignments={0: [1, 2, 3], 1: [3, 1, 2]})
    asked = {"topics": [{"name": "orders", "topic_id": NO_TOPIC_ID}]}
    for version, error in ((13, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
        answer = cluster.request(1, METADATA, asked, version, listener="OUT")
        assert [(b["node_id"], b["host"]) for b in answer["brokers"]] == [
            (1, "out-1"),
            (2, "out-2"),
        ]
        first, second = answer["topics"][0]["partitions"]
        assert (first["error_code"], first["leader_id"]) == (ErrorCode.NONE, 1)
        assert (second["error_code"], second["leader_id"]) == (error, -1)
        assert second["offline_replicas"] == [3]
    described = {"include_cluster_authorized_operations": False}
    for listener, found in (
        ("OUT", [1, 2]),
        ("IN", [1, 2, 3]),
        ("NONE", []),
        ("CLIENT", [1, 2, 3]),
    ):
        answer = cluster.request(1, DESCRIBE_CLUSTER, described, listener=listener)
        assert [one["broker_id"] for one in answer["brokers"]] == found


def test_before_any_broker_is_known() -> None:
    cluster = ApiCluster(brokers=(1,))
    cluster.start()
    answer = ask(cluster, topics=None)
    assert answer["brokers"] == answer["topics"] == []
    assert answer["controller_id"] == -1


# -- DescribeCluster -----------------------------------------------------------------------


def describe(cluster: ApiCluster, broker: int = 1, **request: Any) -> Any:
    asked = {"include_cluster_authorized_operations": False, **request}
    return cluster.request(broker, DESCRIBE_CLUSTER, asked)


def test_describe_cluster(cluster: ApiCluster) -> None:
    answer = describe(cluster, broker=2)
    assert answer["error_code"] == ErrorCode.NONE
    assert answer["endpoint_type"] == 1
    assert answer["cluster_id"] == CLUSTER_ID
    assert answer["controller_id"] == cluster.controller()
    assert answer["cluster_authorized_operations"] == NOT_ASKED_FOR
    assert answer["brokers"][2] == {
        "broker_id": 3,
        "host": "localhost",
        "port": 9093,
        "rack": "rack-3",
        "is_fenced": False,
    }
    asked_for = describe(cluster, include_cluster_authorized_operations=True)
    assert asked_for["cluster_authorized_operations"] == 8096


def test_fenced_brokers_are_listed_on_request(cluster: ApiCluster) -> None:
    """A broker that restarted and is cut off from the controller is registered and fenced."""
    left = stop(cluster, 3)
    cluster.cut |= {(3, other) for other in (1, 2)}
    cluster.start(3, port=9093)
    known = cluster.nodes[left].image.brokers
    cluster.run_until(lambda: known[3].online)
    assert known[3].fenced
    shown = [broker["broker_id"] for broker in describe(cluster, left)["brokers"]]
    assert shown == [1, 2]
    answer = describe(cluster, left, include_fenced_brokers=True)
    assert [(b["broker_id"], b["is_fenced"]) for b in answer["brokers"]] == [
        (1, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_describe_cluster_refuses_other_endpoint_types(
    cluster: ApiCluster, endpoint_type: int, error: ErrorCode
) -> None:
    answer = describe(cluster, endpoint_type=endpoint_type)
    assert answer["error_code"] == error
    assert answer["error_message"]
    assert answer["brokers"] == []
