"""Responses that depend on no unwritten data are sent before the rest of a turn is settled."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.messages import (
    Fetch,
    FetchPartition,
    Produce,
    ProducePartition,
    ProduceResponse,
)
from tidelog.core.record.encoder import encode_value
from tidelog.core.storage.disk import DiskError


def started() -> Cluster:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    return cluster


def produce(cluster: Cluster, correlation: int) -> on.RequestReceived:
    records = bytearray(encode_value(b"a"))
    request = Produce(-1, 1000, [ProducePartition(ORDERS, records)])
    return on.RequestReceived("producer", correlation, request, cluster.now_ms)


def poll(cluster: Cluster) -> on.RequestReceived:
    topic_id = cluster.replica(1).topic_id
    asked = [FetchPartition(ORDERS, topic_id, 0, 1000, None, None, -1)]
    request = Fetch(None, None, 500, 1, 1000, asked)
    return on.RequestReceived("consumer", 1, request, cluster.now_ms)


def told(answer: do.Respond) -> bool:
    """Whether the response acknowledges the record."""
    response = answer.response
    assert isinstance(response, ProduceResponse)
    return response.partitions[0].error is ErrorCode.NONE


def peers(effects: list[do.Effect]) -> list[object]:
    return [(e.peer, e.correlation) for e in effects if isinstance(e, do.Respond)]


def test_producers_are_answered_before_waiting_fetches_are_checked() -> None:
    cluster = started()
    node = cluster.nodes[1]
    assert peers(node.step(poll(cluster))) == []
    node.take(produce(cluster, 7))
    node.take(produce(cluster, 8))
    assert peers(node.take_answers()) == [("producer", 7), ("producer", 8)]
    assert peers(node.settle()) == [("consumer", 1)]


def test_step_has_the_same_order() -> None:
    cluster = started()
    node = cluster.nodes[1]
    node.step(poll(cluster))
    assert peers(node.step(produce(cluster, 7))) == [("producer", 7), ("consumer", 1)]


def test_no_response_before_a_pending_write() -> None:
    cluster = started()
    node = cluster.nodes[1]
    node.take(produce(cluster, 7))
    node._replicas.truncated = True
    assert node.take_answers() == []
    assert peers(node.settle()) == [("producer", 7)]


def test_no_response_overtakes_another_effect() -> None:
    cluster = started()
    node = cluster.nodes[1]
    node._turn.emit(do.Close("somebody"))
    node.take(produce(cluster, 7))
    assert node.take_answers() == []
    effects = node.settle()
    assert isinstance(effects[0], do.Close)
    assert peers(effects) == [("producer", 7)]


def test_responses_are_discarded_when_the_disk_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = started()
    node = cluster.nodes[1]
    node.take(produce(cluster, 7))

    def fail(*_: object) -> None:
        raise DiskError("Input/output error", "00000000000000000000.log")

    monkeypatch.setattr(cluster.disks[1], "append", fail)
    node.take(produce(cluster, 8))
    assert node.take_answers() == []
    assert not [e for e in node.settle() if isinstance(e, do.Respond) and told(e)]
