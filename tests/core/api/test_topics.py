"""CreateTopics, DeleteTopics and CreatePartitions, sent to any broker."""

from copy import copy
from typing import Any

import pytest
from api_cluster import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    NO_TOPIC_ID,
    ApiCluster,
    creatable,
    errors,
)

from tidelog.core.api.handlers.topics import PARTITIONS_MAX
from tidelog.core.errors import ErrorCode


@pytest.fixture
def cluster() -> ApiCluster:
    cluster = ApiCluster(texts={"num.partitions": "2", "default.replication.factor": "3"})
    return cluster.start_all()


def bystander(cluster: ApiCluster) -> int:
    """A broker that is not the controller."""
    return next(broker for broker in cluster.brokers if broker != cluster.controller())


def topics_known(cluster: ApiCluster) -> set[str]:
    cluster.settle()
    images = [set(node.image.topics) for node in cluster.nodes.values()]
    assert all(image == images[0] for image in images)
    return images[0]


# -- CreateTopics --------------------------------------------------------------------------


def test_many_topics_through_any_broker(cluster: ApiCluster) -> None:
    asked = {
        "topics": [creatable("a", 3, 2), creatable("b", -1, -1), creatable("c", 1, 1)],
        "timeout_ms": 1000,
        "validate_only": False,
    }
    answer = cluster.request(bystander(cluster), CREATE_TOPICS, asked)
    assert [topic["name"] for topic in answer["topics"]] == ["a", "b", "c"]
    assert errors(answer["topics"]) == dict.fromkeys("abc", ErrorCode.NONE)
    sizes = [(t["num_partitions"], t["replication_factor"]) for t in answer["topics"]]
    assert sizes == [(3, 2), (2, 3), (1, 1)]
    assert topics_known(cluster) == {"a", "b", "c"}
    for topic in answer["topics"]:
        assert topic["error_message"] is None
        assert cluster.nodes[1].image.topics[topic["name"]].topic_id == topic["topic_id"]


def test_response_has_the_settings_of_the_new_topic(cluster: ApiCluster) -> None:
    cluster.texts["log.retention.hours"] = "1"
    given = {"cleanup.policy": " compact, delete", "segment.bytes": "2000000"}
    topic = cluster.create("orders", configs=given)
    configs = {config["name"]: config for config in topic["configs"]}
    assert configs["cleanup.policy"]["value"] == "compact,delete"
    assert configs["cleanup.policy"]["config_source"] == 1
    assert configs["segment.bytes"]["config_source"] == 1
    assert configs["retention.ms"]["value"] == "3600000"
    assert configs["retention.ms"]["config_source"] == 4
    assert configs["flush.ms"]["config_source"] == 5
    assert not any(config["is_sensitive"] for config in topic["configs"])
    stored = cluster.nodes[1].image.configs["config/topic/orders"]
    assert stored == {"cleanup.policy": "compact,delete", "segment.bytes": "2000000"}


def test_topic_with_a_manual_assignment(cluster: ApiCluster) -> None:
    topic = cluster.create("orders", -1, -1, assignments={1: [2, 1], 0: [3, 2]})
    assert (topic["num_partitions"], topic["replication_factor"]) == (2, 2)
    image = cluster.nodes[1].image
    replicas = [image.partition("orders", index).replicas for index in (0, 1)]  # type: ignore[union-attr]
    assert replicas == [(3, 2), (2, 1)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (creatable(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("or.ders"), ErrorCode.NONE),
        (creatable("my_orders"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("my.orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (creatable("t", 0), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", -2), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", PARTITIONS_MAX + 1), ErrorCode.POLICY_VIOLATION),
        (creatable("t", configs={"no.such.thing": "1"}), ErrorCode.INVALID_CONFIG),
        (creatable("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (creatable("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (creatable("t", 1, -1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (creatable("t", -1, 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (creatable("t", -1, -1, assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            creatable("t", -1, -1, assignments={0: [1], 1: [1, 2]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_invalid_topic_does_not_affect_others(
    cluster: ApiCluster, topic: dict[str, Any], error: ErrorCode
) -> None:
    cluster.create("my.orders")
    results = cluster.create_topics([creatable("good"), topic])["topics"]
    assert errors(results) == {"good": ErrorCode.NONE, topic["name"]: error}
    bad = results[1]
    if error is not ErrorCode.NONE:
        assert bad["error_message"]
        assert bad["topic_id"] == NO_TOPIC_ID
        assert (bad["num_partitions"], bad["replication_factor"], bad["configs"]) == (-1, -1, [])


def test_the_controller_says_whether_a_topic_exists(cluster: ApiCluster) -> None:
    """The broker that gets the request may not know yet that the topic was deleted."""
    cluster.create("orders")
    other = bystander(cluster)
    topics = cluster.nodes[other].image.topics
    topics["deleted"] = topics["orders"]
    asked = {"topics": [creatable("deleted")], "timeout_ms": 1000, "validate_only": True}
    [result] = cluster.request(other, CREATE_TOPICS, asked)["topics"]
    assert result["error_code"] == ErrorCode.NONE


def test_the_same_partition_assigned_twice(cluster: ApiCluster) -> None:
    topic = creatable("t", -1, -1, assignments={0: [1]})
    topic["assignments"] *= 2
    [result] = cluster.create_topics([topic])["topics"]
    assert result["error_code"] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_timeout_of_zero_changes_nothing(cluster: ApiCluster, timeout_ms: int) -> None:
    """Kafka changes nothing either in this case."""
    cluster.create("old")
    made = cluster.create_topics([creatable("new")], timeout_ms=timeout_ms)["topics"]
    deleted = delete(cluster, "old", timeout_ms=timeout_ms)
    topics = [{"name": "old", "count": 3, "assignments": None}]
    asked = {"topics": topics, "timeout_ms": timeout_ms, "validate_only": False}
    grown = cluster.request(1, CREATE_PARTITIONS, asked)["results"]
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert errors(made) == {"new": timed_out}
    assert errors(deleted) == errors(grown) == {"old": timed_out}
    assert topics_known(cluster) == {"old"}


def test_the_same_topic_twice(cluster: ApiCluster) -> None:
    results = cluster.create_topics([creatable("a"), creatable("b"), creatable("a")])["topics"]
    assert errors(results) == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}
    assert len(results) == 2
    assert topics_known(cluster) == {"b"}


def test_the_largest_request(cluster: ApiCluster) -> None:
    """The size is checked before any replica is placed, so a mistyped number costs nothing."""
    many = [creatable("a", PARTITIONS_MAX - 1), creatable("b", 2), creatable("c", 2**31 - 1)]
    results = cluster.create_topics(many, validate_only=True)["topics"]
    policy = ErrorCode.POLICY_VIOLATION
    assert errors(results) == {"a": ErrorCode.NONE, "b": policy, "c": policy}


def test_validate_only_creates_nothing(cluster: ApiCluster) -> None:
    asked = [creatable("a", 3, 3), creatable("b", 1, 4)]
    results = cluster.create_topics(asked, validate_only=True)["topics"]
    assert errors(results) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert (results[0]["num_partitions"], results[0]["replication_factor"]) == (3, 3)
    assert results[0]["configs"]
    assert topics_known(cluster) == set()


def test_a_broker_without_controller_says_so(cluster: ApiCluster) -> None:
    asked = bystander(cluster)
    cluster.cut |= {(asked, cluster.controller())}
    request = {"topics": [creatable("a")], "timeout_ms": 1000, "validate_only": False}
    answer = cluster.request(asked, CREATE_TOPICS, request)
    assert errors(answer["topics"]) == {"a": ErrorCode.NOT_CONTROLLER}


# -- DeleteTopics --------------------------------------------------------------------------


def delete(
    cluster: ApiCluster,
    *names: str | None,
    ids: tuple[bytes, ...] = (),
    version: int = 6,
    **request: Any,
) -> Any:
    topics = [{"name": name, "topic_id": NO_TOPIC_ID} for name in names]
    topics += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    asked = {"topics": topics, "topic_names": list(names), "timeout_ms": 1000, **request}
    return cluster.request(bystander(cluster), DELETE_TOPICS, asked, version)["responses"]


def test_delete_by_name_and_by_id(cluster: ApiCluster) -> None:
    ids = {name: cluster.create(name)["topic_id"] for name in "abc"}
    results = delete(cluster, "a", "nowhere", ids=(ids["b"], b"u" * 16))
    assert [(r["name"], r["topic_id"], ErrorCode(r["error_code"])) for r in results] == [
        ("a", ids["a"], ErrorCode.NONE),
        ("nowhere", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ids["b"], ErrorCode.NONE),
        (None, b"u" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert topics_known(cluster) == {"c"}
    [topic] = cluster.request(1, METADATA, {"topics": [{"name": None, "topic_id": ids["a"]}]})[
        "topics"
    ]
    assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_id_never_deletes_the_next_topic_of_that_name(cluster: ApiCluster) -> None:
    """The broker that gets the request does not know yet that the topic was recreated."""
    asked = bystander(cluster)
    old = cluster.create("a")["topic_id"]
    stale = copy(cluster.nodes[asked].image.topic_names)
    delete(cluster, "a")
    cluster.settle()
    new = cluster.create("a")["topic_id"]
    cluster.nodes[asked].image.topic_names.update(stale)
    [result] = delete(cluster, ids=(old,))
    assert ErrorCode(result["error_code"]) is ErrorCode.UNKNOWN_TOPIC_ID
    assert result["topic_id"] == old
    assert cluster.nodes[cluster.controller()].image.topics["a"].topic_id == new
    [result] = delete(cluster, ids=(new,))
    assert ErrorCode(result["error_code"]) is ErrorCode.NONE


def test_an_id_that_only_the_controller_knows_yet(cluster: ApiCluster) -> None:
    """A topic is deleted by id at a broker that does not know the topic yet."""
    asked = bystander(cluster)
    ids = [cluster.create(name)["topic_id"] for name in "ab"]
    image = cluster.nodes[asked].image
    for topic_id in ids:
        del image.topics[image.topic_names.pop(topic_id)]
    results = delete(cluster, ids=(ids[1], ids[1]))
    assert {ErrorCode(each["error_code"]) for each in results} == {ErrorCode.INVALID_REQUEST}
    results = delete(cluster, ids=(*ids, b"u" * 16))
    assert [ErrorCode(each["error_code"]) for each in results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert [each["topic_id"] for each in results] == [*ids, b"u" * 16]
    assert not cluster.nodes[cluster.controller()].image.topics


@pytest.mark.parametrize("version", [1, 5])
def test_delete_by_name_as_older_clients_do(cluster: ApiCluster, version: int) -> None:
    cluster.create("a")
    assert errors(delete(cluster, "a", "nowhere", "", version=version)) == {
        "a": ErrorCode.NONE,
        "": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert topics_known(cluster) == set()


def test_topic_named_twice_is_not_deleted(cluster: ApiCluster) -> None:
    ids = {name: cluster.create(name)["topic_id"] for name in "abc"}
    invalid = ErrorCode.INVALID_REQUEST
    assert errors(delete(cluster, "a", "a", "b", ids=(ids["c"], ids["c"]))) == {
        "a": invalid,
        "b": ErrorCode.NONE,
        None: invalid,
    }
    assert errors(delete(cluster, "a", ids=(ids["a"],))) == {"a": invalid, None: invalid}
    assert topics_known(cluster) == {"a", "c"}


def test_deletion_requires_either_name_or_id(cluster: ApiCluster) -> None:
    topic_id = cluster.create("a")["topic_id"]
    both = {"name": "a", "topic_id": topic_id}
    neither = {"name": None, "topic_id": NO_TOPIC_ID}
    invalid = ErrorCode.INVALID_REQUEST
    assert errors(delete(cluster, topics=[both, neither])) == {"a": invalid, None: invalid}
    assert topics_known(cluster) == {"a"}


@pytest.mark.parametrize(
    ("version", "error"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_switched_off(cluster: ApiCluster, version: int, error: ErrorCode) -> None:
    cluster.create("a")
    cluster.texts["delete.topic.enable"] = "false"
    assert errors(delete(cluster, "a", version=version)) == {"a": error}
    assert topics_known(cluster) == {"a"}


# -- CreatePartitions ----------------------------------------------------------------------


def grow(
    cluster: ApiCluster, count: int, assigned: list[list[int]] | None = None, **request: Any
) -> Any:
    assignments = None if assigned is None else [{"broker_ids": each} for each in assigned]
    topics = [{"name": "orders", "count": count, "assignments": assignments}]
    asked = {"topics": topics, "timeout_ms": 1000, "validate_only": False, **request}
    [result] = cluster.request(bystander(cluster), CREATE_PARTITIONS, asked)["results"]
    cluster.settle()
    assert bool(result["error_message"]) == (result["error_code"] != ErrorCode.NONE)
    return ErrorCode(result["error_code"]), cluster.nodes[1].image.topics["orders"].partition_count


def test_more_partitions(cluster: ApiCluster) -> None:
    cluster.create("orders", 2, 2)
    assert grow(cluster, 4) == (ErrorCode.NONE, 4)
    assert grow(cluster, 5, [[3, 1]], validate_only=True) == (ErrorCode.NONE, 4)
    assert grow(cluster, 5, [[3, 1]]) == (ErrorCode.NONE, 5)
    assert cluster.nodes[1].image.partition("orders", 4).replicas == (3, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("count", "assigned", "error"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PARTITIONS_MAX + 3, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_invalid_partition_counts_are_refused(
    cluster: ApiCluster, count: int, assigned: list[list[int]] | None, error: ErrorCode
) -> None:
    cluster.create("orders", 2, 2)
    assert grow(cluster, count, assigned) == (error, 2)


def test_partitions_of_several_topics(cluster: ApiCluster) -> None:
    cluster.create("a")
    cluster.create("b")
    topics = [
        {"name": name, "count": 2, "assignments": None} for name in ("a", "nowhere", "b", "b")
    ]
    asked = {"topics": topics, "timeout_ms": 1000, "validate_only": False}
    answer = cluster.request(1, CREATE_PARTITIONS, asked)
    assert errors(answer["results"]) == {
        "a": ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_REQUEST,
    }
