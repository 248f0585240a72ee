"""Clients can't write to internal topics."""

from node_cluster import Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import encode_value
from tidelog.core.types import TopicPartition

OFFSETS = TopicPartition("__consumer_offsets", 0)


def test_only_admin_clients_write_into_internal_topics() -> None:
    cluster = Cluster((1,))
    cluster.start()
    cluster.create_topic(OFFSETS.topic, (1,))
    for allowed, error in (
        (False, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, ErrorCode.NONE),
    ):
        part = ProducePartition(OFFSETS, encode_value(b"x"))
        request = Produce(-1, 1000, [part], internal_topics_allowed=allowed)
        assert cluster.call(1, request).partitions[0].error is error
