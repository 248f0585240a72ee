"""Leaders die or hang under load: each acknowledged record is in the log once, in order."""

import threading
import time
from collections.abc import Iterator

import pytest
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    QUICK_SESSIONS,
    SOON_S,
    Sent,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
    segment_bytes,
    send_all,
    state_of,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client.batch_sender import Produced, send_produce
from tidelog.shell.client.client_errors import Unresolved
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(settings=getattr(request, "param", LONG_SESSIONS)) as cluster:
        yield cluster


class Load:
    """An idempotent librdkafka producer that sends continuously."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        conf = {
            "enable.idempotence": True,
            "delivery.timeout.ms": 240_000,
            "linger.ms": 2,
            "batch.size": 50_000,
            # How long the producer waits for a broker that hangs.
            "request.timeout.ms": 1000,
            "socket.timeout.ms": 2000,
        }
        self.sent = Sent(cluster.bootstrap, topic, conf)
        self.count = 0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            for _ in range(20):
                self.sent.send(b"%d" % self.count)
                self.count += 1
            time.sleep(0.005)  # must stay: limits the rate of the load

    def acknowledged_more(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a record sent after this call is acknowledged."""
        first = b"%d" % (self.count + 20)
        eventually(
            lambda: first in self.sent.acknowledged or self.sent.failed, "a new record", timeout_s
        )
        assert not self.sent.failed, next(iter(self.sent.failed.items()))

    def finish(self) -> list[bytes]:
        """Stop, wait until all sent records are acknowledged, and return them."""
        self.stop()
        self.sent.settle()
        assert not self.sent.failed, next(iter(self.sent.failed.items()))
        return [b"%d" % number for number in range(self.count)]

    def stop(self) -> None:
        self._over = True
        self._thread.join()


@pytest.fixture
def load(cluster: LocalCluster, name: str) -> Iterator[Load]:
    make_topic(cluster.bootstrap, name, configs={"segment.bytes": "200000"})
    load = Load(cluster, name)
    yield load
    load.stop()


def test_kills_under_load(cluster: LocalCluster, name: str, load: Load) -> None:
    load.acknowledged_more()
    for _ in range(3):
        leader = leader_of(cluster, name)
        cluster.kill(leader)
        load.acknowledged_more(SOON_S)
        cluster.start_broker(leader)
        await_isr(cluster, name, cluster.ids)
    wanted = load.finish()
    assert read_values(cluster.bootstrap, name) == wanted
    assert_alike(cluster, name)


def test_all_brokers_are_killed_at_once(cluster: LocalCluster, name: str, load: Load) -> None:
    load.acknowledged_more()
    for _ in range(2):
        for broker in cluster.ids:
            cluster.kill(broker)
        for broker in cluster.ids:
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready()
        load.acknowledged_more()
    wanted = load.finish()
    assert read_values(cluster.bootstrap, name) == wanted
    await_isr(cluster, name, cluster.ids)
    assert_alike(cluster, name)


@pytest.mark.parametrize("cluster", [QUICK_SESSIONS], ids=["quick"], indirect=True)
def test_a_leader_that_hangs_is_replaced(cluster: LocalCluster, name: str, load: Load) -> None:
    load.acknowledged_more()
    paused, epoch = eventually(lambda: leader_and_epoch(cluster, name), "a leader and its epoch")
    request = RequestToPausedLeader(cluster, paused, name)
    cluster.pause(paused)
    others = [broker for broker in cluster.ids if broker != paused]
    eventually(
        lambda: cluster.metadata(others[0], [name]).topics[name][0][0] in others,
        "a new leader",
    )
    load.acknowledged_more()
    request.send()
    cluster.resume(paused)
    answer = request.response()
    assert answer is None or answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await_isr(cluster, name, cluster.ids)
    eventually(lambda: follows(cluster, paused, name, epoch), "the paused leader follows")
    load.acknowledged_more()
    wanted = load.finish()
    assert read_values(cluster.bootstrap, name) == wanted
    assert_alike(cluster, name)


def leader_and_epoch(cluster: LocalCluster, topic: str) -> tuple[int, int] | None:
    """Return the leader and its epoch, if all brokers are in the ISR."""
    leader = leader_of(cluster, topic)
    state = state_of(cluster, leader, topic)
    ready = state["role"] == "leader" and sorted(state["isr"]) == cluster.ids
    return (leader, state["leader_epoch"]) if ready else None


def follows(cluster: LocalCluster, broker: int, topic: str, old_epoch: int) -> bool:
    """Return whether the former leader of `old_epoch` follows, or was elected again since then."""
    state = state_of(cluster, broker, topic)
    newer = state["leader_epoch"] - old_epoch
    return bool((state["role"] == "follower" and newer > 0) or newer > 1)


class RequestToPausedLeader:
    """A client that is connected to a leader and sends a record while this leader is paused."""

    def __init__(self, cluster: LocalCluster, broker: int, topic: str) -> None:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            client.refresh([topic])
            self._topic = client.topic(topic)
        self._key = TopicPartition(topic, 0)
        self._connection = KafkaConnection("localhost", cluster.port(broker), timeout_s=PATIENCE_S)
        assert self._connection.versions, "agreed on before the leader is paused"

    def send(self) -> None:
        """Send with acks=1: a broker that still believed it leads would respond at once."""
        batch = encode_batch([Record(None, b"into the old epoch", 1, ())])
        topics, batches = {self._key.topic: self._topic}, {self._key: batch}
        self._pending = send_produce(self._connection, topics, batches, 1, 5000, PATIENCE_S)

    def response(self) -> Produced | None:
        with self._connection as connection:
            try:
                return self._pending.receive(connection)[self._key]
            except Unresolved:
                return None


def test_a_broker_that_is_cut_off_acknowledges_nothing(name: str) -> None:
    """The leader reaches the store but no broker: it stays a member but acknowledges nothing."""
    settings = {**QUICK_SESSIONS, "replica.lag.time.max.ms": "1500"}
    with LocalCluster(settings=settings, fault_switches=True) as cluster:
        make_topic(cluster.bootstrap, name)
        send_all(cluster.bootstrap, name, [b"before"], conf={"acks": "all"})
        leader = leader_of(cluster, name)
        load = Load(cluster, name)
        try:
            load.acknowledged_more()
            cluster.isolate(leader)
            load.acknowledged_more()
            cluster.heal(leader)
            await_isr(cluster, name, cluster.ids)
            wanted = load.finish()
        finally:
            load.stop()
        assert read_values(cluster.bootstrap, name) == [b"before", *wanted]
        assert_alike(cluster, name)


def assert_alike(cluster: LocalCluster, topic: str) -> None:
    """Stop all brokers cleanly and assert that all replicas hold the same bytes."""
    await_isr(cluster, topic, cluster.ids)
    for broker in cluster.ids:
        assert cluster.stop(broker) == 0
    first, *others = [segment_bytes(cluster, broker, topic) for broker in cluster.ids]
    assert first
    assert all(other == first for other in others)
