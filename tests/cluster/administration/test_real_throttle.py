"""Replication throttles (KIP-73) on real brokers.

The rate of 100 bytes a second would take half an hour for the records of a test, and every wait
here is far shorter: a move that is still in progress was throttled. A slow machine can't make
these tests fail.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from real_cluster import (
    PATIENCE_S,
    await_isr,
    eventually,
    make_topic,
    read_values,
    segment_bytes,
    send_all,
)

from tidelog.apps.changes.throttle import LISTS, RATES
from tidelog.apps.cli.main import cli
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    broker_configs,
    topic_configs,
)
from tidelog.shell.client.administration.configs import (
    DELETE,
    SET,
    ConfigChange,
    Resource,
    alter_configs,
)
from tidelog.shell.client.administration.partitions import alter_reassignments, list_reassignments
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

SLOW, FAST = 100, 100_000_000
ONE_BY_ONE = {"acks": "all", "batch.num.messages": 1}
"""One record a batch: a response has at least one batch, whatever the throttle."""
FROM, TO = [1, 2], [1, 3]


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture
def client(brokers: LocalCluster) -> Iterator[Cluster]:
    with Cluster(brokers.bootstrap, timeout_s=PATIENCE_S) as client:
        yield client


def values(first: int) -> list[bytes]:
    return [b"%d " % number + b"x" * 1000 for number in range(first, first + 200)]


def make(brokers: LocalCluster, client: Cluster, name: str) -> None:
    """Create a topic on brokers 1 and 2 with 200 KB of records."""
    [made] = create_topics(client, [NewTopic(name, assignment=(FROM,))])
    assert made.outcome.holds, made
    make_topic(brokers.bootstrap, name)  # exists: waits until it is on all brokers
    send_all(brokers.bootstrap, name, values(0), conf=ONE_BY_ONE)


def execute(brokers: LocalCluster, plan: str, *words: str) -> dict[str, Any]:
    where = ("-b", brokers.bootstrap, "--timeout", str(PATIENCE_S), "--format", "json")
    words = ("reassign", plan, "--execute", *words, *where)
    found = CliRunner().invoke(cli, list(words))
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def assert_only_the_new_replica_waits(brokers: LocalCluster, client: Cluster, name: str) -> None:
    """Write as much again with acks=all, which needs the in-sync follower on broker 2."""
    key = TopicPartition(name, 0)
    eventually(lambda: segment_bytes(brokers, 3, name), "the new replica copies records")
    send_all(brokers.bootstrap, name, values(200), conf=ONE_BY_ONE)
    await_isr(brokers, name, FROM)
    assert list_reassignments(client)[key].adding == [3]
    whole = segment_bytes(brokers, 1, name)
    eventually(lambda: segment_bytes(brokers, 2, name) == whole, "broker 2 has everything")
    some = segment_bytes(brokers, 3, name)
    assert whole.startswith(some)
    assert len(some) < len(whole) // 2


def assert_moved(brokers: LocalCluster, client: Cluster, name: str) -> None:
    eventually(lambda: not list_reassignments(client), "the move ends")
    await_isr(brokers, name, TO)
    assert read_values(brokers.bootstrap, name) == values(0) + values(200)
    whole = segment_bytes(brokers, 1, name)
    eventually(lambda: segment_bytes(brokers, 3, name) == whole, "both logs are equal")


def limits(client: Cluster, name: str) -> dict[str, str]:
    """Return all throttles that are set."""
    found = topic_configs(client, [name], LISTS)[name]
    for broker in (1, 2, 3):
        for key, value in broker_configs(client, broker, RATES).items():
            found[f"{key} of {broker}"] = value
    return {key: value for key, value in found.items() if value}


def test_reassign_sets_a_throttle_changes_it_and_removes_it(
    brokers: LocalCluster, client: Cluster, name: str, tmp_path: Any
) -> None:
    make(brokers, client, name)
    plan = tmp_path / "plan.json"
    entry = {"topic": name, "partition": 0, "replicas": TO}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    execute(brokers, str(plan), "--throttle", str(SLOW))
    assert_only_the_new_replica_waits(brokers, client, name)
    wanted = {LISTS[0]: "0:1,0:2", LISTS[1]: "0:3"}
    wanted |= {f"{rate} of {broker}": str(SLOW) for rate in RATES for broker in (1, 2, 3)}
    eventually(lambda: limits(client, name) == wanted, "the throttles are set")
    execute(brokers, str(plan), "--throttle", str(FAST), "--wait", str(PATIENCE_S * 2))
    assert_moved(brokers, client, name)
    eventually(lambda: not limits(client, name), "no throttle is left")


SIDES = {"leader": (0, "0:1"), "follower": (1, "0:3")}


@pytest.mark.parametrize(("side", "throttled"), SIDES.values(), ids=SIDES)
def test_one_side_is_throttled_until_its_rate_is_deleted(
    brokers: LocalCluster, client: Cluster, name: str, side: int, throttled: str
) -> None:
    make(brokers, client, name)
    topic, broker = Resource(TOPIC_RESOURCE, name), throttled.partition(":")[2]
    whose = Resource(BROKER_RESOURCE, broker)
    assert alter_configs(client, topic, [ConfigChange(SET, LISTS[side], throttled)]).holds
    assert alter_configs(client, whose, [ConfigChange(SET, RATES[side], str(SLOW))]).holds
    both = (LISTS[side], f"{RATES[side]} of {broker}")
    eventually(lambda: tuple(limits(client, name)) == both, "the broker knows the throttle")
    key = TopicPartition(name, 0)
    assert alter_reassignments(client, {key: TO})[key].holds
    assert_only_the_new_replica_waits(brokers, client, name)
    assert alter_configs(client, whose, [ConfigChange(DELETE, RATES[side])]).holds
    assert_moved(brokers, client, name)
