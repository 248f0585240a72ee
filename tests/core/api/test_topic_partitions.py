"""DescribeTopicPartitions: pages of partitions, in the order of topics' names."""

from typing import Any

import pytest
from api_cluster import DESCRIBE_TOPIC_PARTITIONS, NO_TOPIC_ID, ApiCluster

from tidelog.core.errors import ErrorCode

ALL_OPERATIONS = 3576


@pytest.fixture
def cluster() -> ApiCluster:
    cluster = ApiCluster().start_all()
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        cluster.create(name, partitions, 3)
    return cluster


def describe(
    cluster: ApiCluster, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    """Return topics with their partition numbers, and the next cursor."""
    start = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    asked = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": start,
    }
    answer = cluster.request(1, DESCRIBE_TOPIC_PARTITIONS, asked)
    found = [
        (topic["name"], [partition["partition_index"] for partition in topic["partitions"]])
        for topic in answer["topics"]
    ]
    end = answer["next_cursor"]
    return found, None if end is None else (end["topic_name"], end["partition_index"])


def test_one_page(cluster: ApiCluster) -> None:
    everything = [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert describe(cluster) == (everything, None)
    assert describe(cluster, "c", "a", "a") == ([("a", [0, 1]), ("c", [0])], None)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 0, -7])
def test_pages_cover_all_partitions(cluster: ApiCluster, limit: int) -> None:
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        found, cursor = describe(cluster, limit=limit, cursor=cursor)
        assert sum(len(partitions) for _, partitions in found) <= max(1, limit)
        seen += [(name, number) for name, partitions in found for number in partitions]
        pages += 1
        assert pages < 10
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == -(-6 // max(1, limit))


def test_broker_limits_the_page_size(cluster: ApiCluster) -> None:
    cluster.texts["max.request.partition.size.limit"] = "4"
    assert describe(cluster) == ([("a", [0, 1]), ("b", [0, 1])], ("b", 2))


def test_cursor_in_a_deleted_topic_continues_after_it(cluster: ApiCluster) -> None:
    assert describe(cluster, cursor=("aa", 7)) == ([("b", [0, 1, 2]), ("c", [0])], None)


def test_missing_topics(cluster: ApiCluster) -> None:
    asked = {"topics": [{"name": "nowhere"}, {"name": "no where"}, {"name": "a"}]}
    topics = cluster.request(1, DESCRIBE_TOPIC_PARTITIONS, asked)["topics"]
    assert [(topic["name"], ErrorCode(topic["error_code"])) for topic in topics] == [
        ("a", ErrorCode.NONE),
        ("no where", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert topics[2]["topic_id"] == NO_TOPIC_ID


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_invalid_cursors_are_refused(cluster: ApiCluster, cursor: tuple[str, int]) -> None:
    asked = {
        "topics": [{"name": "a"}, {"name": "c"}],
        "cursor": {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    topics = cluster.request(1, DESCRIBE_TOPIC_PARTITIONS, asked)["topics"]
    assert {topic["error_code"] for topic in topics} == {ErrorCode.INVALID_REQUEST}


def test_leader_and_eligible_replicas_are_described(cluster: ApiCluster) -> None:
    image = cluster.nodes[1].image
    topics = cluster.request(1, DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": "a"}]})["topics"]
    [topic] = topics
    assert topic["topic_id"] == image.topics["a"].topic_id
    assert (topic["is_internal"], topic["topic_authorized_operations"]) == (False, ALL_OPERATIONS)
    for partition in topic["partitions"]:
        known = image.partition("a", partition["partition_index"])
        assert known is not None
        assert partition["leader_id"] == known.leader
        assert partition["leader_epoch"] == known.leader_epoch
        assert partition["replica_nodes"] == list(known.replicas)
        assert partition["isr_nodes"] == list(known.isr)
        assert partition["eligible_leader_replicas"] == []
        assert partition["offline_replicas"] == []


def test_eligible_leaders_without_an_isr(cluster: ApiCluster) -> None:
    cluster.create("kept", 1, 3, configs={"min.insync.replicas": "3"})
    other = next(b for b in (2, 3) if b != cluster.controller())
    cluster.crash(other, proof=True)

    def shrunk() -> bool:
        known = cluster.nodes[1].image.partition("kept", 0)
        return known is not None and other not in known.isr

    cluster.run_until(shrunk)
    asked = {"topics": [{"name": "kept"}]}
    [topic] = cluster.request(1, DESCRIBE_TOPIC_PARTITIONS, asked)["topics"]
    [partition] = topic["partitions"]
    assert partition["eligible_leader_replicas"] == [other]
    assert partition["offline_replicas"] == [other]
    assert other not in partition["isr_nodes"]
