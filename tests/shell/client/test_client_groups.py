"""Groups through the client: all Kafka versions, any response, librdkafka's mock."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from fake_broker import PATIENCE_S, FakeBroker, fake_brokers
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.groups.membership.subscription import subscribed_topics
from tidelog.core.types import TopicPartition
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Consumer, Span
from tidelog.shell.client.groups import group_admin
from tidelog.shell.client.groups.consumer_protocol import (
    assign_ranges,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tidelog.shell.client.groups.group_admin import Committed, GroupInUse, NoSuchGroup
from tidelog.shell.client.groups.group_consumer import GroupConsumer

COMMIT, FETCH_OFFSETS, FIND, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = 8, 9, 10, 15, 16, 42, 47
DESCRIBE_NEWER = 69
LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER = 14, 16, 25
NOT_EMPTY, NOT_FOUND = 68, 69
ORDERS = TopicPartition("orders", 0)

KAFKA_2_1 = {
    3: (0, 7), COMMIT: (0, 6), FETCH_OFFSETS: (0, 5), FIND: (0, 2), 11: (0, 3), 12: (0, 2),
    13: (0, 2), 14: (0, 2), DESCRIBE: (0, 2), LIST: (0, 2), DELETE: (0, 1),
}  # fmt: skip


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_brokers(1) as (one,):
        one.tell_metadata([one], {"orders": [1]})
        one.answers[FIND] = found(one)
        yield one


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=PATIENCE_S) as one:
        yield one


def found(broker: FakeBroker, *errors: int) -> Any:
    """Respond to FindCoordinator: first these errors, then the broker itself."""
    left = list(errors)

    def answer(version: int, request: dict[str, Any]) -> dict[str, Any]:
        error = left.pop(0) if left else 0
        place = {
            "error_code": error,
            "node_id": -1 if error else broker.id,
            "host": broker.host,
            "port": broker.port,
        }
        if version < 4:
            return place
        return {"coordinators": [{"key": request["coordinator_keys"][0], **place}]}

    return answer


def test_a_request_to_a_coordinator_that_is_not_ready_is_retried(
    broker: FakeBroker, cluster: Cluster
) -> None:
    broker.answers[FIND] = found(broker, 15, 15)
    answers = [LOADING, NOT_COORDINATOR, 0]
    broker.answers[DELETE] = lambda _version, _request: {
        "results": [{"group_id": "g", "error_code": answers.pop(0)}]
    }
    assert group_admin.delete_groups(cluster, ["g"]) == {"g": None}
    assert len(broker.requests(FIND)) == 5


@pytest.mark.parametrize("old", [True, False], ids=["2.1", "newest"])
def test_offsets_of_any_version(broker: FakeBroker, cluster: Cluster, old: bool) -> None:
    if old:
        broker.offered = KAFKA_2_1
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "metadata": "m", "error_code": 0},
        {"partition_index": 1, "committed_offset": -1, "metadata": "", "error_code": 0},
    ]
    topics = [{"name": "orders", "partitions": partitions}]

    def on_fetch(version: int, request: dict[str, Any]) -> dict[str, Any]:
        if version < 8:
            assert request["group_id"] == "g"
            return {"topics": topics, "error_code": 0}
        assert [each["group_id"] for each in request["groups"]] == ["g"]
        return {"groups": [{"group_id": "g", "topics": topics, "error_code": 0}]}

    def on_commit(_version: int, request: dict[str, Any]) -> dict[str, Any]:
        (topic,) = request["topics"]
        (asked,) = topic["partitions"]
        assert (topic["name"], asked["committed_offset"]) == ("orders", 7)
        return {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}

    broker.answers.update({FETCH_OFFSETS: on_fetch, COMMIT: on_commit})
    assert group_admin.committed_offsets(cluster, "g") == {ORDERS: Committed(5, -1, "m")}
    group_admin.commit_offsets(cluster, "g", {ORDERS: Committed(7)})
    assert broker.versions(FETCH_OFFSETS) == [5 if old else 9]
    assert broker.versions(COMMIT) == [6 if old else 9]


def test_a_commit_by_a_client_that_is_not_a_member_is_refused_with_a_reason(
    broker: FakeBroker, cluster: Cluster
) -> None:
    failed = {"partition_index": 0, "error_code": UNKNOWN_MEMBER}
    broker.answers[COMMIT] = lambda _version, _request: {
        "topics": [{"name": "orders", "partitions": [failed]}]
    }
    with pytest.raises(GroupInUse, match="group g has members: its offsets can't be set"):
        group_admin.commit_offsets(cluster, "g", {ORDERS: Committed(7)})
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group_admin.commit_offsets(cluster, "g", {ORDERS: Committed(7)}, ("me", 1))


def test_lists_of_an_old_broker_have_no_states(broker: FakeBroker, cluster: Cluster) -> None:
    groups = [{"group_id": "g", "protocol_type": "consumer", "group_state": "Empty"}]
    broker.answers[LIST] = lambda _version, _request: {"error_code": 0, "groups": groups}
    (listed,), failed = group_admin.list_groups(cluster)
    assert (listed.state, listed.coordinator, failed) == ("Empty", 1, [])
    broker.offered = KAFKA_2_1
    with Cluster(broker.address, timeout_s=PATIENCE_S) as older:
        (listed,), failed = group_admin.list_groups(older)
    assert (listed.state, listed.kind, failed) == (None, None, [])


def test_a_broker_that_cannot_list_its_groups_is_reported(
    broker: FakeBroker, cluster: Cluster
) -> None:
    broker.answers[LIST] = lambda _version, _request: {"error_code": LOADING, "groups": []}
    listed, (failed,) = group_admin.list_groups(cluster)
    assert listed == []
    assert "listing the groups of broker 1 failed: COORDINATOR_LOAD_IN_PROGRESS" in str(failed)


def described(state: str, **more: Any) -> dict[str, Any]:
    return {
        "error_code": 0, "group_id": "g", "group_state": state, "protocol_type": "consumer",
        "protocol_data": "range", "members": [], **more,
    }  # fmt: skip


def test_describe_a_classic_group(broker: FakeBroker, cluster: Cluster) -> None:
    members = [
        {
            "member_id": name, "client_id": "c", "client_host": "/h", "member_metadata": b"",
            "member_assignment": assignment,
        }
        for name, assignment in [("a", encode_assignment([ORDERS])), ("b", b"\xff"), ("c", b"")]
    ]  # fmt: skip
    broker.answers[DESCRIBE] = lambda _version, _request: {
        "groups": [described("Stable", members=members)]
    }
    broker.answers[DESCRIBE_NEWER] = lambda _version, _request: {
        "groups": [newer("g", error_code=NOT_FOUND)]
    }
    group = group_admin.describe_group(cluster, "g")
    assert (group.state, group.assignor, group.coordinator) == ("Stable", "range", 1)
    assert [member.partitions for member in group.members] == [[ORDERS], [], []]
    assert group.is_active


@pytest.mark.parametrize(
    "answer", [described("Dead"), described("", error_code=NOT_FOUND, protocol_data="")]
)
def test_a_missing_group_is_reported(
    broker: FakeBroker, cluster: Cluster, answer: dict[str, Any]
) -> None:
    broker.offered = KAFKA_2_1
    broker.answers[DESCRIBE] = lambda _version, _request: {"groups": [answer]}
    with pytest.raises(NoSuchGroup, match="there is no group 'g'"):
        group_admin.describe_group(cluster, "g")


def newer(group: str, **more: Any) -> dict[str, Any]:
    return {
        "error_code": 0, "group_id": group, "group_state": "", "group_epoch": 0,
        "assignment_epoch": 0, "assignor_name": "", "members": [], **more,
    }  # fmt: skip


def test_describe_a_group_of_the_newer_protocol(broker: FakeBroker, cluster: Cluster) -> None:
    assignment = {
        "topic_partitions": [
            {"topic_id": bytes(16), "topic_name": "orders", "partitions": [0, 2]},
        ]
    }
    member = {
        "member_id": "m", "instance_id": "i", "member_epoch": 3, "client_id": "c",
        "client_host": "/h", "subscribed_topic_names": ["orders"], "assignment": assignment,
        "target_assignment": assignment,
    }  # fmt: skip
    broker.answers[DESCRIBE_NEWER] = lambda _version, _request: {
        "groups": [newer("g", group_state="Stable", assignor_name="uniform", members=[member])]
    }
    group = group_admin.describe_group(cluster, "g")
    (one,) = group.members
    assert (group.state, group.assignor, one.instance_id) == ("Stable", "uniform", "i")
    assert one.partitions == [ORDERS, TopicPartition("orders", 2)]


def test_deleting_groups_reports_an_error_for_each(broker: FakeBroker, cluster: Cluster) -> None:
    codes = {"busy": NOT_EMPTY, "gone": NOT_FOUND, "odd": 29, "fine": 0}
    broker.answers[DELETE] = lambda _version, request: {
        "results": [
            {"group_id": name, "error_code": codes[name]} for name in request["groups_names"]
        ]
    }
    told = group_admin.delete_groups(cluster, list(codes))
    assert isinstance(told["busy"], GroupInUse)
    assert isinstance(told["gone"], NoSuchGroup)
    assert isinstance(told["odd"], BrokerError)
    assert told["fine"] is None
    for code, kind in ((NOT_FOUND, NoSuchGroup), (NOT_EMPTY, GroupInUse), (29, BrokerError)):
        broker.answers[DELETE_OFFSETS] = refuse_to_delete(code)
        with pytest.raises(kind):
            group_admin.delete_offsets(cluster, "g", [ORDERS])


def refuse_to_delete(code: int) -> Any:
    return lambda _version, _request: {"error_code": code, "topics": []}


def test_deleting_offsets_needs_a_broker_with_that_api(
    broker: FakeBroker, cluster: Cluster
) -> None:
    broker.offered = KAFKA_2_1
    with pytest.raises(ClientError, match="does not offer OffsetDelete"):
        group_admin.delete_offsets(cluster, "g", [ORDERS])


# -- what members tell each other ---------------------------------------------------------------

NAMES = st.text("abc", min_size=1, max_size=3)


@given(st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 9)), unique=True))
def test_assignments_are_encoded_and_decoded(partitions: list[TopicPartition]) -> None:
    assert sorted(decode_assignment(encode_assignment(partitions))) == sorted(partitions)


@given(st.lists(NAMES, unique=True))
def test_subscriptions_are_what_coordinators_read(topics: list[str]) -> None:
    assert subscribed_topics([encode_subscription(topics)]) == frozenset(topics)


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    with suppress(MalformedRequest):
        decode_assignment(data)


@given(
    st.dictionaries(st.text("mn", min_size=1, max_size=3), st.sets(NAMES), min_size=1),
    st.dictionaries(NAMES, st.integers(0, 7)),
)
def test_each_partition_is_assigned_to_one_subscriber(
    subscriptions: dict[str, set[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, counts)
    given_out = sorted(key for keys in assigned.values() for key in keys)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert given_out == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(counts.get(topic, 0))
    )
    for member, keys in assigned.items():
        assert {key.topic for key in keys} <= subscriptions[member]


def test_ranges_are_those_of_kafka() -> None:
    assigned = assign_ranges({"b": ["t"], "a": ["t"]}, {"t": 5})
    assert [key.partition for key in assigned["a"]] == [0, 1, 2]
    assert [key.partition for key in assigned["b"]] == [3, 4]


# -- a member, on brokers that we did not write -------------------------------------------------


def test_a_member_of_a_group_of_librdkafkas_mock() -> None:
    mock = confluent_kafka.Producer(
        {"test.mock.num.brokers": 3, "log_level": 0, "partitioner": "murmur2"}
    )
    brokers = mock.list_topics(timeout=PATIENCE_S).brokers.values()
    bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    for number in range(20):
        mock.produce("orders", str(number), key=str(number))
    assert mock.flush(PATIENCE_S) == 0
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as cluster:
        assert len(set(read_group(cluster, 7))) == 7
        every = [TopicPartition("orders", number) for number in range(4)]
        committed = group_admin.committed_offsets(cluster, "g", every)
        assert sum(each.offset for each in committed.values()) == 7


def read_group(cluster: Cluster, wanted: int) -> list[str]:
    told: list[str] = []
    member = GroupConsumer(
        Consumer(cluster, notify=told.append),
        "g",
        lambda: ["orders"],
        lambda keys, committed: {
            key: Span(committed[key].offset if key in committed else 0) for key in keys
        },
    )
    found: list[str] = []
    try:
        while len(found) < wanted:
            for chunk in member.poll(0.5):
                for record in chunk.records[: wanted - len(found)]:
                    found.append((record.value or b"").decode())
                    member.written(chunk.key, record.offset + 1, record.leader_epoch)
        assert len(member.partitions) == 4
    finally:
        member.close()
    assert told[0].endswith("reading orders-0, orders-1, orders-2, orders-3")
    return found
