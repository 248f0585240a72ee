"""The client with real Tidelog brokers, also while they are killed."""

from collections.abc import Iterator

import pytest
from real_cluster import PATIENCE_S, eventually

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.batch_sender import Produced
from tidelog.shell.client.client_errors import BrokerError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.fetching import READ_COMMITTED, FetchFrom, fetch
from tidelog.shell.client.offsets import EARLIEST, MAX_TIMESTAMP, epoch_end, list_offset
from tidelog.shell.client.producer import Producer, init_producer_id, produce
from tidelog.shell.supervisor.cluster import LocalCluster

BEGAN_MS = 1_700_000_000_000
SETTINGS = {"broker.session.timeout.ms": "60000", "log.retention.ms": "-1"}
"""No broker is fenced because it gets no CPU; the records are older than a week."""
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@pytest.fixture(scope="module")
def running() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as one:
        yield one


@pytest.fixture
def cluster(running: LocalCluster) -> Iterator[Cluster]:
    with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as one:
        yield one


def records(*names: str) -> list[Record]:
    return [Record(None, name.encode(), BEGAN_MS + n) for n, name in enumerate(names)]


def values(cluster: Cluster, topic: str, isolation: int = 0) -> list[str]:
    found = Reader(cluster, isolation).read(topic, 0, 0)
    return [(record.value or b"").decode() for record in found]


def test_topics_are_created_and_deleted(cluster: Cluster) -> None:
    admin.create_topic(cluster, "brief", 3, 2, {"retention.ms": "60000"})
    topic = cluster.topic("brief")
    assert len(topic.partitions) == 3
    assert all(len(each.replicas) == 2 for each in topic.partitions.values())
    assert any(topic.id)
    assert admin.topic_configs(cluster, ["brief"])["brief"]["retention.ms"] == "60000"
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topic(cluster, "brief")
    admin.delete_topic(cluster, "brief")
    with pytest.raises(NoSuchTopic):
        admin.delete_topic(cluster, "brief")


@pytest.mark.parametrize("codec", list(Codec))
def test_appended_records_are_read(cluster: Cluster, codec: Codec) -> None:
    name = f"codec-{codec.name.lower()}"
    admin.create_topic(cluster, name, 1, 3)
    headers = (Header("h", b"1"), Header("none", None))
    wanted = [Record(b"k", b"v" * 300, BEGAN_MS, headers), Record(None, None, BEGAN_MS + 1)]
    assert Producer(cluster, codec=codec).append(name, 0, wanted) == 0
    found = list(Reader(cluster).read(name, 0, 0))
    assert [(r.key, r.value, r.timestamp, r.headers) for r in found] == [
        (r.key, r.value, r.timestamp, r.headers) for r in wanted
    ]
    assert values(cluster, name, READ_COMMITTED) == ["v" * 300, ""]


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks(cluster: Cluster, acks: int) -> None:
    name = f"acks-{acks}"
    admin.create_topic(cluster, name, 1, 1)
    Producer(cluster).append(name, 0, records("a"))  # now the leader knows that it leads
    producer = Producer(cluster, acks=acks, idempotent=False)
    for text in "bc":
        producer.append(name, 0, records(text))
    found = Reader(cluster)
    assert [r.value for r in found.read(name, 0, 0, 3)] == [b"a", b"b", b"c"]


def test_offsets_by_time_and_epoch(cluster: Cluster) -> None:
    admin.create_topic(cluster, "times", 1, 3)
    Producer(cluster).append("times", 0, records("a", "b", "c"))
    assert list_offset(cluster, "times", 0).offset == 3
    assert list_offset(cluster, "times", 0, EARLIEST).offset == 0
    assert list_offset(cluster, "times", 0, BEGAN_MS + 1)[:2] == (1, BEGAN_MS + 1)
    assert list_offset(cluster, "times", 0, BEGAN_MS + 99).offset == -1
    assert list_offset(cluster, "times", 0, MAX_TIMESTAMP)[:2] == (2, BEGAN_MS + 2)
    leader = cluster.leader("times", 0)
    assert epoch_end(cluster, "times", 0, leader.leader_epoch) == (leader.leader_epoch, 3)


def test_a_duplicate_batch_is_written_once(cluster: Cluster) -> None:
    admin.create_topic(cluster, "twice", 1, 3)
    producer_id, epoch = init_producer_id(cluster)
    batch = encode_batch(records("a", "b"), producer=Stamp(producer_id, epoch, 0))
    leader = cluster.broker(cluster.leader("twice", 0).leader)
    topic = cluster.topic("twice")

    def written() -> Produced | None:
        """None while the broker does not know yet that it leads the new topic."""
        found = produce(leader, topic, 0, batch)
        return None if found.error in PASSING else found

    first = eventually(written, "the leader knows the topic")
    second = produce(leader, topic, 0, batch)
    assert (first.error, first.base_offset) == (0, 0)
    assert second.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    gap = encode_batch(records("z"), producer=Stamp(producer_id, epoch, 9))
    assert produce(leader, topic, 0, gap).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(cluster, "twice") == ["a", "b"]


def test_many_partitions_in_one_fetch(cluster: Cluster) -> None:
    admin.create_topic(cluster, "many", 6, 1)
    producer = Producer(cluster)
    for number in range(6):
        producer.append("many", number, records(f"p{number}"))
    partitions = cluster.topic("many").partitions.values()
    by_leader: dict[int, dict[TopicPartition, FetchFrom]] = {}
    for each in partitions:
        place = FetchFrom(0, each.leader_epoch)
        by_leader.setdefault(each.leader, {})[TopicPartition("many", each.partition)] = place
    assert len(by_leader) == 3
    for leader, wanted in by_leader.items():
        found = fetch(cluster.broker(leader), cluster.metadata.topics, wanted)
        assert found.keys() == wanted.keys()
        for key, answer in found.items():
            assert (answer.error, answer.high_watermark) == (0, 1)
            assert f"p{key.partition}".encode() in bytes(answer.records)
    stale = {key: place._replace(current_leader_epoch=99) for key, place in wanted.items()}
    refused = fetch(cluster.broker(leader), cluster.metadata.topics, stale)
    assert {each.error for each in refused.values()} == {ErrorCode.UNKNOWN_LEADER_EPOCH}


def test_describe_state_returns_the_state_of_a_broker(cluster: Cluster) -> None:
    admin.create_topic(cluster, "state", 1, 3)
    for broker in cluster.metadata.brokers:
        eventually(lambda b=broker: describes(cluster, b, "state"), "its state")  # type: ignore[misc]


def describes(cluster: Cluster, broker: int, topic: str) -> bool:
    """Whether the broker describes its replica of a topic."""
    state = admin.describe_state(cluster, broker, topic, 0)
    assert state is not None
    assert state["broker_id"] == broker
    return [each["topic"] for each in state["partitions"]] == [topic]


def test_kills_lose_and_duplicate_nothing(running: LocalCluster, cluster: Cluster) -> None:
    admin.create_topic(cluster, "kept", 1, 3, {"min.insync.replicas": "2"})
    producer = Producer(cluster, timeout_s=PATIENCE_S)
    wanted = [f"record {number}" for number in range(150)]
    leader = -1
    for number, name in enumerate(wanted):
        if number in (50, 100):
            leader = cluster.leader("kept", 0).leader
            running.kill(leader)
        offset = producer.append("kept", 0, records(name))
        assert offset in (number, -1)
        if number in (51, 101):
            running.start_broker(leader)
            running.wait_ready()
    assert values(cluster, "kept") == wanted
