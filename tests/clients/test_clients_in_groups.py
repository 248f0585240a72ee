"""Every client in groups: members join, leave and return, and the coordinator is killed."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from client_programs import CONFLUENT_FIRST, GO, JAVA, member_command
from group_member import CONFLUENT, KAFKA_PYTHON
from group_processes import GroupMember, GroupStage, group_stage
from real_cluster import Sent, await_members, consumer, eventually, make_topic
from real_transactions import SHOW_END, UNCOMMITTED, all_records

from tidelog.core.groups.records import GroupKey, decode_group_value, decode_key
from tidelog.shell.supervisor.cluster import LocalCluster

PARTITIONS = 6
SETTLED_S = 2.0
SESSION_MS = 60_000
"""No session ends in these tests, also if a member gets no CPU for long."""
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 4
COOPERATIVE = (
    CONFLUENT,
    KAFKA_PYTHON,
    pytest.param(JAVA, marks=pytest.mark.slow),
    pytest.param(GO, marks=pytest.mark.slow),
)
KNOW_FENCING = COOPERATIVE
"""aiokafka has no name for that error, and joins again and again."""


@pytest.fixture
def stage(cluster: LocalCluster, name: str) -> Iterator[GroupStage]:
    topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3)
    with group_stage(cluster, f"group-of-{name}", topic) as stage:
        yield stage
        for broker in cluster.ids:
            if not cluster.is_running(broker):
                cluster.start_broker(broker)
        await_members(cluster)


def member(stage: GroupStage, client: str, number: int, **more: Any) -> GroupMember:
    conf = {"library": client, "client": f"member-{number}", "session_ms": SESSION_MS}
    return stage.member(command=member_command(client), **conf, **more)


def send(sent: Sent, first: int, count: int) -> None:
    for number in range(first, first + count):
        sent.send(b"%d" % number, number % PARTITIONS)
    sent.settle()
    assert not sent.failed


def seen(*members: GroupMember) -> set[tuple[int, int, str]]:
    return {record for member in members for record in member.records}


def all_sent(sent: Sent) -> set[tuple[int, int, str]]:
    return {
        (int(value) % PARTITIONS, offset, value.decode())
        for value, offset in sent.acknowledged.items()
    }


def commit(*members: GroupMember) -> dict[int, int]:
    """Return the group's committed offsets; no member commits records that it has not read.

    A commit may fail during a rebalance, or while the coordinator changes: then repeat this.
    """
    committed: dict[int, int] = {}
    read: dict[int, int] = {}
    for partition, offset, _ in seen(*members):
        read[partition] = max(read.get(partition, 0), offset + 1)
    for one in members:
        committed.update(commit_once(one))
    assert all(offset <= read.get(partition, 0) for partition, offset in committed.items())
    return committed


def commit_once(one: GroupMember) -> dict[int, int]:
    """Return the committed offsets of the member's partitions; nothing if the commit failed."""
    commits, errors = len(one.commits), len(one.errors)
    one.tell("commit")
    one.until(lambda m: len(m.commits) > commits or len(m.errors) > errors, "an answer")
    return one.commits[-1] if len(one.commits) > commits else {}


@pytest.mark.parametrize("client", CONFLUENT_FIRST)
def test_a_group_survives_a_join_a_leave_and_a_killed_coordinator(
    stage: GroupStage, client: str
) -> None:
    """A member joins, one leaves, the coordinator is killed; a later member continues."""
    sent = Sent(stage.cluster.bootstrap, stage.topic, {"enable.idempotence": True})
    first, second = (member(stage, client, number) for number in range(2))
    stage.balanced(first, second, partitions=PARTITIONS)
    send(sent, 0, 300)
    eventually(lambda: seen(first, second) == all_sent(sent), "the first records")
    eventually(lambda: sum(commit(first, second).values()) == 300, "they are committed")
    third = member(stage, client, 2)
    stage.balanced(first, second, third, partitions=PARTITIONS)
    first.close()
    # A coordinator that is killed before it has written this would be followed by one for which the
    # first member is in the group until its session ends.
    stage.balanced(second, third, partitions=PARTITIONS)
    dead = stage.coordinator()
    stage.cluster.kill(dead)
    send(sent, 300, 300)
    eventually(lambda: seen(first, second, third) == all_sent(sent), "those of after the kill")
    stage.balanced(second, third, partitions=PARTITIONS)
    stage.cluster.start_broker(dead)
    assert all(int(value) >= 300 for _, _, value in third.records), "read, though committed"
    # A partition that changed hands again is read once more from what was committed of it.
    eventually(lambda: sum(commit(second, third).values()) == 600, "all is committed")
    second.close()
    third.close()
    send(sent, 600, 30)
    fourth = member(stage, client, 3)
    fourth.until(lambda one: len(one.records) >= 30, "what came meanwhile")
    assert seen(fourth) == {record for record in all_sent(sent) if int(record[2]) >= 600}


def generations(stage: GroupStage) -> list[int]:
    """Return all generations of the group, from its records, the newest last."""
    found = []
    conf = {"isolation.level": UNCOMMITTED, **SHOW_END}
    with consumer(stage.cluster.bootstrap, conf) as client:
        for partition in range(OFFSETS_PARTITIONS):
            # Nothing was compacted away in the short life of this cluster's open segments.
            for message in all_records(client, OFFSETS_TOPIC, partition):
                key, value = message.key(), message.value()
                if key and value and decode_key(key) == GroupKey(stage.group):
                    found.append(decode_group_value(value).generation)
    return found


@pytest.mark.parametrize("client", CONFLUENT_FIRST)
def test_a_static_member_that_restarts_causes_no_rebalance(stage: GroupStage, client: str) -> None:
    first, second = static_members(stage, client)
    before = settled(stage)
    had, told = second.assigned, list(first.assignments)
    second.kill()
    again = member(stage, client, 1, instance="static-1")
    again.until(lambda one: one.assigned == had, "the partitions it had")
    assert generations(stage)[-1] == before
    assert first.assignments == told


@pytest.mark.parametrize("client", KNOW_FENCING)
def test_of_two_static_members_with_one_name_the_first_is_fenced(
    stage: GroupStage, client: str
) -> None:
    first, second = static_members(stage, client)
    before = settled(stage)
    had, told = second.assigned, list(first.assignments)
    twin = member(stage, client, 2, instance="static-1")
    twin.until(lambda one: one.assigned == had, "the partitions of the one before it")
    with suppress(BrokenPipeError):  # some end as soon as they know
        second.tell("commit")
    eventually(lambda: "fenced" in second.trouble.lower(), "a member that is told that it is out")
    assert generations(stage)[-1] == before
    assert first.assignments == told


def settled(stage: GroupStage) -> int:
    """Return the generation once no member rejoins; some rejoin when they learn of the topic."""
    seen: list[int] = [-1]

    def look() -> bool:
        seen.append(generations(stage)[-1])
        time.sleep(SETTLED_S)  # must stay: a member that does not rejoin leaves no trace
        return seen[-1] == seen[-2]

    eventually(look, "a group that stays as it is")
    return seen[-1]


def static_members(stage: GroupStage, client: str) -> tuple[GroupMember, GroupMember]:
    """Start two static members; the first one leads the group.

    kafka-python joins once more if its join took longer than one poll. A rebalance follows only if
    it leads the group, so the member that a test replaces must not lead it.
    """
    first = member(stage, client, 0, instance="static-0")
    stage.balanced(first, partitions=PARTITIONS)
    second = member(stage, client, 1, instance="static-1")
    stage.balanced(first, second, partitions=PARTITIONS)
    return first, second


@pytest.mark.parametrize("client", COOPERATIVE)
def test_cooperative_members_keep_partitions_that_do_not_move(
    stage: GroupStage, client: str
) -> None:
    first = member(stage, client, 0, assignor="cooperative-sticky")
    stage.balanced(first, partitions=PARTITIONS)
    before = len(first.assignments)
    second = member(stage, client, 1, assignor="cooperative-sticky")
    stage.balanced(first, second, partitions=PARTITIONS)
    # It never gave all away, to get some of it back.
    assert all(set(had) >= set(first.assigned) for had in first.assignments[before - 1 :])
    sent = Sent(stage.cluster.bootstrap, stage.topic, {"enable.idempotence": True})
    send(sent, 0, 60)
    eventually(lambda: seen(first, second) == all_sent(sent), "all records")
