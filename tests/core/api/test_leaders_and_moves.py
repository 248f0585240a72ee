"""Elections, reassignments, log directories, and producers as replicas know them."""

from typing import Any

import pytest
from api_cluster import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    ApiCluster,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import FetchResponse, Produce, ProducePartition
from tidelog.core.record.encoder import Producer, encode_batch, encode_value
from tidelog.core.record.record import Record
from tidelog.core.storage.log_copy import CopyLimits
from tidelog.core.storage.log_directories import LogDirectories
from tidelog.core.types import TopicPartition
from tidelog.lab.disk_pair import DiskPair
from tidelog.lab.memory_disk import MemoryDisk

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


@pytest.fixture
def cluster() -> ApiCluster:
    """Broker 1 is the preferred leader of all partitions."""
    cluster = ApiCluster().start_all()
    cluster.create("orders", -1, -1, assignments={0: [1, 2, 3], 1: [1, 2, 3]})
    cluster.create("other", -1, -1, assignments={0: [2, 3]})
    return cluster


def leader(cluster: ApiCluster, topic: str = "orders", partition: int = 0) -> int | None:
    cluster.settle()
    registration = cluster.nodes[2].image.partition(topic, partition)
    assert registration is not None
    return registration.leader


def elect(
    cluster: ApiCluster,
    *partitions: TopicPartition,
    broker: int = 2,
    election_type: int = PREFERRED,
    everywhere: bool = False,
    error: ErrorCode = ErrorCode.NONE,
) -> dict[TopicPartition, ErrorCode]:
    topics = [{"topic": p.topic, "partitions": [p.partition]} for p in partitions]
    asked = {
        "election_type": election_type,
        "topic_partitions": None if everywhere else topics,
        "timeout_ms": 1000,
    }
    answer = cluster.request(broker, ELECT_LEADERS, asked)
    assert answer["error_code"] == error
    results = {}
    for topic in answer["replica_election_results"]:
        for partition in topic["partition_result"]:
            name = TopicPartition(topic["topic"], partition["partition_id"])
            results[name] = ErrorCode(partition["error_code"])
    return results


def lose_leadership(cluster: ApiCluster) -> None:
    """Broker 1 is down for a while, restarts and is in sync again."""
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: leader(cluster) == 2)
    cluster.start(1, port=9091)

    def in_sync() -> bool:
        image = cluster.nodes[2].image
        both = [image.partition("orders", index) for index in (0, 1)]
        return all(p is not None and 1 in p.isr for p in both)

    cluster.run_until(in_sync)


ORDERS = TopicPartition("orders", 0)


def test_preferred_replica_is_elected_again(cluster: ApiCluster) -> None:
    lose_leadership(cluster)
    other = TopicPartition("other", 0)
    results = elect(cluster, ORDERS, other, broker=3)
    assert results == {ORDERS: ErrorCode.NONE, other: NOT_NEEDED}
    assert leader(cluster) == 1
    assert leader(cluster, partition=1) == 2


def test_election_of_all_partitions_lists_only_changed_ones(cluster: ApiCluster) -> None:
    assert elect(cluster, everywhere=True) == {}
    lose_leadership(cluster)
    assert elect(cluster, everywhere=True) == {
        TopicPartition("orders", 0): ErrorCode.NONE,
        TopicPartition("orders", 1): ErrorCode.NONE,
    }
    assert leader(cluster) == leader(cluster, partition=1) == 1


def test_impossible_elections_are_refused(cluster: ApiCluster) -> None:
    nowhere, beyond = TopicPartition("nowhere", 0), TopicPartition("orders", 7)
    assert elect(cluster, nowhere, beyond) == {
        nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert elect(cluster, ORDERS, election_type=UNCLEAN) == {ORDERS: NOT_NEEDED}
    invalid = ErrorCode.INVALID_REQUEST
    assert elect(cluster, ORDERS, election_type=5, error=invalid) == {ORDERS: invalid}
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: leader(cluster) == 2)
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, ORDERS) == {ORDERS: unavailable}


def test_no_replica_is_alive_for_an_unclean_election(cluster: ApiCluster) -> None:
    cluster.create("lonely", -1, -1, assignments={0: [1]})
    cluster.crash(1, proof=True)
    cluster.run_until(lambda: leader(cluster, "lonely") is None)
    lonely = TopicPartition("lonely", 0)
    unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(cluster, lonely, election_type=UNCLEAN) == {lonely: unavailable}


def cut_off(cluster: ApiCluster) -> int:
    """A broker that can't reach the controller."""
    controller = cluster.controller()
    asked = next(broker for broker in cluster.brokers if broker != controller)
    cluster.cut |= {(asked, controller)}
    return asked


def test_no_election_without_a_controller(cluster: ApiCluster) -> None:
    nobody = ErrorCode.NOT_CONTROLLER
    assert elect(cluster, ORDERS, broker=cut_off(cluster), error=nobody) == {ORDERS: nobody}


# -- reassignments -------------------------------------------------------------------------


def move(
    cluster: ApiCluster, *moves: tuple[str, int, list[int] | None], broker: int = 2, **request: Any
) -> Any:
    topics = [
        {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}
        for topic, partition, replicas in moves
    ]
    asked = {"timeout_ms": 1000, "topics": topics, **request}
    answer = cluster.request(broker, ALTER_PARTITION_REASSIGNMENTS, asked)
    if answer["error_code"] != ErrorCode.NONE:
        assert answer["responses"] == []
        return ErrorCode(answer["error_code"])
    return {
        TopicPartition(topic["name"], p["partition_index"]): ErrorCode(p["error_code"])
        for topic in answer["responses"]
        for p in topic["partitions"]
        if (p["error_code"] == ErrorCode.NONE) == (p["error_message"] is None)
    }


def moving(cluster: ApiCluster, **request: Any) -> Any:
    asked = {"timeout_ms": 1000, "topics": None, **request}
    answer = cluster.request(3, LIST_PARTITION_REASSIGNMENTS, asked)
    assert answer["error_code"] == ErrorCode.NONE
    return {
        TopicPartition(topic["name"], p["partition_index"]): (
            p["replicas"],
            p["adding_replicas"],
            p["removing_replicas"],
        )
        for topic in answer["topics"]
        for p in topic["partitions"]
    }


OTHER = TopicPartition("other", 0)


def hold(cluster: ApiCluster) -> None:
    """Keep broker 1 from copying records, so that moves to it do not end."""
    produced = Produce(-1, 1000, [ProducePartition(OTHER, encode_value(b"x"))])
    assert cluster.call(2, produced).partitions[0].error is ErrorCode.NONE

    def drop(_sender: int, asker: int, response: object) -> object:
        return None if asker == 1 and isinstance(response, FetchResponse) else response

    cluster.tamper = drop


def test_reassignment_completes(cluster: ApiCluster) -> None:
    assert move(cluster, ("other", 0, [1, 2])) == {OTHER: ErrorCode.NONE}
    cluster.run_until(lambda: moving(cluster) == {})
    registration = cluster.nodes[2].image.partition("other", 0)
    assert registration is not None
    assert registration.replicas == (1, 2)


def test_reassignment_is_listed_and_cancelled(cluster: ApiCluster) -> None:
    hold(cluster)
    assert move(cluster, ("other", 0, [1, 2])) == {OTHER: ErrorCode.NONE}
    cluster.settle()
    listed = {OTHER: ([1, 2, 3], [1], [3])}
    assert moving(cluster) == listed
    named = [{"name": "other", "partition_indexes": [0, 5]}]
    assert moving(cluster, topics=named) == listed
    assert moving(cluster, topics=[{"name": "orders", "partition_indexes": [0]}]) == {}
    assert moving(cluster, topics=[]) == {}
    assert move(cluster, ("other", 0, None)) == {OTHER: ErrorCode.NONE}
    assert moving(cluster) == {}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (("nowhere", 0, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("other", 5, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("other", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("other", 0, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("other", 0, [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("other", 0, [2, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_reassignments_are_refused(
    cluster: ApiCluster, wanted: tuple[str, int, list[int] | None], error: ErrorCode
) -> None:
    good = TopicPartition("orders", 0)
    results = move(cluster, wanted, ("orders", 0, [1, 2, 3]))
    assert results == {TopicPartition(wanted[0], wanted[1]): error, good: ErrorCode.NONE}


def test_reassignment_may_require_the_same_replication_factor(cluster: ApiCluster) -> None:
    moves = (("other", 0, [1]), ("orders", 0, [3, 2, 1]))
    assert move(cluster, *moves, allow_replication_factor_change=False) == {
        OTHER: ErrorCode.INVALID_REPLICATION_FACTOR,
        ORDERS: ErrorCode.NONE,
    }


def test_no_reassignment_without_a_controller(cluster: ApiCluster) -> None:
    asked = cut_off(cluster)
    assert move(cluster, ("other", 0, [1]), broker=asked) is ErrorCode.NOT_CONTROLLER


def sizes(
    cluster: ApiCluster, broker: int, topics: list[dict[str, Any]] | None = None
) -> dict[TopicPartition, int]:
    [log_dir] = cluster.request(broker, DESCRIBE_LOG_DIRS, {"topics": topics})["results"]
    assert log_dir["error_code"] == ErrorCode.NONE
    assert log_dir["log_dir"] == f"tidelog-data/broker-{broker}"
    assert log_dir["total_bytes"] == log_dir["usable_bytes"] == -1
    found = {}
    for topic in log_dir["topics"]:
        for partition in topic["partitions"]:
            assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
            name = TopicPartition(topic["name"], partition["partition_index"])
            found[name] = partition["partition_size"]
    return found


def test_log_dirs_list_the_replicas_of_one_broker(cluster: ApiCluster) -> None:
    batch = encode_value(b"x")
    produced = Produce(-1, 1000, [ProducePartition(OTHER, batch)])
    assert cluster.call(2, produced).partitions[0].error is ErrorCode.NONE
    orders = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}
    assert sizes(cluster, 1) == orders
    assert sizes(cluster, 2) == {**orders, OTHER: len(batch)}
    asked = [{"topic": "other", "partitions": [0, 9]}, {"topic": "nope", "partitions": [0]}]
    assert sizes(cluster, 2, asked) == {OTHER: len(batch)}
    assert sizes(cluster, 1, asked) == {}
    assert sizes(cluster, 2, []) == {}


def test_log_dirs_include_disk_sizes_if_known(cluster: ApiCluster) -> None:
    cluster.disk_space = lambda _: (1000, 400)
    [log_dir] = cluster.request(1, DESCRIBE_LOG_DIRS, {"topics": []})["results"]
    assert (log_dir["total_bytes"], log_dir["usable_bytes"]) == (1000, 400)


@pytest.mark.parametrize("version", [1, 2])
def test_moves_to_another_log_dir_are_checked(cluster: ApiCluster, version: int) -> None:
    here = {
        "path": "tidelog-data/broker-1/",
        "topics": [
            {"name": "orders", "partitions": [0]},
            {"name": "other", "partitions": [0, 9]},
            {"name": "no where", "partitions": [0]},
        ],
    }
    elsewhere = {"path": "/elsewhere", "topics": [{"name": "orders", "partitions": [1]}]}
    asked = {"dirs": [here, elsewhere]}
    results = cluster.request(1, ALTER_REPLICA_LOG_DIRS, asked, version)["results"]
    found = {
        (topic["topic_name"], partition["partition_index"]): ErrorCode(partition["error_code"])
        for topic in results
        for partition in topic["partitions"]
    }
    assert found == {
        ("orders", 0): ErrorCode.NONE,
        ("other", 0): ErrorCode.REPLICA_NOT_AVAILABLE,
        ("other", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no where", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("orders", 1): ErrorCode.LOG_DIR_NOT_FOUND,
    }


def test_a_replica_moves_to_another_log_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = CopyLimits(piece_bytes=50, rest_bytes=50)
    monkeypatch.setattr(LogDirectories, "copy_limits", limits)
    cluster = ApiCluster(brokers=(1,), texts={"log.dirs": "first,second"})
    cluster.disks[1] = DiskPair(MemoryDisk)
    cluster.start_all()
    cluster.create_topic(replicas=(1,))
    size = len(encode_value(b"x"))
    orders = TopicPartition("orders", 0)
    for _ in range(4):
        produced = Produce(-1, 1000, [ProducePartition(orders, encode_value(b"x"))])
        assert cluster.call(1, produced).partitions[0].error is ErrorCode.NONE

    def described() -> list[tuple[str, int, int, bool]]:
        return [
            (one["log_dir"], part["partition_size"], part["offset_lag"], part["is_future_key"])
            for one in cluster.request(1, DESCRIBE_LOG_DIRS, {"topics": None})["results"]
            for topic in one["topics"]
            for part in topic["partitions"]
        ]

    def move(path: str) -> ErrorCode:
        asked = {"dirs": [{"path": path, "topics": [{"name": "orders", "partitions": [0]}]}]}
        [topic] = cluster.request(1, ALTER_REPLICA_LOG_DIRS, asked)["results"]
        return ErrorCode(topic["partitions"][0]["error_code"])

    here = ("first", 4 * size, 0, False)
    assert described() == [here]
    cluster.flush_held = True
    assert move("second") is ErrorCode.NONE
    assert described() == [here, ("second", 0, 4, True)]
    cluster.run(100)
    assert described() == [here, ("second", 4 * size, 0, True)]
    assert move("first") is ErrorCode.NONE
    assert described() == [here], "the move is cancelled"
    cluster.flush_held = False
    assert move("second") is ErrorCode.NONE
    cluster.run_until(lambda: described() == [("second", 4 * size, 0, False)])


# -- DescribeProducers ---------------------------------------------------------------------


def test_producers_of_a_partition(cluster: ApiCluster) -> None:
    records = [Record(None, b"x", 4000), Record(None, b"y", 5000)]
    batch = encode_batch(records, producer=Producer(77, 3, 0))
    produced = Produce(-1, 1000, [ProducePartition(OTHER, batch)])
    assert cluster.call(2, produced).partitions[0].error is ErrorCode.NONE
    asked = {
        "topics": [
            {"name": "other", "partition_indexes": [0, 9]},
            {"name": "no where", "partition_indexes": [0]},
        ]
    }
    here, invalid = cluster.request(2, DESCRIBE_PRODUCERS, asked)["topics"]
    found, unknown = here["partitions"]
    assert found["error_code"] == ErrorCode.NONE
    [producer] = found["active_producers"]
    assert (producer["producer_id"], producer["producer_epoch"]) == (77, 3)
    assert (producer["last_sequence"], producer["current_txn_start_offset"]) == (1, -1)
    assert producer["last_timestamp"] == 5000
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert invalid["partitions"][0]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    often = {"topics": [{"name": "other", "partition_indexes": [0, 0, 9]}] * 3}
    assert cluster.request(2, DESCRIBE_PRODUCERS, often)["topics"] == [here], "told once"
    elsewhere, _ = cluster.request(1, DESCRIBE_PRODUCERS, asked)["topics"]
    assert elsewhere["partitions"][0]["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert elsewhere["partitions"][0]["error_message"]
