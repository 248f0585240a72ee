"""Consumer groups with three client libraries on real brokers: they share, resume and survive."""

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from group_member import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, LIBRARIES
from group_processes import GroupStage, group_stage
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    QUICK_SESSIONS,
    Sent,
    admin_client,
    commit_offsets,
    committed_offsets,
    consumer,
    eventually,
    make_topic,
    send_all,
    take,
)

from tidelog.core.errors import ErrorCode
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.supervisor.cluster import LocalCluster

PARTITIONS = 4
OFFSET_FETCH = 9
SETTINGS = {
    **LONG_SESSIONS,
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster
        assert all(cluster.is_running(broker) for broker in cluster.ids)


@pytest.fixture
def stage(cluster: LocalCluster, name: str) -> Iterator[GroupStage]:
    topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3)
    with group_stage(cluster, f"group-of-{name}", topic) as stage:
        yield stage


def send(stage: GroupStage, first: int, count: int) -> set[str]:
    """Send the same number of records to each partition; return the values."""
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, first + number) for number in range(count)]
        send_all(stage.cluster.bootstrap, stage.topic, values, partition)
    return {
        f"{partition}-{first + number}"
        for partition in range(PARTITIONS)
        for number in range(count)
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_share_the_partitions(stage: GroupStage, library: str) -> None:
    first = stage.member(library=library, client="first")
    stage.balanced(first, partitions=PARTITIONS)
    second = stage.member(library=library, client="second")
    stage.balanced(first, second, partitions=PARTITIONS)
    values = send(stage, 0, 5)
    eventually(lambda: {*first.values, *second.values} == values, "all records, at somebody")
    for member in (first, second):
        assert {partition for partition, _, _ in member.records} == set(member.assigned)
    second.close()
    stage.balanced(first, partitions=PARTITIONS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_restarted_member_continues_at_its_committed_offset(
    stage: GroupStage, library: str
) -> None:
    before = send(stage, 0, 5)
    first = stage.member(library=library)
    first.until(lambda member: set(member.values) == before, "all records")
    assert first.commit() == dict.fromkeys(range(PARTITIONS), 5)
    first.close()
    after = send(stage, 5, 3)
    second = stage.member(library=library)
    second.until(lambda member: set(member.values) >= after, "the new records")
    assert set(second.values) == after


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_dead_member_is_removed_from_its_group(stage: GroupStage, library: str) -> None:
    """The other members get its partitions when its session has ended."""
    first = stage.member(library=library, session_ms=2000)
    second = stage.member(library=library, session_ms=2000)
    stage.balanced(first, second, partitions=PARTITIONS)
    second.kill()
    stage.balanced(first, partitions=PARTITIONS)


def test_three_libraries_in_one_group(stage: GroupStage) -> None:
    """The group leader assigns partitions to all members; the broker only forwards them."""
    members = [
        stage.member(library=library, client=library, assignor="range") for library in LIBRARIES
    ]
    stage.balanced(*members, partitions=PARTITIONS)
    values = send(stage, 0, 3)
    eventually(lambda: {value for m in members for value in m.values} == values, "all records")


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_coordinators_broker_is_killed(stage: GroupStage, library: str) -> None:
    """Offsets stay committed, members stay members, and the group continues."""
    members = [stage.member(library=library, client=f"m{number}") for number in range(2)]
    stage.balanced(*members, partitions=PARTITIONS)
    sent = Sent(stage.cluster.bootstrap, stage.topic, {"enable.idempotence": True})
    for number in range(200):
        sent.send(b"before-%d" % number, number % PARTITIONS)
    sent.settle()
    eventually(lambda: sum(len(set(m.values)) for m in members) >= 200, "the first records")
    committed = {at: offset for member in members for at, offset in member.commit().items()}
    assert committed == dict.fromkeys(range(PARTITIONS), 50)
    coordinator = stage.coordinator()
    stage.cluster.kill(coordinator)
    try:
        assert eventually(lambda: stage.coordinator() != coordinator, "another coordinator")
        for number in range(200):
            sent.send(b"after-%d" % number, number % PARTITIONS)
        sent.settle()
        assert not sent.failed
        wanted = {value.decode() for value in sent.acknowledged}
        assert len(wanted) == 400
        eventually(
            lambda: {value for member in members for value in member.values} == wanted,
            "records of after the kill",
        )
        stage.balanced(*members, partitions=PARTITIONS)
        committed = {at: offset for member in members for at, offset in member.commit().items()}
        assert committed == dict.fromkeys(range(PARTITIONS), 100)
        # Nobody fell back behind what was committed before.
        for member in members:
            assert all(
                offset >= 50 for _, offset, value in member.records if value.startswith("after")
            )
    finally:
        stage.cluster.start_broker(coordinator)


@pytest.mark.parametrize("library", [CONFLUENT, AIOKAFKA, KAFKA_PYTHON])
def test_a_static_member_that_restarts_keeps_its_partitions(
    stage: GroupStage, library: str
) -> None:
    """It returns within its session, so the group does not rebalance."""
    first = stage.member(library=library, instance="one", session_ms=120_000)
    second = stage.member(library=library, instance="two", session_ms=120_000)
    stage.balanced(first, second, partitions=PARTITIONS)
    seen = list(first.assignments)
    had = second.assigned
    second.kill()
    again = stage.member(library=library, instance="two", session_ms=120_000)
    again.until(lambda member: member.assigned == had, "the partitions it had")
    values = send(stage, 0, 3)
    eventually(lambda: {*first.values, *again.values} == values, "all records")
    assert first.assignments == seen


def test_cooperative_members_keep_partitions_that_do_not_move(stage: GroupStage) -> None:
    first = stage.member(library=CONFLUENT, assignor="cooperative-sticky")
    stage.balanced(first, partitions=PARTITIONS)
    seen = len(first.assignments)
    second = stage.member(library=CONFLUENT, assignor="cooperative-sticky")
    stage.balanced(first, second, partitions=PARTITIONS)
    assert all(set(had) >= set(first.assigned) for had in first.assignments[seen - 1 :])
    values = send(stage, 0, 3)
    eventually(lambda: {*first.values, *second.values} == values, "all records")


def test_operators_see_and_change_groups(stage: GroupStage) -> None:
    admin = admin_client(stage.cluster.bootstrap)
    member = stage.member(client="seen")
    values = send(stage, 0, 4)
    member.until(lambda one: set(one.values) == values, "all records")
    member.commit()
    described = eventually(
        lambda: admin.describe_consumer_groups([stage.group])[stage.group].result(PATIENCE_S),
        "a description of the group",
    )
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "roundrobin"
    assert described.coordinator.id == stage.coordinator()
    [seen] = described.members
    assert (seen.client_id, seen.host) == ("seen", "/127.0.0.1")
    assert len(seen.assignment.topic_partitions) == PARTITIONS
    assert stage.group in listed_groups(admin)
    assert "NON_EMPTY_GROUP" in str(
        admin.delete_consumer_groups([stage.group])[stage.group].exception(PATIENCE_S)
    )
    member.close()

    def change(offset: int) -> bool:
        wanted = [TopicPartition(stage.topic, 0, offset)]
        asked = [ConsumerGroupTopicPartitions(stage.group, wanted)]
        admin.alter_consumer_group_offsets(asked)[stage.group].result(PATIENCE_S)
        return True

    # The request of the member that left may still be on its way.
    eventually(lambda: change(1), "the group has no members, and its offset is changed")
    asked = [ConsumerGroupTopicPartitions(stage.group)]
    told = eventually(
        lambda: admin.list_consumer_group_offsets(asked)[stage.group].result(PATIENCE_S),
        "the offsets of the group",
    )
    assert {at.partition: at.offset for at in told.topic_partitions} == {0: 1, 1: 4, 2: 4, 3: 4}
    again = stage.member()
    again.until(lambda one: len(one.values) == 3, "three records of one partition anew")
    assert {partition for partition, _, _ in again.records} == {0}
    again.close()

    def deleted() -> bool:
        admin.delete_consumer_groups([stage.group])[stage.group].result(PATIENCE_S)
        return True

    eventually(deleted, "the group has no members and is deleted")
    assert stage.group not in listed_groups(admin)


def listed_groups(admin: AdminClient) -> set[str]:
    """Return the groups that the coordinators list; ask again while one loads its log."""

    def look() -> set[str] | None:
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        return None if listed.errors else {one.group_id for one in listed.valid}

    return eventually(look, "a list without errors") or set()


def test_committed_offsets_survive_killed_coordinators(stage: GroupStage) -> None:
    """Three coordinators are killed while one consumer commits without a pause."""
    conf = {"group.id": stage.group, "socket.timeout.ms": 3000}
    killed: list[int] = []
    with consumer(stage.cluster.bootstrap, conf) as client:

        def committed() -> int:
            return committed_offsets(client, [TopicPartition(stage.topic, 0)])[0].offset

        for offset in range(1, 121):
            wanted = TopicPartition(stage.topic, 0, offset)
            if offset % 40 == 20:
                killed.append(stage.coordinator())
                stage.cluster.kill(killed[-1])
            commit_offsets(client, [wanted])
            assert committed() == offset
            if offset % 40 == 39:
                stage.cluster.start_broker(killed[-1])
    assert len(killed) == 3


def test_a_resumed_coordinator_returns_no_old_offsets(name: str) -> None:
    """A coordinator that hung and was replaced returns no old offset after it resumes."""
    with LocalCluster(settings={**SETTINGS, **QUICK_SESSIONS}) as cluster:
        topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3)
        with group_stage(cluster, "resumed", topic) as stage:
            assert_no_old_offsets(stage)


def assert_no_old_offsets(stage: GroupStage) -> None:
    conf = {"group.id": stage.group, "socket.timeout.ms": 1000}
    at = TopicPartition(stage.topic, 0)
    topics = [{"name": stage.topic, "partition_indexes": [0]}]
    asked = {"groups": [{"group_id": stage.group, "topics": topics}]}

    def told(connection: KafkaConnection) -> tuple[int, int]:
        [group] = connection.call(OFFSET_FETCH, asked, max_version=9)["groups"]
        offsets = [one["committed_offset"] for t in group["topics"] for one in t["partitions"]]
        return group["error_code"], offsets[0] if offsets else -1

    def connected() -> tuple[int, KafkaConnection] | None:
        """Connect to the coordinator, which has loaded the first offset."""
        broker = stage.coordinator()
        port = stage.cluster.port(broker)
        connection = KafkaConnection("127.0.0.1", port, timeout_s=PATIENCE_S)
        if told(connection) == (ErrorCode.NONE, 5):
            return broker, connection
        connection.close()
        return None

    with consumer(stage.cluster.bootstrap, conf) as client:
        commit_offsets(client, [TopicPartition(stage.topic, 0, 5)])
        hung, open_connection = eventually(connected, "the coordinator returns the offset")
        with open_connection as connection:
            stage.cluster.pause(hung)
            try:
                commit_offsets(client, [TopicPartition(stage.topic, 0, 6)])
            finally:
                stage.cluster.resume(hung)
            seen = {told(connection) for _ in range(50)}
        assert not {offset for _, offset in seen} - {6, -1}, seen
        assert {ErrorCode(error) for error, offset in seen if offset == -1} <= {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        }
        assert committed_offsets(client, [at])[0].offset == 6


def test_offsets_are_committed_by_default(stage: GroupStage) -> None:
    """Offsets are committed at intervals and at close, the default; topics match a pattern."""

    def read(count: int) -> list[bytes | None]:
        client = Consumer(
            {
                "bootstrap.servers": stage.cluster.bootstrap,
                "group.id": stage.group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        try:
            client.subscribe([f"^{stage.topic[:-1]}.$"])
            return [message.value() for message in take(client, count)]
        finally:
            client.close()

    before = send(stage, 0, 4)
    assert {str(value, "ascii") for value in read(len(before)) if value} == before
    after = send(stage, 4, 1)
    assert {str(value, "ascii") for value in read(len(after)) if value} == after


def test_offsets_outlive_the_cluster(name: str) -> None:
    """All brokers stop and start again: the group keeps its committed offsets."""
    with LocalCluster(settings=SETTINGS) as cluster:
        topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3)
        with group_stage(cluster, "lasting", topic) as stage:
            before = send(stage, 0, 5)
            first = stage.member()
            first.until(lambda member: set(member.values) == before, "all records")
            first.commit()
            first.close()
            for broker in cluster.ids:
                cluster.kill(broker)
            for broker in cluster.ids:
                cluster.start_broker(broker, wait=False)
            cluster.wait_ready()
            after = send(stage, 5, 1)
            second = stage.member()
            second.until(lambda member: set(member.values) >= after, "the new records")
            assert set(second.values) == after
