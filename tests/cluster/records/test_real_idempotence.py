"""Batches that are sent twice are written once, whatever happened in between."""

from collections.abc import Iterator

import pytest
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    Sent,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.client_errors import RETRIABLE
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Produced, init_producer_id, produce
from tidelog.shell.supervisor.cluster import LocalCluster

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FOREVER = {"retention.ms": "-1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        yield cluster


class Numbered:
    """A producer that sends batches with the sequence numbers that the test chooses."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            self.id, self.epoch = init_producer_id(client)

    def send(self, sequence: int, count: int = 1, *, epoch: int | None = None) -> Produced:
        batch = self.batch(sequence, count, epoch=epoch)
        return eventually(lambda: self._try(batch), f"an answer for sequence {sequence}")

    def batch(self, sequence: int, count: int, *, epoch: int | None = None) -> bytearray:
        stamp = Stamp(self.id, self.epoch if epoch is None else epoch, sequence)
        values = [b"%d" % number for number in range(sequence, sequence + count)]
        return encode_batch([Record(None, v, 1_000, ()) for v in values], producer=stamp)

    def _try(self, batch: bytearray) -> Produced | None:
        with Cluster(self.cluster.bootstrap) as client:
            client.refresh([self.topic])
            leader = client.broker(client.leader(self.topic, 0).leader)
            answer = produce(leader, client.topic(self.topic), 0, batch)
        return None if answer.error in RETRIABLE else answer


def placed(answer: Produced) -> tuple[int, int]:
    return answer.error, answer.base_offset


def test_a_batch_is_written_once(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    producer = Numbered(cluster, name)
    assert placed(producer.send(0, 3)) == (0, 0)
    assert placed(producer.send(3, 2)) == (0, 3)
    assert placed(producer.send(0, 3)) == (0, 0)
    assert placed(producer.send(3, 2)) == (0, 3)
    assert read_values(cluster.bootstrap, name) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_gap_is_refused(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    producer = Numbered(cluster, name)
    assert placed(producer.send(0)) == (0, 0)
    assert producer.send(2).error == OUT_OF_ORDER
    assert placed(producer.send(1)) == (0, 1)
    # Not the same batch although it begins alike: neither a retry nor the next one.
    assert producer.send(1, 2).error == OUT_OF_ORDER
    assert read_values(cluster.bootstrap, name) == [b"0", b"1"]


def test_an_older_epoch_is_fenced(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    producer = Numbered(cluster, name)
    assert placed(producer.send(0)) == (0, 0)
    assert placed(producer.send(0, epoch=1)) == (0, 1)
    assert producer.send(1, epoch=0).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(3, epoch=2).error == OUT_OF_ORDER
    assert read_values(cluster.bootstrap, name) == [b"0", b"0"]


def test_five_batches_are_remembered(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    producer = Numbered(cluster, name)
    for sequence in range(7):
        assert placed(producer.send(sequence)) == (0, sequence)
    for sequence in range(2, 7):
        assert placed(producer.send(sequence)) == (0, sequence)
    # Older ones are in the log as well, but nobody knows where: DUPLICATE or out of order,
    # never written again.
    for sequence in range(2):
        assert producer.send(sequence).error in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            OUT_OF_ORDER,
        )
    assert placed(producer.send(7)) == (0, 7)
    assert len(read_values(cluster.bootstrap, name)) == 8


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_sequence_numbers_are_known_after_a_restart(
    cluster: LocalCluster, name: str, way: str
) -> None:
    """A topic with one replica: its broker knows the producer after a kill or a stop."""
    make_topic(cluster.bootstrap, name, replicas=1, configs={**FOREVER, "min.insync.replicas": "1"})
    producer = Numbered(cluster, name)
    for sequence in range(6):
        assert placed(producer.send(sequence)) == (0, sequence)
    leader = leader_of(cluster, name)
    cluster.kill(leader) if way == "kill" else cluster.stop(leader)
    cluster.start_broker(leader)
    assert leader_of(cluster, name) == leader
    assert placed(producer.send(5)) == (0, 5)
    assert producer.send(7).error == OUT_OF_ORDER
    assert placed(producer.send(6)) == (0, 6)
    assert len(read_values(cluster.bootstrap, name)) == 7


def test_sequence_numbers_are_known_to_the_next_leader(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    producer = Numbered(cluster, name)
    for sequence in range(8):
        assert placed(producer.send(sequence)) == (0, sequence)
    for _ in range(2):
        leader = leader_of(cluster, name)
        cluster.kill(leader)
        for sequence in range(3, 8):
            assert placed(producer.send(sequence)) == (0, sequence)
        assert producer.send(9).error == OUT_OF_ORDER
        cluster.start_broker(leader)
        await_isr(cluster, name, cluster.ids)
    assert placed(producer.send(8)) == (0, 8)
    assert read_values(cluster.bootstrap, name) == [b"%d" % n for n in range(9)]


def test_a_retry_is_acknowledged_only_when_replicated(cluster: LocalCluster, name: str) -> None:
    """The response to a duplicate confirms that the batch is replicated, too."""
    make_topic(cluster.bootstrap, name, configs={**FOREVER, "min.insync.replicas": "3"})
    producer = Numbered(cluster, name)
    assert placed(producer.send(0)) == (0, 0)
    leader = leader_of(cluster, name)
    follower = next(broker for broker in cluster.ids if broker != leader)
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh([name])
        # The paused broker would not answer a new connection.
        client.broker(leader)
        topic = client.topic(name)
        batch = producer.batch(1, 1)

        def send_briefly() -> Produced:
            return produce(client.broker(leader), topic, 0, batch, timeout_ms=300)

        cluster.pause(follower)
        try:
            for _ in range(2):
                answer = eventually(send_briefly, "a response")
                assert answer.error == ErrorCode.REQUEST_TIMED_OUT
        finally:
            cluster.resume(follower)
        assert placed(produce(client.broker(leader), topic, 0, batch)) == (0, 1)
    assert read_values(cluster.bootstrap, name) == [b"0", b"1"]


def test_no_producer_id_is_given_twice(cluster: LocalCluster) -> None:
    """The ids stay unique after restarts of all brokers, clean or not."""
    given: list[int] = []

    def take_some() -> None:
        for broker in cluster.ids:
            with Cluster(f"localhost:{cluster.port(broker)}", timeout_s=PATIENCE_S) as client:
                given.extend(init_producer_id(client)[0] for _ in range(5))

    take_some()
    for way in (cluster.kill, cluster.stop):
        for broker in cluster.ids:
            way(broker)
        for broker in cluster.ids:
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready()
        take_some()
    assert len(set(given)) == len(given) == 45
    assert min(given) >= 0


def test_librdkafka_counts_over_kills(cluster: LocalCluster, name: str) -> None:
    """librdkafka's idempotent producer, with five batches in flight, while leaders are killed."""
    make_topic(cluster.bootstrap, name, configs=FOREVER)
    sent = Sent(cluster.bootstrap, name, {"enable.idempotence": True, "batch.num.messages": 20})
    wanted = [b"%d" % number for number in range(6000)]
    for number, value in enumerate(wanted):
        sent.send(value)
        if number % 2000 == 1000:
            leader = leader_of(cluster, name)
            cluster.kill(leader)
            cluster.start_broker(leader, wait=False)
    sent.settle()
    assert not sent.failed
    found = read_values(cluster.bootstrap, name)
    assert found == wanted
    assert [found.index(v) for v in wanted[:50]] == [sent.acknowledged[v] for v in wanted[:50]]
