"""The client with librdkafka's mock cluster, whose brokers share no code with ours."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from fake_broker import PATIENCE_S

from tidelog.core.record.compression import Codec
from tidelog.core.record.record import Header, Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.offsets import EARLIEST, list_offset
from tidelog.shell.client.producer import Producer


@pytest.fixture
def bootstrap() -> Iterator[str]:
    mock = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = mock.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    mock.flush(1)


def test_append_and_read(bootstrap: str) -> None:
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
        assert len(cluster.refresh([]).brokers) == 3
        producer = Producer(cluster, codec=Codec.LZ4)
        wanted = [f"record {number}".encode() for number in range(100)]
        _make_topic(cluster, "orders")
        for start in range(0, 100, 10):
            batch = [
                Record(b"k", value, 1_700_000_000_000, (Header("h", b"1"),))
                for value in wanted[start : start + 10]
            ]
            assert producer.append("orders", 0, batch) == start
        assert list_offset(cluster, "orders", 0).offset == 100
        assert list_offset(cluster, "orders", 0, EARLIEST).offset == 0
        found = list(Reader(cluster).read("orders", 0, 0, 100))
        assert [record.value for record in found] == wanted
        assert found[0].headers == (Header("h", b"1"),)


def _make_topic(cluster: Cluster, name: str) -> None:
    """Create a topic by requesting its metadata: the mock has no CreateTopics."""
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    cluster.any_broker().call(3, request)
    admin.await_leaders(cluster, name)


def test_librdkafkas_mock_is_not_a_tidelog_broker(bootstrap: str) -> None:
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
        assert admin.describe_state(cluster, 1) is None
