"""Three brokers while their etcd has no quorum for longer than their sessions, and afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import pytest
from real_cluster import PATIENCE_S, Sent, await_isr, eventually, make_topic, read_values, send_all
from real_etcd import EtcdCluster, running_etcd

from tidelog.core.api_table import CREATE_TOPICS
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    decode_partition,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.client_errors import RETRIABLE
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.producer import produce
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.gateway import Gateway, Nodes
from tidelog.shell.store.store_backend import NO_ACCESS
from tidelog.shell.supervisor.cluster import LocalCluster

SESSION_S = 12.0
"""Long enough that sessions do not end because a broker gets no CPU after etcd's return."""
SETTINGS = {
    "broker.session.timeout.ms": "12000",
    "broker.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
AWAY_S = SESSION_S + 2.0
PROMPT_S = 2.0
"""A request that waited for the store would be answered after three seconds at the earliest."""
PROMPT_ATTEMPTS = 20
ALL = {"acks": "all"}
VALUES = [b"%d" % number for number in range(100)]
PARTITIONS = 3
TRANSACTIONS_MAX = 60
"""In the store, if all sessions ended; 20 were seen, for three brokers and four partitions."""
ELECTIONS_MAX = 6
"""Of a partition, if all sessions ended: each of three brokers is fenced and unfenced once."""


class Stored(NamedTuple):
    """What the store has."""

    transactions: int
    """The number of transactions so far."""
    partitions: dict[PartitionKey, PartitionRegistration]


def stored(url: str) -> Stored:
    with closing(Gateway(Nodes(parse_address(url, NO_ACCESS)))) as gateway:
        store = EtcdStore(gateway)
        kvs = store.read(time.monotonic() + 20.0).snapshot.kvs
        number = store.history(time.monotonic() + 20.0).number
    found = [(keys.parse_partition(kv.key), kv.value) for kv in kvs]
    parsed = [(PartitionKey(*key), value) for key, value in found if key is not None]
    return Stored(number, {key: decode_partition(key, value) for key, value in parsed})


@contextmanager
def etcd_without_quorum(etcd: EtcdCluster, frozen: str) -> Iterator[None]:
    """Freeze two nodes of three, with or without etcd's leader."""
    leader = etcd.leader()
    followers = [node for node in etcd.nodes if node is not leader]
    away = followers if frozen == "followers" else [leader, followers[0]]
    try:
        for node in away:
            node.freeze()
        yield
    finally:
        for node in away:
            node.thaw()
    for node in etcd.nodes:
        etcd.wait_for(node)


def active(cluster: LocalCluster) -> list[bool]:
    """Whether each broker has a valid session."""
    return eventually(
        lambda: [cluster.describe_state(broker, "kept")["acting"] for broker in cluster.ids],
        "the states of all brokers",
    )


def promptly(ask: Callable[[], int]) -> int:
    """The error of a request that is answered at once; a busy machine may delay some of them."""
    for _ in range(PROMPT_ATTEMPTS):
        began = time.monotonic()
        error = ask()
        if time.monotonic() - began < PROMPT_S:
            return error
    raise AssertionError(f"no response within {PROMPT_S:g} s")


def error_of_produce(cluster: LocalCluster, topic: str, acks: int) -> int:
    """The error of one Produce request to the leader."""
    batch = encode_batch([Record(None, b"refused", int(time.time() * 1000), ())])
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh([topic])
        leader = client.broker(client.leader(topic, 0).leader)
        assert leader.versions
        return promptly(lambda: produce(leader, client.topic(topic), 0, batch, acks).error)


def error_of_create_topics(cluster: LocalCluster, broker: int) -> int:
    """The error of one CreateTopics request."""
    topic = {"name": "refused", "num_partitions": 1, "replication_factor": 1}
    request = {
        "topics": [{**topic, "assignments": [], "configs": []}],
        "timeout_ms": 30_000,
        "validate_only": False,
    }
    with KafkaConnection("localhost", cluster.port(broker), timeout_s=PATIENCE_S) as connection:
        assert connection.versions

        def ask() -> int:
            [answer] = connection.call(CREATE_TOPICS, request)["topics"]
            return int(answer["error_code"])

        return promptly(ask)


def assert_refused(cluster: LocalCluster) -> None:
    """Assert that all that needs the store, or could be lost without it, is refused at once."""
    errors = {
        error_of_produce(cluster, "kept", acks=1),
        error_of_produce(cluster, "one-replica", acks=1),
        error_of_produce(cluster, "one-replica", acks=-1),
    }
    assert errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    errors |= {error_of_create_topics(cluster, broker) for broker in cluster.ids}
    assert errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER}
    assert errors <= RETRIABLE


@pytest.mark.ci
@pytest.mark.parametrize("frozen", ["followers", "leader and a follower"])
def test_leaders_serve_acks_all_while_etcd_has_no_quorum(frozen: str) -> None:
    """Their followers fetch; all else is refused, and nothing is elected meanwhile.

    Afterwards the sessions are valid again, without a change in the store. The exception is a
    leader of etcd that was frozen and resumes as leader: it ends all sessions that ran out on its
    clock. Then each partition is elected again, a few times at most.
    """
    with (
        running_etcd(3) as etcd,
        LocalCluster(store=etcd.url("brokers"), settings=SETTINGS) as cluster,
    ):
        make_topic(cluster.bootstrap, "kept", PARTITIONS)
        make_topic(cluster.bootstrap, "one-replica", replicas=1)
        send_all(cluster.bootstrap, "kept", VALUES, conf=ALL)
        sent = Sent(cluster.bootstrap, "kept", {**ALL, "enable.idempotence": True})
        sent.send(b"before")
        sent.settle()
        values = [*VALUES, b"before"]
        assert read_values(cluster.bootstrap, "kept") == values
        # The consumer looks for its coordinator, so that __consumer_offsets is created.
        url = etcd.url("brokers")
        eventually(lambda: len(stored(url).partitions) == PARTITIONS + 2, "all topics are stored")
        before = stored(url)
        with etcd_without_quorum(etcd, frozen):
            began = time.monotonic()
            eventually(lambda: not any(active(cluster)), "no session is valid")
            assert_refused(cluster)
            while time.monotonic() < began + AWAY_S:
                values.append(b"away %d" % len(values))
                sent.send(values[-1])
                sent.settle()
            assert not sent.failed
            assert not any(active(cluster))
            assert_refused(cluster)
            assert read_values(cluster.bootstrap, "kept") == values
        eventually(lambda: all(active(cluster)), "all sessions are valid")
        after = stored(url)
        if frozen == "followers":
            assert after == before
        # A controller acts again, and what it does after the return does not go on for ever.
        make_topic(cluster.bootstrap, "made-afterwards")
        send_all(cluster.bootstrap, "one-replica", VALUES, conf=ALL)
        send_all(cluster.bootstrap, "kept", VALUES, conf=ALL)
        for partition in range(PARTITIONS):
            await_isr(cluster, "kept", cluster.ids, partition)
        assert read_values(cluster.bootstrap, "kept") == [*values, *VALUES]
        after = stored(url)
    assert after.transactions - before.transactions < TRANSACTIONS_MAX
    assert len(after.partitions) == len(before.partitions) + 1
    for key, registration in before.partitions.items():
        if frozen == "followers":
            assert after.partitions[key] == registration
        else:
            elections = after.partitions[key].leader_epoch - registration.leader_epoch
            assert elections <= ELECTIONS_MAX
