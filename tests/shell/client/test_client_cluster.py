"""Finding brokers, leaders and the controller, also after changes."""

import socket
import time
from collections.abc import Iterator

import pytest
from fake_broker import HANG_UP, METADATA, PATIENCE_S, SILENCE, FakeBroker, fake_brokers, topic_id

from tidelog.shell.client import admin
from tidelog.shell.client.client_errors import BrokerError, CannotConnect, NoAnswer, NoSuchTopic
from tidelog.shell.client.cluster import Cluster, parse_address
from tidelog.shell.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, epoch_end, list_offset

LIST_OFFSETS = 2
CREATE_TOPICS = 19
DELETE_TOPICS = 20
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_CONFIGS = 32
NOT_LEADER = 6


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    with fake_brokers(3) as three:
        yield three


def tell(brokers: list[FakeBroker], leaders: dict[str, list[int]], controller: int = 1) -> None:
    for broker in brokers:
        broker.tell_metadata(brokers, leaders, controller)


def offset_answer(error: int = 0, offset: int = 42) -> dict[str, object]:
    found = {"partition_index": 0, "error_code": error, "offset": offset, "timestamp": 5}
    return {"topics": [{"name": "orders", "partitions": [{**found, "leader_epoch": 7}]}]}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", ("localhost", 9092)),
        (" broker-1 ", ("broker-1", 9092)),
        ("[::1]:7", ("::1", 7)),
        ("[::1]", ("::1", 9092)),
        ("fe80::1", ("fe80::1", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:0", "host:x", "host:70000", "[::1"])
def test_an_invalid_address_is_refused(text: str) -> None:
    if text == "host:":
        assert parse_address(text) == ("host", 9092)
        return
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


def test_no_address_at_all() -> None:
    with pytest.raises(ValueError, match="give host:port"):
        Cluster(" , ")


def test_metadata(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1, 2], "bare": [-1]}, controller=3)
    with Cluster(brokers[0].address) as cluster:
        found = cluster.metadata
        assert (found.cluster_id, found.controller_id) == ("fake", 3)
        assert sorted(found.brokers) == [1, 2, 3]
        assert found.topics["orders"].id == topic_id("orders")
        assert [each.leader for each in found.topics["orders"].partitions.values()] == [1, 2]
        assert cluster.partition("orders", 1).leader_epoch == 7
        assert cluster.broker(2).address == brokers[1].address
        assert cluster.controller().address == brokers[2].address
    assert brokers[0].requests(METADATA)[0]["allow_auto_topic_creation"] is False


def test_the_next_bootstrap_address_is_tried(brokers: list[FakeBroker]) -> None:
    tell(brokers, {})
    brokers[0].close()
    with Cluster([brokers[0].address, brokers[1].address]) as cluster:
        assert cluster.metadata.cluster_id == "fake"


def test_the_error_names_the_address_that_was_given() -> None:
    with socket.socket() as unused:  # the port is taken, and nothing listens there
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with Cluster(address) as cluster, pytest.raises(CannotConnect) as caught:
            cluster.refresh()
    assert str(caught.value).startswith(f"can't connect to {address}: connection refused; is the")


def test_an_unreachable_advertised_address_is_named_as_such(
    brokers: list[FakeBroker],
) -> None:
    tell(brokers, {"orders": [2]})
    brokers[1].close()
    with (
        Cluster(brokers[0].address, timeout_s=3) as cluster,
        pytest.raises(CannotConnect, match=r"advertised\.listeners"),
    ):
        list_offset(cluster, "orders", 0)


def test_missing_topics_and_partitions_are_errors(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1]})
    with Cluster(brokers[0].address, timeout_s=PATIENCE_S) as cluster:
        with pytest.raises(NoSuchTopic, match="no topic 'nothing' in the cluster"):
            cluster.leader("nothing", 0)
        with pytest.raises(NoSuchTopic, match="no partition 5 of topic 'orders'"):
            cluster.leader("orders", 5)
        with pytest.raises(
            CannotConnect, match="broker 9: the cluster's metadata does not list this broker"
        ):
            cluster.broker(9)


def test_a_leader_is_waited_for(brokers: list[FakeBroker]) -> None:
    leaders = {"orders": [-1]}
    tell(brokers, leaders)
    with Cluster(brokers[0].address, timeout_s=2) as cluster:
        with pytest.raises(BrokerError, match="orders-0 has no leader: LEADER_NOT_AVAILABLE"):
            cluster.leader("orders", 0)
        leaders["orders"] = [2]
        cluster.timeout_s = PATIENCE_S
        assert cluster.leader("orders", 0).leader == 2


def test_a_new_leader_is_found(brokers: list[FakeBroker]) -> None:
    """The first broker responds that it no longer leads; the metadata then names the second."""
    leaders = {"orders": [1]}
    tell(brokers, leaders)

    def resign(_version: int, _request: object) -> dict[str, object]:
        leaders["orders"] = [2]
        return offset_answer(NOT_LEADER)

    brokers[0].answers[LIST_OFFSETS] = resign
    brokers[1].answers[LIST_OFFSETS] = lambda *_: offset_answer(offset=99)
    with Cluster(brokers[0].address) as cluster:
        assert list_offset(cluster, "orders", 0) == (99, 5, 7)


def test_a_request_is_retried_if_the_leader_disconnects(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1]})
    answers = [HANG_UP, offset_answer()]
    brokers[0].answers[LIST_OFFSETS] = lambda *_: answers.pop(0)
    with Cluster([brokers[1].address]) as cluster:
        assert list_offset(cluster, "orders", 0).offset == 42


def test_a_permanent_error_is_raised_at_once(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1]})
    brokers[0].answers[LIST_OFFSETS] = lambda *_: offset_answer(29)
    with (
        Cluster(brokers[0].address) as cluster,
        pytest.raises(BrokerError, match="offsets of orders-0 failed: TOPIC_AUTHORIZATION_FAILED"),
    ):
        list_offset(cluster, "orders", 0)
    assert len(brokers[0].requests(LIST_OFFSETS)) == 1


def test_offsets_are_looked_up_by_time(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1]})
    brokers[0].answers[LIST_OFFSETS] = lambda *_: offset_answer()
    with Cluster(brokers[0].address) as cluster:
        for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 1_700_000_000_000):
            list_offset(cluster, "orders", 0, timestamp)
    asked = [each["topics"][0]["partitions"][0] for each in brokers[0].requests(LIST_OFFSETS)]
    assert [each["timestamp"] for each in asked] == [-1, -2, -3, 1_700_000_000_000]
    assert {each["current_leader_epoch"] for each in asked} == {7}


def test_the_end_of_an_epoch(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [1]})
    found = {"partition": 0, "error_code": 0, "leader_epoch": 3, "end_offset": 120}
    brokers[0].answers[OFFSET_FOR_LEADER_EPOCH] = lambda *_: {
        "topics": [{"topic": "orders", "partitions": [found]}]
    }
    with Cluster(brokers[0].address) as cluster:
        assert epoch_end(cluster, "orders", 0, 5) == (3, 120)


# -- administration --------------------------------------------------------------------------


def test_a_topic_is_created_at_the_controller_and_waited_for(brokers: list[FakeBroker]) -> None:
    leaders: dict[str, list[int]] = {}
    tell(brokers, leaders, controller=2)

    def create(_version: int, request: dict[str, list[dict[str, str]]]) -> dict[str, object]:
        leaders[request["topics"][0]["name"]] = [1, 3]
        return {"topics": [{"name": "new", "error_code": 0}]}

    brokers[1].answers[CREATE_TOPICS] = create
    with Cluster(brokers[0].address) as cluster:
        admin.create_topic(cluster, "new", 2, 3, {"min.insync.replicas": "2"})
        assert cluster.leader("new", 1).leader == 3
    (topic,) = brokers[1].requests(CREATE_TOPICS)[0]["topics"]
    assert (topic["num_partitions"], topic["replication_factor"]) == (2, 3)
    assert topic["configs"] == [{"name": "min.insync.replicas", "value": "2"}]


def test_a_new_controller_is_found(brokers: list[FakeBroker]) -> None:
    leaders = {"new": [1]}
    tell(brokers, leaders, controller=2)

    def resign(*_: object) -> dict[str, object]:
        tell(brokers, leaders, controller=3)
        return {"topics": [{"name": "new", "error_code": 41}]}

    brokers[1].answers[CREATE_TOPICS] = resign
    brokers[2].answers[CREATE_TOPICS] = lambda *_: {"topics": [{"name": "new", "error_code": 0}]}
    with Cluster(brokers[0].address) as cluster:
        admin.create_topic(cluster, "new")
    assert len(brokers[2].requests(CREATE_TOPICS)) == 1


def test_a_topic_that_exists(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"old": [1]})
    refusal = {"name": "old", "error_code": 36, "error_message": "Topic 'old' already exists."}
    brokers[0].answers[CREATE_TOPICS] = lambda *_: {"topics": [refusal]}
    with Cluster(brokers[0].address) as cluster:
        with pytest.raises(
            BrokerError, match=r"creating topic old failed: TOPIC_ALREADY_EXISTS \(Topic"
        ):
            admin.create_topic(cluster, "old")
        admin.create_topic(cluster, "old", exist_ok=True)


@pytest.mark.parametrize("version", [1, 6])
def test_a_topic_is_deleted_and_waited_for(brokers: list[FakeBroker], version: int) -> None:
    leaders = {"old": [1]}
    tell(brokers, leaders)
    brokers[0].offered[DELETE_TOPICS] = (1, version)

    def delete(*_: object) -> dict[str, object]:
        code = 0 if leaders.pop("old", None) else 3
        return {"responses": [{"name": "old", "error_code": code}]}

    brokers[0].answers[DELETE_TOPICS] = delete
    with Cluster(brokers[0].address) as cluster:
        admin.delete_topic(cluster, "old")
        with pytest.raises(NoSuchTopic):
            admin.delete_topic(cluster, "old")
        admin.delete_topic(cluster, "old", missing_ok=True)
    asked = brokers[0].requests(DELETE_TOPICS)[0]
    assert asked["topic_names"] == ["old"] if version == 1 else asked["topics"][0]["name"] == "old"


def test_settings(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"a": [1], "b": [1]})

    def describe(_version: int, request: dict[str, list[dict[str, object]]]) -> dict[str, object]:
        results = [
            {
                "error_code": 3 if each["resource_name"] == "b" else 0,
                "resource_type": each["resource_type"],
                "resource_name": each["resource_name"],
                "configs": [{"name": "min.insync.replicas", "value": "2"}],
            }
            for each in request["resources"]
        ]
        return {"results": results}

    brokers[0].answers[DESCRIBE_CONFIGS] = describe
    with Cluster(brokers[0].address) as cluster:
        wanted = ["min.insync.replicas"]
        assert admin.topic_configs(cluster, ["a", "b"], wanted) == {"a": {wanted[0]: "2"}}
        assert admin.broker_configs(cluster, 1) == {wanted[0]: "2"}
        assert admin.topic_configs(cluster, []) == {}


def test_describe_state_is_none_for_kafka_and_fails_for_a_dead_broker(
    brokers: list[FakeBroker],
) -> None:
    """Kafka closes the connection on a private call; so does a broker that dies."""
    tell(brokers, {})
    brokers[0].answers[32000] = lambda *_: {"document": b'{"broker_id": 1}'}
    with Cluster(brokers[0].address, timeout_s=PATIENCE_S) as cluster:
        assert admin.describe_state(cluster, 1, "orders", 0) == {"broker_id": 1}
        assert admin.describe_state(cluster, 2) is None
        brokers[2].close()
        with pytest.raises(CannotConnect):
            admin.describe_state(cluster, 3)


def test_a_broker_that_hangs_does_not_hide_the_others(brokers: list[FakeBroker]) -> None:
    tell(brokers, {"orders": [2]})
    brokers[0].answers[METADATA] = lambda *_: SILENCE
    with Cluster([broker.address for broker in brokers], timeout_s=6) as cluster:
        began = time.monotonic()
        assert cluster.leader("orders", 0).leader == 2
        cluster.refresh()
        assert time.monotonic() - began < 60
    assert len(brokers[0].requests(METADATA)) == 1, "once, for its share of the time"


def test_a_request_times_out_when_all_brokers_hang(brokers: list[FakeBroker]) -> None:
    for broker in brokers:
        broker.answers[METADATA] = lambda *_: SILENCE
    with Cluster([broker.address for broker in brokers], timeout_s=0.6) as cluster:
        began = time.monotonic()
        with pytest.raises(NoAnswer):
            cluster.refresh()
        assert time.monotonic() - began < 60


def test_a_refresh_reconnects_after_all_connections_were_lost(brokers: list[FakeBroker]) -> None:
    """All connections were closed; the next request opens new ones."""
    tell(brokers, {"orders": [2]})
    with Cluster(brokers[0].address, timeout_s=PATIENCE_S) as cluster:
        cluster.refresh()
        for broker in brokers:
            broker.hang_up()
        assert cluster.refresh().cluster_id == "fake"
