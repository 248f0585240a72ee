"""Batches of our own client: which ones a leader accepts, and which it rejects."""

import time

import pytest
from real_cluster import (
    PATIENCE_S,
    leader_of,
    make_topic,
    read,
    read_values,
    send_all,
    state_of,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Produced, init_producer_id, produce
from tidelog.shell.supervisor.cluster import LocalCluster

PRODUCE = 0
WITHOUT_TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""Kafka's error for transactional batches in a request that names no transactional id."""


def batch(attributes: int = 0, stamp: Stamp | None = None) -> bytearray:
    record = Record(None, b"v", int(time.time() * 1000), ())
    if stamp is None:
        return encode_batch([record], attributes=attributes)
    return encode_batch([record], attributes=attributes, producer=stamp)


def send(cluster: LocalCluster, topic: str, data: bytes | bytearray, acks: int = -1) -> Produced:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh([topic])
        leader = client.broker(client.leader(topic, 0).leader)
        return produce(leader, client.topic(topic), 0, data, acks)


def damaged() -> bytearray:
    data = batch()
    data[-1] ^= 1
    return data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch(CONTROL), ErrorCode.INVALID_RECORD),
        (batch(CONTROL | TRANSACTIONAL, Stamp(7, 0, 0)), WITHOUT_TRANSACTIONAL_ID),
        (batch(TRANSACTIONAL, Stamp(7, 0, 0)), WITHOUT_TRANSACTIONAL_ID),
        (batch(LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (damaged(), ErrorCode.CORRUPT_MESSAGE),
        (batch()[:40], ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ],
    ids=["control", "marker", "transactional", "time", "two", "damaged", "cut", "empty"],
)
def test_an_invalid_batch_is_refused(
    calm: LocalCluster, name: str, data: bytearray, error: ErrorCode
) -> None:
    """The refused batch leaves no trace: readers of committed data see later records."""
    make_topic(calm.bootstrap, name)
    assert send(calm, name, data).error == error
    assert send(calm, name, batch()).base_offset == 0
    state = state_of(calm, leader_of(calm, name), name)
    assert state["log_end_offset"] == state["last_stable_offset"] == 1
    found = read(calm.bootstrap, name, 1, conf={"isolation.level": "read_committed"})
    assert [message.value() for message in found] == [b"v"]


def test_acks_that_do_not_exist(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    assert send(calm, name, batch(), acks=7).error == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_unknown_producer_may_begin_at_any_sequence_number(
    calm: LocalCluster, name: str
) -> None:
    """As in Kafka: the producer's state may have expired."""
    make_topic(calm.bootstrap, name)
    with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as client:
        number, epoch = init_producer_id(client)
    assert send(calm, name, batch(0, Stamp(number, epoch, 17))).base_offset == 0
    assert send(calm, name, batch(0, Stamp(number, epoch, 18))).base_offset == 1


def test_a_follower_names_the_leader(calm: LocalCluster, name: str) -> None:
    """KIP-951: the client need not request the metadata."""
    make_topic(calm.bootstrap, name)
    leader = leader_of(calm, name)
    follower = next(broker for broker in calm.ids if broker != leader)
    with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as client:
        topic = client.refresh([name]).topics[name]
        share = {"index": 0, "records": batch()}
        wanted = {"name": name, "topic_id": topic.id, "partition_data": [share]}
        request = {"acks": -1, "timeout_ms": 1000, "topic_data": [wanted]}
        answer = client.broker(follower).call(PRODUCE, request)
    found = answer["responses"][0]["partition_responses"][0]
    assert found["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found["current_leader"] == {"leader_id": leader, "leader_epoch": 0}
    (node,) = answer["node_endpoints"]
    assert (node["node_id"], node["port"]) == (leader, calm.port(leader))


def test_messages_larger_than_a_followers_fetch(calm: LocalCluster, name: str) -> None:
    """`replica.fetch.max.bytes` and `replica.fetch.response.max.bytes` are soft limits."""
    make_topic(calm.bootstrap, name, configs={"max.message.bytes": "20000000"})
    wanted = [bytes([number]) * size for number, size in enumerate((3_000_000, 15_000_000, 100))]
    conf = {"acks": "all", "message.max.bytes": 40_000_000}
    send_all(calm.bootstrap, name, wanted, conf=conf)
    assert read_values(calm.bootstrap, name, conf={"message.max.bytes": 40_000_000}) == wanted
