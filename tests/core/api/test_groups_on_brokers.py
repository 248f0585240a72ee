"""Groups on brokers of the simulator, by requests as bytes; a coordinator that dies."""

from typing import Any

import pytest
from api_cluster import (
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    FIRST_PORT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    ApiCluster,
)
from dispatch_cluster import DispatchCluster

from tidelog.core.api.settling import names_a_dead_coordinator
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, partition_for
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.config import GroupConfig

AT_ONCE = GroupConfig(group_initial_rebalance_delay_ms=0)
PARTITIONS = 4
TEXTS = {"offsets.topic.num.partitions": str(PARTITIONS), "offsets.topic.segment.bytes": "5000000"}
GROUP = "readers"


@pytest.fixture
def cluster() -> ApiCluster:
    made = ApiCluster(texts=dict(TEXTS), settings={"groups": AT_ONCE}).start_all()
    made.create("orders", 2, 3)
    return made


class Member:
    """A consumer that speaks the newest versions."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster = cluster
        self.coordinator = cluster.coordinator(GROUP)
        self.id = ""
        self.generation = -1

    def ask(self, api_key: int, **request: Any) -> Any:
        asked = {"group_id": GROUP, "member_id": self.id, "generation_id": self.generation}
        return self.cluster.request(self.coordinator, api_key, {**asked, **request})

    def join(self) -> None:
        def joined() -> Any:
            return self.ask(
                JOIN_GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"topics"}],
            )

        told = joined()
        assert told["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        self.id = told["member_id"]
        told = joined()
        assert told["error_code"] == ErrorCode.NONE, told
        assert told["leader"] == self.id
        self.generation = told["generation_id"]
        told = self.ask(
            SYNC_GROUP,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": self.id, "assignment": b"all"}],
        )
        assert (told["error_code"], told["assignment"]) == (ErrorCode.NONE, b"all")

    def heartbeat(self) -> ErrorCode:
        return ErrorCode(self.ask(HEARTBEAT)["error_code"])

    def commit(self, *offsets: int) -> set[ErrorCode]:
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "note"}
            for index, offset in enumerate(offsets)
        ]
        topic_id = self.cluster.nodes[self.coordinator].image.topics["orders"].topic_id
        told = self.ask(
            OFFSET_COMMIT,
            generation_id_or_member_epoch=self.generation,
            topics=[{"topic_id": topic_id, "partitions": partitions}],
        )
        return {ErrorCode(one["error_code"]) for one in told["topics"][0]["partitions"]}

    def committed(self) -> dict[int, int]:
        told = self.cluster.request(
            self.coordinator, OFFSET_FETCH, {"groups": [{"group_id": GROUP, "topics": None}]}
        )
        [group] = told["groups"]
        assert group["error_code"] == ErrorCode.NONE
        return {
            one["partition_index"]: one["committed_offset"]
            for topic in group["topics"]
            for one in topic["partitions"]
        }

    def described(self) -> Any:
        asked = {"groups": [GROUP], "include_authorized_operations": True}
        [group] = self.cluster.request(self.coordinator, DESCRIBE_GROUPS, asked)["groups"]
        return group


def listed(cluster: ApiCluster) -> dict[int, list[str]]:
    return {
        broker: [one["group_id"] for one in cluster.request(broker, LIST_GROUPS, {})["groups"]]
        for broker in cluster.nodes
    }


def test_group_joins_commits_and_leaves(cluster: ApiCluster) -> None:
    member = Member(cluster)
    member.join()
    assert member.id.startswith("test-")
    assert member.heartbeat() is ErrorCode.NONE
    assert member.commit(7, 8) == {ErrorCode.NONE}
    assert member.committed() == {0: 7, 1: 8}
    seen = member.described()
    assert (seen["group_state"], seen["protocol_data"]) == ("Stable", "range")
    [one] = seen["members"]
    assert (one["member_id"], one["client_id"]) == (member.id, "test")
    assert (one["member_metadata"], one["member_assignment"]) == (b"topics", b"all")
    assert listed(cluster) == {
        broker: [GROUP] if broker == member.coordinator else [] for broker in cluster.nodes
    }
    told = member.ask(DELETE_GROUPS, groups_names=[GROUP])
    assert told["results"][0]["error_code"] == ErrorCode.NON_EMPTY_GROUP
    told = member.ask(LEAVE_GROUP, members=[{"member_id": member.id}])
    assert [one["error_code"] for one in told["members"]] == [ErrorCode.NONE]
    assert member.described()["group_state"] == "Empty"
    assert member.committed() == {0: 7, 1: 8}
    partition = [{"name": "orders", "partitions": [{"partition_index": 1}]}]
    told = member.ask(OFFSET_DELETE, topics=partition)
    assert told["error_code"] == told["topics"][0]["partitions"][0]["error_code"] == 0
    assert member.committed() == {0: 7}
    told = member.ask(DELETE_GROUPS, groups_names=[GROUP])
    assert told["results"][0]["error_code"] == ErrorCode.NONE
    assert member.described()["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert set(map(tuple, listed(cluster).values())) == {()}


def test_offsets_topic_is_created_with_the_brokers_settings(cluster: ApiCluster) -> None:
    cluster.coordinator(GROUP)
    cluster.settle()
    for node in cluster.nodes.values():
        topic = node.image.topics[OFFSETS_TOPIC]
        assert topic.partition_count == PARTITIONS
        config = node.image.topic_overrides(topic.topic_id)
        assert config["cleanup.policy"] == "compact"
        assert config["segment.bytes"] == "5000000"
        partition = node.image.partition(OFFSETS_TOPIC, 0)
        assert partition is not None
        assert sorted(partition.replicas) == [1, 2, 3]


def test_find_coordinator_succeeds_once_enough_brokers_exist() -> None:
    cluster = ApiCluster(texts=dict(TEXTS), settings={"groups": AT_ONCE})
    cluster.start(1, 2)
    cluster.run_until(lambda: all(cluster.nodes[broker].acting for broker in (1, 2)))
    asked = {"key_type": 0, "coordinator_keys": [GROUP, "others"]}
    for found in cluster.request(1, FIND_COORDINATOR, asked, 4)["coordinators"]:
        assert found["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert OFFSETS_TOPIC in found["error_message"]
        assert "3" in found["error_message"], "how many brokers it takes"
    cluster.start(3)
    cluster.run_until(lambda: cluster.nodes[3].acting)
    cluster.run_until(
        lambda: not cluster.request(1, FIND_COORDINATOR, {"key": GROUP}, 2)["error_code"]
    )


def test_partitions_of_the_offsets_topic_can_not_be_added(cluster: ApiCluster) -> None:
    """More partitions would map groups to other partitions, where their offsets are missing."""
    member = Member(cluster)
    member.join()
    assert member.commit(7) == {ErrorCode.NONE}
    asked = {
        "topics": [{"name": OFFSETS_TOPIC, "count": PARTITIONS + 1, "assignments": None}],
        "timeout_ms": 1_000,
        "validate_only": False,
    }
    [result] = cluster.request(1, CREATE_PARTITIONS, asked)["results"]
    assert result["error_code"] == ErrorCode.INVALID_PARTITIONS
    assert "offsets" in result["error_message"]
    cluster.run(1_000)
    assert member.committed() == {0: 7}


def test_every_broker_names_the_same_coordinator(cluster: ApiCluster) -> None:
    names = [f"group-{number}" for number in range(20)]
    cluster.coordinator(GROUP)
    cluster.settle()
    told = [
        cluster.request(broker, FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": names})
        for broker in cluster.nodes
    ]
    assert told[0] == told[1] == told[2]
    image = cluster.nodes[1].image
    for one in told[0]["coordinators"]:
        partition = image.partition(OFFSETS_TOPIC, partition_for(one["key"], PARTITIONS))
        assert partition is not None
        assert (one["error_code"], one["node_id"]) == (ErrorCode.NONE, partition.leader)
        assert one["port"] == FIRST_PORT + one["node_id"]
    assert len({one["node_id"] for one in told[0]["coordinators"]}) > 1


def test_other_brokers_answer_not_coordinator(cluster: ApiCluster) -> None:
    member = Member(cluster)
    coordinator = member.coordinator
    cluster.settle()
    for other in set(cluster.nodes) - {coordinator}:
        member.coordinator = other
        assert member.heartbeat() is ErrorCode.NOT_COORDINATOR
        assert member.commit(1) == {ErrorCode.NOT_COORDINATOR}
        assert member.described()["error_code"] == ErrorCode.NOT_COORDINATOR


def test_next_coordinator_loads_the_group(cluster: ApiCluster) -> None:
    """Members and offsets are in the log; a member finds its new coordinator and continues."""
    member = Member(cluster)
    member.join()
    assert member.commit(7, 8) == {ErrorCode.NONE}
    old = member.coordinator
    cluster.crash(old, proof=True)
    asked = next(iter(set(cluster.nodes) - {old}))
    cluster.run_until(
        lambda: cluster.request(asked, FIND_COORDINATOR, {"key": GROUP}, 2)["node_id"] != old
    )
    member.coordinator = cluster.coordinator(GROUP, asked)
    assert member.coordinator != old
    assert member.committed() == {0: 7, 1: 8}
    assert member.heartbeat() is ErrorCode.NONE
    assert member.commit(9) == {ErrorCode.NONE}
    assert member.committed() == {0: 9, 1: 8}


def test_find_coordinator_does_not_name_a_dead_broker() -> None:
    cluster = DispatchCluster(texts=dict(TEXTS), settings={"groups": AT_ONCE})
    cluster.start_all()
    coordinator = cluster.coordinator(GROUP)
    cluster.settle()
    asked = next(broker for broker in cluster.nodes if broker != coordinator)
    image = cluster.nodes[asked].image
    one, many = {"key": GROUP}, {"coordinator_keys": ["", GROUP]}
    assert not names_a_dead_coordinator(image, one)
    dispatch = cluster.dispatch(asked)
    cluster.lose_session(coordinator)
    cluster.crash(coordinator)
    cluster.run_until(lambda: coordinator not in image.active)
    assert names_a_dead_coordinator(image, one)
    assert names_a_dead_coordinator(image, many)
    other = next(
        name
        for name in map(str, range(100))
        if cluster_leader(image, name) not in (None, coordinator)
    )
    assert not names_a_dead_coordinator(image, {"key": other})
    told = cluster.exchange(dispatch, FIND_COORDINATOR, 2, {"key": GROUP, "key_type": 0})
    assert told["node_id"] != coordinator
    cluster.run_until(lambda: cluster_leader(image, GROUP) not in (None, coordinator))
    assert not names_a_dead_coordinator(image, one)


def cluster_leader(image: Any, group_id: str) -> int | None:
    known = image.partition(OFFSETS_TOPIC, partition_for(group_id, PARTITIONS))
    return None if known is None else known.leader


def test_a_cluster_without_groups_has_no_dead_coordinators() -> None:
    cluster = ApiCluster().start_all()
    assert not names_a_dead_coordinator(cluster.nodes[1].image, {"key": GROUP})
