"""Every client in transactions: commit, abort, fencing, time-outs, and copying exactly once."""

from typing import Any

import pytest
from client_programs import (
    CONFLUENT_FIRST,
    JAVA_3,
    TRANSACTIONAL_CLIENTS,
    Program,
    program,
    read_back,
)
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from real_cluster import (
    PATIENCE_S,
    Sent,
    admin_client,
    await_members,
    eventually,
    leader_of,
    make_topic,
)
from real_transactions import (
    COMMITTED,
    RECOVERY_S,
    TIMEOUT_MS,
    UNCOMMITTED,
    await_stable,
    coordinator_of,
    stable_end,
    values_of,
)

from tidelog.shell.supervisor.cluster import LocalCluster

FIRST_OF_ALL = (*CONFLUENT_FIRST, pytest.param(JAVA_3, marks=pytest.mark.slow))
PARTITIONS, RECORDS = 3, 600
"""Records in each of three rounds."""
EXPIRED_MS = 10_000
"""The client must have sent its record by then."""
SESSION_MS = 15_000
"""When a killed member leaves the group. A member that only got no CPU must stay: transactions of
aiokafka do not notice that their member has left, and would copy records twice."""


def transact(
    cluster: LocalCluster, client: str, topic: str, steps: list[list[Any]], **more: Any
) -> Any:
    conf = {"id": f"id-of-{topic}", "timeout_ms": TIMEOUT_MS, **more}
    return program(
        client, "transact", bootstrap=cluster.bootstrap, topic=topic, steps=steps, **conf
    )


def all_done(running: Program) -> None:
    for line in running.lines():
        assert "failed" not in line, line


def failure(running: Program) -> dict[str, Any]:
    return next(line for line in running.lines() if "failed" in line)


def sending(*values: str, partition: int = 0) -> list[list[Any]]:
    return [["begin"], *(["send", partition, value] for value in values)]


@pytest.mark.parametrize("client", TRANSACTIONAL_CLIENTS)
def test_committed_records_are_read_and_aborted_records_are_not(
    cluster: LocalCluster, name: str, client: str
) -> None:
    topic = make_topic(cluster.bootstrap, name, 2, 3)
    steps = [
        ["init"],
        *sending("a", "b"),
        ["send", 1, "other"],
        ["commit"],
        *sending("lost"),
        ["abort"],
        *sending("c"),
        ["commit"],
        *sending("left out"),
        ["abort"],
    ]
    with transact(cluster, client, topic, steps) as running:
        all_done(running)
    for partition in (0, 1):
        await_stable(cluster.bootstrap, topic, partition)

    def read(isolation: str, count: int) -> list[tuple[int, int, str]]:
        conf = {"topic": topic, "partitions": 2, "count": count, "isolation": isolation}
        found = read_back(client, bootstrap=cluster.bootstrap, **conf)
        return sorted((one["partition"], one["offset"], one["value"]) for one in found)

    committed = [(0, 0, "a"), (0, 1, "b"), (0, 5, "c"), (1, 0, "other")]
    assert read(COMMITTED, len(committed)) == committed
    every = sorted([*committed, (0, 3, "lost"), (0, 7, "left out")])
    assert read(UNCOMMITTED, len(every)) == every


@pytest.mark.parametrize("client", FIRST_OF_ALL)
def test_a_second_producer_fences_the_first(cluster: LocalCluster, name: str, client: str) -> None:
    """What the first left open is aborted, and it can neither send more nor commit."""
    topic = make_topic(cluster.bootstrap, name, 1, 3)
    steps = [["init"], *sending("open"), ["pause"], ["send", 0, "late"], ["commit"]]
    with transact(cluster, client, topic, steps) as zombie:
        zombie.until_paused()
        assert values_of(cluster.bootstrap, topic, isolation=UNCOMMITTED) == [b"open"]
        assert stable_end(cluster.bootstrap, topic) == 0
        steps = [["init"], *sending("new"), ["commit"]]
        with transact(cluster, client, topic, steps) as running:
            all_done(running)
        zombie.proceed()
        error = failure(zombie)["error"].lower()
    assert "fenced" in error or "epoch" in error, error
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"new"]
    assert b"late" not in values_of(cluster.bootstrap, topic, isolation=UNCOMMITTED)


@pytest.mark.parametrize("client", FIRST_OF_ALL)
def test_a_transaction_that_takes_too_long_is_aborted(
    cluster: LocalCluster, name: str, client: str
) -> None:
    topic = make_topic(cluster.bootstrap, name, 1, 3)
    steps = [["init"], *sending("slow"), ["pause"], ["commit"]]
    with transact(cluster, client, topic, steps, timeout_ms=EXPIRED_MS) as running:
        running.until_paused()
        await_stable(cluster.bootstrap, topic)
        running.proceed()
        assert failure(running)["failed"] == "commit"
    assert values_of(cluster.bootstrap, topic) == []
    assert values_of(cluster.bootstrap, topic, isolation=UNCOMMITTED) == [b"slow"]


SURVIVE_BROKERS = [client for client in TRANSACTIONAL_CLIENTS if client != "kafka-python"]
"""kafka-python sometimes sends nothing any more after a broker was killed, in 3 of 17 runs."""


@pytest.mark.ci
@pytest.mark.parametrize("client", SURVIVE_BROKERS)
def test_records_are_copied_exactly_once_when_client_and_brokers_are_killed(
    cluster: LocalCluster, name: str, client: str
) -> None:
    """The client commits the group's offsets in its transactions, and aborts every fifth."""
    source = make_topic(cluster.bootstrap, f"{name}-source", PARTITIONS, 3)
    topic = make_topic(cluster.bootstrap, name, PARTITIONS, 3)
    copied = Sent(cluster.bootstrap, source, {"enable.idempotence": True})
    conf: dict[str, Any] = {
        "bootstrap": cluster.bootstrap,
        "source": source,
        "topic": topic,
        "id": f"id-of-{name}",
        "group": f"group-of-{name}",
        "timeout_ms": TIMEOUT_MS,
        "session_ms": SESSION_MS,
        "abort_every": 5,
    }

    def send_more() -> None:
        for number in range(len(copied.acknowledged), len(copied.acknowledged) + RECORDS):
            copied.send(b"%d" % number, number % PARTITIONS)
        copied.settle()

    def all_copied(running: Program) -> bool:
        assert running.process.poll() is None, running.last_words
        return committed_offsets(admin, conf["group"]) == len(copied.acknowledged)

    admin = admin_client(cluster.bootstrap)
    send_more()
    with program(client, "transform", **conf) as running:
        assert until_copied(running, RECORDS // 4) < RECORDS
    # It was killed on the way, possibly in a transaction.
    dead = (coordinator_of(cluster, conf["id"]), leader_of(cluster, topic))
    with program(client, "transform", **conf) as running:
        for broker in dead:
            send_more()
            cluster.kill(broker)
            try:
                eventually(lambda: all_copied(running), "all records are copied", RECOVERY_S)
            finally:
                cluster.start_broker(broker)
                await_members(cluster)
    assert not copied.failed
    for partition in range(PARTITIONS):
        await_stable(cluster.bootstrap, topic, partition)
        sent = [b"%d" % number for number in range(partition, 3 * RECORDS, PARTITIONS)]
        assert values_of(cluster.bootstrap, topic, partition) == sent


def until_copied(running: Program, count: int) -> int:
    """Wait until the program has copied `count` records, and aborted a transaction."""
    copied, aborted = 0, False
    while copied < count or not aborted:
        line = running.line()
        assert line is not None, running.last_words
        copied += line.get("committed", 0)
        aborted = aborted or "aborted" in line
    return copied


def committed_offsets(client: AdminClient, group: str) -> int:
    """Return the sum of the group's committed offsets."""
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(PATIENCE_S).topic_partitions
    return sum(one.offset for one in found or ())
