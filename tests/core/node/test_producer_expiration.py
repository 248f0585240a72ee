"""`producer.id.expiration.ms`: how long a producer may be silent and still be known."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import Producer, encode_value


@pytest.mark.parametrize(("expiration_ms", "known"), [(86_400_000, True), (3000, False)])
def test_a_silent_producer_is_forgotten(expiration_ms: int, known: bool) -> None:
    cluster = Cluster(
        settings={
            "producer_id_expiration_ms": expiration_ms,
            "producer_id_expiration_check_interval_ms": 1000,
        }
    )
    cluster.start()
    cluster.create_topic()
    leader = cluster.leader()
    assert leader is not None
    records = encode_value(b"v", cluster.now_ms, Producer(7, 0, 0))
    answer = cluster.call(leader, Produce(-1, 1000, [ProducePartition(ORDERS, records)]))
    assert answer.partitions[0].error is ErrorCode.NONE
    producers = cluster.replica(leader).log.producers
    cluster.run(2000)
    assert 7 in producers.producers
    cluster.run(3000)
    assert (7 in producers.producers) is known
