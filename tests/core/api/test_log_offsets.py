"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, sent to leaders and to other brokers."""

from typing import Any

import pytest
from api_cluster import (
    DELETE_RECORDS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ApiCluster,
)
from node_cluster import ORDERS

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
TIMES = (1000, 3000, 2000)


@pytest.fixture
def cluster() -> ApiCluster:
    """A topic that broker 1 leads, with three records at different times."""
    cluster = ApiCluster(brokers=(1, 2)).start_all()
    cluster.create("orders", -1, -1, assignments={0: [1, 2]})
    for time in TIMES:
        produce(cluster, time)
    cluster.run(1000)
    return cluster


def produce(cluster: ApiCluster, time: int) -> None:
    records = encode_batch([Record(None, b"x", time)])
    [result] = cluster.call(1, Produce(-1, 1000, [ProducePartition(ORDERS, records)])).partitions
    assert result.error is ErrorCode.NONE


def offset(
    cluster: ApiCluster,
    timestamp: int,
    broker: int = 1,
    version: int = 11,
    partition: int = 0,
    replica_id: int = -1,
    epoch: int = -1,
    topic: str = "orders",
) -> Any:
    asked = {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "current_leader_epoch": epoch,
                        "timestamp": timestamp,
                    }
                ],
            }
        ],
        "timeout_ms": 1000,
    }
    [found] = cluster.request(broker, LIST_OFFSETS, asked, version)["topics"]
    assert found["name"] == topic
    [result] = found["partitions"]
    assert result["partition_index"] == partition
    if result["error_code"] != ErrorCode.NONE:
        assert (result["offset"], result["timestamp"]) == (-1, -1)
        return ErrorCode(result["error_code"])
    return result["offset"], result["timestamp"], result.get("leader_epoch")


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (LATEST, (3, -1, 0)),
        (EARLIEST, (0, -1, 0)),
        (EARLIEST_LOCAL, (0, -1, 0)),
        (MAX_TIMESTAMP, (1, 3000, 0)),
        (0, (0, 1000, 0)),
        (1001, (1, 3000, 0)),
        (3001, (-1, -1, -1)),
        (LATEST_TIERED, (-1, -1, -1)),
        (PENDING_UPLOAD, (-1, -1, -1)),
    ],
)
def test_times_and_ends(cluster: ApiCluster, timestamp: int, found: Any) -> None:
    assert offset(cluster, timestamp) == found


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 0])
@pytest.mark.parametrize("version", [1, 3])
def test_old_versions_return_no_epochs(cluster: ApiCluster, timestamp: int, version: int) -> None:
    assert offset(cluster, timestamp, version=version)[2] is None


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)],
)
def test_special_times_have_a_first_version(
    cluster: ApiCluster, timestamp: int, first_version: int
) -> None:
    assert offset(cluster, timestamp, version=first_version - 1) is ErrorCode.UNSUPPORTED_VERSION
    assert isinstance(offset(cluster, timestamp, version=first_version), tuple)


def test_errors_of_a_partition(cluster: ApiCluster) -> None:
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offset(cluster, LATEST, broker=2) is elsewhere
    assert offset(cluster, LATEST_TIERED, broker=2) is elsewhere
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offset(cluster, LATEST, topic="nowhere") is unknown
    assert offset(cluster, LATEST, partition=7) is unknown
    assert offset(cluster, LATEST, epoch=0) == (3, -1, 0)
    assert offset(cluster, LATEST, epoch=1) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_new_leader_does_not_know_its_end_yet(cluster: ApiCluster) -> None:
    """The new leader may not have reached the old leader's high watermark yet (KIP-207)."""
    cluster.cut |= {(1, 2), (2, 1)}
    cluster.crash(1, proof=True)
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.leader() == 2)
    replica = cluster.replica(2)
    replica.partition.high_watermark = 1
    assert offset(cluster, LATEST, broker=2) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset(cluster, LATEST, broker=2, version=5) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset(cluster, LATEST, broker=2, version=4) is ErrorCode.LEADER_NOT_AVAILABLE


def test_consumers_see_committed_offsets_and_replicas_the_log_end(cluster: ApiCluster) -> None:
    cluster.cut |= {(2, 1), (1, 2)}
    records = encode_batch([Record(None, b"x", 5000)])
    cluster.call(1, Produce(1, 1000, [ProducePartition(ORDERS, records)]))
    assert offset(cluster, LATEST)[0] == 3
    assert offset(cluster, LATEST, replica_id=2)[0] == 4


def test_the_same_partition_twice(cluster: ApiCluster) -> None:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    other = {"partition_index": 9, "current_leader_epoch": -1, "timestamp": LATEST}
    asked = {
        "replica_id": -1,
        "topics": [
            {"name": "orders", "partitions": [partition, other]},
            {"name": "orders", "partitions": [partition]},
        ],
    }
    [topic] = cluster.request(1, LIST_OFFSETS, asked)["topics"]
    assert {p["partition_index"]: ErrorCode(p["error_code"]) for p in topic["partitions"]} == {
        0: ErrorCode.INVALID_REQUEST,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# -- OffsetForLeaderEpoch ------------------------------------------------------------------


def epoch_end(
    cluster: ApiCluster, epoch: int, broker: int = 1, topic: str = "orders", current: int = -1
) -> Any:
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    asked = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
    [found] = cluster.request(broker, OFFSET_FOR_LEADER_EPOCH, asked)["topics"]
    [result] = found["partitions"]
    assert (found["topic"], result["partition"]) == (topic, 0)
    if result["error_code"] != ErrorCode.NONE:
        assert (result["leader_epoch"], result["end_offset"]) == (-1, -1)
        return ErrorCode(result["error_code"])
    return result["leader_epoch"], result["end_offset"]


def test_where_epochs_end(cluster: ApiCluster) -> None:
    assert epoch_end(cluster, 0) == (0, 3)
    assert epoch_end(cluster, 5) == (-1, -1)
    assert epoch_end(cluster, -1) == (-1, -1)
    assert epoch_end(cluster, 0, current=0) == (0, 3)
    assert epoch_end(cluster, 0, current=9) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(cluster, 0, broker=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert epoch_end(cluster, 0, topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- DeleteRecords -------------------------------------------------------------------------


def delete(
    cluster: ApiCluster, before: int, broker: int = 1, topic: str = "orders", partition: int = 0
) -> Any:
    partitions = [{"partition_index": partition, "offset": before}]
    asked = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}
    [found] = cluster.request(broker, DELETE_RECORDS, asked)["topics"]
    [result] = found["partitions"]
    assert (found["name"], result["partition_index"]) == (topic, partition)
    return ErrorCode(result["error_code"]), result["low_watermark"]


def test_delete_records(cluster: ApiCluster) -> None:
    assert delete(cluster, 2) == (ErrorCode.NONE, 2)
    assert offset(cluster, EARLIEST)[0] == 2
    assert cluster.replica(2).log.log_start_offset == 2
    assert delete(cluster, -1) == (ErrorCode.NONE, 3)
    assert offset(cluster, EARLIEST)[0] == 3


@pytest.mark.parametrize(
    ("before", "asked", "error"),
    [
        (4, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, {"broker": 2}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, {"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, {"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_refused_delete_records(
    cluster: ApiCluster, before: int, asked: dict[str, Any], error: ErrorCode
) -> None:
    assert delete(cluster, before, **asked) == (error, -1)
    assert offset(cluster, EARLIEST)[0] == 0


def test_compacted_topics_keep_their_records(cluster: ApiCluster) -> None:
    cluster.create("keyed", -1, -1, assignments={0: [1]}, configs={"cleanup.policy": "compact"})
    assert delete(cluster, 0, topic="keyed") == (ErrorCode.POLICY_VIOLATION, -1)


def test_delete_records_times_out_without_a_replica(cluster: ApiCluster) -> None:
    cluster.cut |= {(2, 1)}
    assert delete(cluster, 2) == (ErrorCode.REQUEST_TIMED_OUT, -1)
