"""`tidelog broker drain` on real brokers: live and dead ones, racks, interruptions, throttles."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real_cluster import PATIENCE_S, consumer, eventually, make_topic, read_values, send_all, take

from tidelog.apps.changes import drain as drain_changes
from tidelog.apps.changes.drain import Drain
from tidelog.apps.changes.throttle import LISTS, RATES
from tidelog.apps.cli.main import cli
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import (
    broker_configs,
    registered_brokers,
    topic_configs,
)
from tidelog.shell.client.administration.partitions import alter_reassignments, list_reassignments
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

OFFSETS = "__consumer_offsets"
SETTINGS = {"offsets.topic.num.partitions": "4"}
RACKS = ("a", "b", "c", "c")


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(4, settings=SETTINGS, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Cluster]:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        yield client


def run(cluster: LocalCluster, *words: str, code: int = 0) -> Result:
    return invoke(cluster, "broker", "drain", *words, code=code)


def invoke(cluster: LocalCluster, *words: str, code: int = 0) -> Result:
    words = (*words, "-b", cluster.bootstrap, "--timeout", str(PATIENCE_S))
    found = CliRunner(env={"COLUMNS": "200"}).invoke(cli, list(words))
    assert found.exit_code == code, found.output
    return found


def drain(cluster: LocalCluster, *words: str, code: int = 0) -> dict[str, Any]:
    found = run(cluster, *words, "--format", "json", code=code)
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (code == 0)
    return document


def is_down(client: Cluster, broker: int) -> bool:
    known = registered_brokers(client).get(broker)
    return known is not None and known.fenced


def await_emptied(client: Cluster, broker: int, *left: str) -> None:
    """Wait until the broker that `client` uses knows that only these replicas are left."""
    eventually(lambda: replicas_on(client, broker) == [*left], "the broker is emptied")


def replicas_on(client: Cluster, broker: int) -> list[str]:
    return [
        f"{name}-{number}"
        for name, topic in client.refresh().topics.items()
        for number, each in topic.partitions.items()
        if broker in each.replicas or each.leader == broker
    ]


def create(client: Cluster, name: str, *assignment: list[int]) -> None:
    [made] = create_topics(client, [NewTopic(name, assignment=assignment)])
    assert made.outcome.holds, made
    bootstrap = ",".join(f"{host}:{port}" for host, port in client.bootstrap)
    make_topic(bootstrap, name)  # exists: waits until it is on all brokers


def use_a_group(cluster: LocalCluster, topic: str) -> None:
    group = {"group.id": "readers", "auto.offset.reset": "earliest"}
    with consumer(cluster.bootstrap, group) as reader:
        reader.subscribe([topic])
        (message,) = take(reader, 1)
        eventually(lambda: reader.commit(message=message, asynchronous=False), "committed")


def test_a_running_broker_is_emptied_then_unregistered_when_it_is_stopped(
    cluster: LocalCluster, client: Cluster
) -> None:
    make_topic(cluster.bootstrap, "orders", partitions=8, replicas=3)
    create(client, "single", [4], [4])
    values = [b"%d" % number for number in range(50)]
    send_all(cluster.bootstrap, "orders", values, conf={"acks": "all"})
    send_all(cluster.bootstrap, "single", values, conf={"acks": "all"})
    use_a_group(cluster, "orders")

    def planned() -> set[str]:
        plan = drain(cluster, "4", "--plan")
        return {f"{p['topic']}-{p['partition']}" for p in plan["partitions"]}

    eventually(lambda: any(n.startswith(OFFSETS) for n in replicas_on(client, 4)), "offsets")
    on = replicas_on(client, 4)
    eventually(lambda: planned() == set(on), "all of them are planned")
    assert sorted(replicas_on(client, 4)) == sorted(on), "--plan moves nothing"
    found = run(cluster, "4")
    assert f"broker 4 has no replicas left; partitions moved: {len(on)}" in found.stdout
    assert "still running and registered" in found.stdout
    await_emptied(client, 4)
    for each in client.metadata.topics["orders"].partitions.values():
        assert sorted(each.replicas) == [1, 2, 3], "one replica on each rack"
    assert read_values(cluster.bootstrap, "orders") == values
    assert read_values(cluster.bootstrap, "single") == values
    assert cluster.stop(4) == 0
    eventually(lambda: is_down(client, 4), "broker 4 is down")
    assert drain(cluster, "4")["unregistered"] is True
    eventually(lambda: 4 not in registered_brokers(client), "broker 4 is not registered")
    again = run(cluster, "4", code=1)
    assert "broker 4 is not registered and has no replicas; choose from: 1, 2, 3" in again.stderr


def test_a_dead_broker_is_drained_and_a_partition_without_a_leader_is_named(
    cluster: LocalCluster, client: Cluster
) -> None:
    make_topic(cluster.bootstrap, "orders", partitions=6, replicas=3)
    create(client, "lost", [3])
    values = [b"%d" % number for number in range(50)]
    send_all(cluster.bootstrap, "orders", values, conf={"acks": "all"})
    cluster.kill(3)
    eventually(lambda: is_down(client, 3), "broker 3 is down")
    eventually(lambda: client.refresh().topics["lost"].partitions[0].leader == -1, "no leader")
    found = run(cluster, "3", code=1)
    assert "lost-0 has no leader to copy from" in found.stdout
    await_emptied(client, 3, "lost-0")
    assert 3 in registered_brokers(client)
    invoke(cluster, "topic", "delete", "lost", "-y")
    await_emptied(client, 3)
    assert drain(cluster, "3")["unregistered"] is True
    assert read_values(cluster.bootstrap, "orders") == values
    await_emptied(client, 3)
    for each in client.refresh().topics["orders"].partitions.values():
        assert sorted(each.replicas) == [1, 2, 4]


def test_an_unregistered_broker_that_still_has_replicas_is_drained(
    cluster: LocalCluster, client: Cluster
) -> None:
    create(client, "orders", [4, 1], [1, 4])
    cluster.kill(4)
    invoke(cluster, "cluster", "unregister", "4")
    assert len(drain(cluster, "4")["partitions"]) == 2
    await_emptied(client, 4)


def test_a_running_broker_is_unregistered_on_request(
    cluster: LocalCluster, client: Cluster
) -> None:
    create(client, "orders", [4, 1])
    assert drain(cluster, "4", "--unregister")["unregistered"] is True
    eventually(lambda: 4 not in registered_brokers(client), "broker 4 is not registered")


@pytest.mark.ci
def test_an_interrupted_drain_is_continued(
    cluster: LocalCluster, client: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain is interrupted while some of 30 partitions move to a broker that hangs."""
    create(client, "orders", *[[4, 1]] * 30)
    monkeypatch.setattr(drain_changes, "AT_ONCE", 5)
    other, hung = sorted((2, 3), key=lambda each: each != client.refresh().controller_id)
    cluster.pause(hung)
    try:
        stopped = drain(cluster, "4", "--wait", "0.1", code=1)
        states = {each["state"] for each in stopped["partitions"]}
        assert states <= {"moved", "moving", "waiting"}
        assert "waiting" in states
        eventually(lambda: is_down(client, hung), "its session ended")
        drain(cluster, "4")
    finally:
        cluster.resume(hung)
    await_emptied(client, 4)
    for each in client.metadata.topics["orders"].partitions.values():
        assert sorted(each.replicas) == sorted((1, other))


def test_topics_created_meanwhile_are_moved_too(cluster: LocalCluster, client: Cluster) -> None:
    create(client, "orders", *[[4, 1]] * 4)
    work, made = Drain(client, 4), False

    def report(_progress: object) -> None:
        nonlocal made
        if not made:
            made = True
            with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as other:
                create(other, "late", [4, 2], [1, 4])

    found = work.run(PATIENCE_S * 4, report)
    assert {each.topic for each in found if each.state == "moved"} == {"orders", "late"}
    await_emptied(client, 4)


def test_a_drain_is_refused_if_too_few_brokers_are_left(
    cluster: LocalCluster, client: Cluster
) -> None:
    create(client, "orders", [1, 2, 3, 4])
    create(client, "other", [4, 1])
    for words in (("4",), ("4", "--plan")):
        found = run(cluster, *words, code=1)
        assert "there are 3 (1,2,3); affected: orders-0; start another broker" in found.stderr
    assert len(replicas_on(client, 4)) == 2


def test_a_reassignment_that_keeps_the_broker_is_not_disturbed(
    cluster: LocalCluster, client: Cluster
) -> None:
    create(client, "orders", [1, 4])
    key = TopicPartition("orders", 0)
    cluster.kill(2)
    eventually(lambda: is_down(client, 2), "broker 2 is down")
    client.refresh()
    assert alter_reassignments(client, {key: [2, 4]})[key].holds
    found = run(cluster, "4", code=1)
    assert "another reassignment of orders-0, which keeps broker 4, is in" in found.stderr
    assert list_reassignments(client)[key].target == [2, 4]


def throttles(client: Cluster, *topics: str) -> dict[str, Any]:
    """Return the throttles that are set, by topic and broker."""
    found: dict[str, Any] = dict(topic_configs(client, topics, LISTS))
    for broker in client.metadata.brokers:
        found[str(broker)] = broker_configs(client, broker, RATES)
    return {whose: configs for whose, configs in found.items() if any(configs.values())}


def test_a_throttled_drain_that_was_interrupted_leaves_no_throttle(
    cluster: LocalCluster, client: Cluster
) -> None:
    create(client, "orders", *[[4, 1]] * 4)
    values = [b"%d " % number + b"x" * 1000 for number in range(200)]
    send_all(cluster.bootstrap, "orders", values, conf={"acks": "all", "batch.num.messages": 1})
    stopped = Drain(client, 4, rate=1000).run(timeout_s=0)  # right after the moves began
    assert {each.state for each in stopped} == {"moving"}
    limited = {"orders", "1", "2", "3", "4"}
    eventually(lambda: throttles(client, "orders").keys() == limited, "all brokers know the limit")
    drain(cluster, "4", "--throttle", "10000000")
    await_emptied(client, 4)
    eventually(lambda: not throttles(client, "orders"), "no throttle is left")
