"""Transactions on real brokers: brokers are killed, restarted, paused and relieved of replicas.

Whatever happens, a read-committed reader reads all records of a committed transaction, once and in
order, and none of an aborted or an open one.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as At
from real_cluster import (
    LONG_SESSIONS,
    PATIENCE_S,
    admin_client,
    await_isr,
    await_members,
    eventually,
    isr_of,
    leader_of,
    make_topic,
    partition_dir,
    segment_bytes,
)
from real_transactions import (
    FEW_INTERNAL_PARTITIONS,
    UNCOMMITTED,
    TransactionalProducer,
    await_stable,
    await_state,
    coordinator_of,
    is_stable,
    stable_end,
    values_of,
)

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC, partition_for
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.admin import await_leaders
from tidelog.shell.client.administration.partitions import alter_reassignments
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci

SETTINGS = {
    **FEW_INTERNAL_PARTITIONS,
    "min.insync.replicas": "2",
    "log.cleaner.backoff.ms": "100",
}
SMALL_SEGMENTS = {"segment.bytes": "3000"}
FILL = b"x" * 500


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={**SETTINGS, **LONG_SESSIONS}) as cluster:
        yield cluster


def make_placed(cluster: LocalCluster, topic: str, *replicas: int, unclean: bool = False) -> str:
    """Create a topic with one partition on these brokers."""
    configs = {"min.insync.replicas": "1"}
    if unclean:
        configs["unclean.leader.election.enable"] = "true"
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        placed = NewTopic(topic, assignment=[replicas], configs=configs)

        def create() -> bool:
            [created] = create_topics(client, [placed])
            return created.outcome.holds or created.outcome.error == ErrorCode.TOPIC_ALREADY_EXISTS

        eventually(create, f"topic {topic} is created")
        await_leaders(client, topic)
    return topic


def assert_same_log_everywhere(cluster: LocalCluster, topic: str) -> None:
    """All replicas must have the same segments and the same lists of aborted transactions."""
    await_isr(cluster, topic, cluster.ids)
    first, *others = cluster.ids
    for other in others:
        await_same_log(cluster, first, other, topic)


def await_same_log(cluster: LocalCluster, one: int, other: int, topic: str) -> None:
    """Wait until two replicas are equal: a follower may be in the ISR and some records behind."""

    def is_same() -> bool:
        return segment_bytes(cluster, one, topic) == segment_bytes(cluster, other, topic) and (
            aborted(cluster, one, topic) == aborted(cluster, other, topic)
        )

    eventually(is_same, f"replicas {one} and {other} of {topic} are equal")


def aborted(cluster: LocalCluster, broker: int, topic: str) -> dict[str, bytes]:
    """Return the content of the transaction indexes of a replica."""
    files = sorted(partition_dir(cluster, broker, topic).glob("*.txnindex"))
    return {file.name: content for file in files if (content := file.read_bytes())}


def test_an_open_transaction_survives_the_leader(cluster: LocalCluster, name: str) -> None:
    topic = make_topic(cluster.bootstrap, name)
    producer = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    producer.send(topic, b"lost")
    producer.abort()
    producer.begin()
    producer.send(topic, b"a", b"b")
    dead = leader_of(cluster, topic)
    cluster.kill(dead)
    producer.send(topic, b"c")
    assert values_of(cluster.bootstrap, topic) == []
    producer.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"a", b"b", b"c"]
    cluster.start_broker(dead)
    await_members(cluster)
    assert_same_log_everywhere(cluster, topic)


def test_a_decided_transaction_is_completed_after_its_coordinator_was_killed(name: str) -> None:
    """The coordinator is killed between its decision and the markers: the leader of one partition
    is paused until then."""
    two_copies = {
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
    }
    with LocalCluster(settings={**SETTINGS, **two_copies}) as cluster:
        producer = TransactionalProducer(cluster.bootstrap, name)
        count = int(FEW_INTERNAL_PARTITIONS["transaction.state.log.num.partitions"])
        partition = partition_for(name, count)

        def both() -> list[int] | None:
            isr = isr_of(cluster, TRANSACTIONS_TOPIC, partition)
            return isr if len(isr) == 2 else None

        holders = eventually(both, "both replicas are in the ISR")
        [paused] = set(cluster.ids) - set(holders)
        away = make_placed(cluster, f"{name}-away", paused)
        dead = coordinator_of(cluster, name)
        [survivor] = set(holders) - {dead}
        here = make_placed(cluster, f"{name}-here", survivor)
        producer.begin()
        for topic in (away, here):
            producer.send(topic, b"a", b"b")
        await_isr(cluster, TRANSACTIONS_TOPIC, holders, partition)
        cluster.pause(paused)
        try:
            producer.commit()
            bootstrap = f"localhost:{cluster.port(survivor)}"
            before = await_state(bootstrap, name, "PrepareCommit")
            cluster.kill(dead)
            eventually(lambda: coordinator_of(cluster, name) == survivor, "another coordinator")
            after = await_state(bootstrap, name, "PrepareCommit")
            assert TopicPartition(away, 0) in after.partitions
            assert after.producer_epoch == before.producer_epoch
        finally:
            cluster.resume(paused)
        await_state(bootstrap, name, "CompleteCommit")
        for topic in (away, here):
            await_stable(bootstrap, topic)
            assert values_of(bootstrap, topic) == [b"a", b"b"]
        producer.write(away, b"c")
        await_stable(bootstrap, away)
        assert values_of(bootstrap, away) == [b"a", b"b", b"c"]


def test_a_transaction_stays_open_over_a_rolling_restart(cluster: LocalCluster, name: str) -> None:
    topic = make_topic(cluster.bootstrap, name)
    producer = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    sent = [b"before"]
    producer.send(topic, *sent)
    for broker in cluster.ids:
        assert cluster.stop(broker) == 0
        cluster.start_broker(broker)
        await_members(cluster)
        await_isr(cluster, topic, cluster.ids)
        sent.append(b"after %d" % broker)
        producer.send(topic, sent[-1])
        assert values_of(cluster.bootstrap, topic) == []
    producer.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == sent
    assert_same_log_everywhere(cluster, topic)


def test_indexes_and_snapshots_are_recovered_after_all_brokers_were_killed(
    cluster: LocalCluster, name: str
) -> None:
    """Transactions end in many segments; one is open while the brokers are down."""
    topic = make_topic(cluster.bootstrap, name, configs=SMALL_SEGMENTS)
    kept, lost, late = (TransactionalProducer(cluster.bootstrap, f"{name}-{n}") for n in range(3))
    committed = []
    for number in range(20):
        lost.begin()
        lost.send(topic, b"lost %d" % number + FILL)
        committed.append(b"kept %d" % number + FILL)
        kept.write(topic, committed[-1])
        lost.abort()
    late.begin()
    late.send(topic, b"late")
    unseen = b"behind the open one"
    kept.write(topic, unseen)
    for broker in cluster.ids:
        cluster.kill(broker)
    for broker in cluster.ids:
        cluster.start_broker(broker, wait=False)
    await_members(cluster)
    assert values_of(cluster.bootstrap, topic) == committed
    assert not is_stable(cluster.bootstrap, topic)
    late.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [*committed, b"late", unseen]
    for again in (kept, lost, late):
        again.write(topic, b"again")
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic)[-3:] == [b"again"] * 3
    assert_same_log_everywhere(cluster, topic)
    assert len(aborted(cluster, cluster.ids[0], topic)) > 3


def test_compaction_keeps_open_transactions_and_removes_aborted_ones(
    cluster: LocalCluster, name: str
) -> None:
    compacted = {
        **SMALL_SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100",
    }
    topic = make_topic(cluster.bootstrap, name, configs=compacted)
    opener = TransactionalProducer(cluster.bootstrap, f"{name}-open")
    writer = TransactionalProducer(cluster.bootstrap, name)

    def write(producer: TransactionalProducer, key: bytes, value: bytes) -> None:
        producer.client.produce(topic, value, key, partition=0)
        assert producer.client.flush(PATIENCE_S) == 0

    def write_rounds(number: int) -> None:
        """Each round commits a value of the key, and aborts a newer one."""
        for step in range(15):
            writer.begin()
            write(writer, b"key", b"%d-%d" % (number, step) + FILL)
            writer.commit()
            writer.begin()
            write(writer, b"key", b"aborted" + FILL)
            writer.abort()

    def copies() -> list[int]:
        found = values_of(cluster.bootstrap, topic, isolation=UNCOMMITTED)
        return [sum(value.startswith(start) for value in found) for start in (b"aborted", b"open")]

    write_rounds(1)
    eventually(lambda: copies()[0] < 8, "aborted records are removed")
    opener.begin()
    write(opener, b"key", b"open")
    write_rounds(2)
    assert values_of(cluster.bootstrap, topic)[-1].startswith(b"1-14")
    assert copies()[1] == 1
    opener.commit()
    await_stable(cluster.bootstrap, topic)
    write_rounds(3)
    # The last segments are not compacted, and contain a few of them.
    eventually(lambda: copies()[0] < 8, "aborted records of the second round are removed")
    assert values_of(cluster.bootstrap, topic)[-1].startswith(b"3-14")
    for broker in cluster.ids:
        folder = partition_dir(cluster, broker, topic)
        eventually(partial(is_small, folder), "a compacted log on every broker")


def is_small(folder: Path) -> bool:
    return sum(file.stat().st_size for file in folder.glob("*.log")) < 15_000


def test_records_of_an_open_transaction_are_deleted(cluster: LocalCluster, name: str) -> None:
    topic = make_topic(cluster.bootstrap, name)
    producer = TransactionalProducer(cluster.bootstrap, f"{name}-open")
    other = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    producer.send(topic, b"a", b"b", b"c")
    other.write(topic, b"d")
    assert stable_end(cluster.bootstrap, topic) == 0
    client = admin_client(cluster.bootstrap)

    def delete() -> int:
        [deleted] = client.delete_records([At(topic, 0, 2)]).values()
        return int(deleted.result(PATIENCE_S).low_watermark)

    assert eventually(delete, "records are deleted") == 2
    assert stable_end(cluster.bootstrap, topic) == 2
    producer.send(topic, b"e")
    producer.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"c", b"d", b"e"]
    for broker in cluster.ids:
        cluster.restart(broker)
        await_isr(cluster, topic, cluster.ids)
    assert values_of(cluster.bootstrap, topic) == [b"c", b"d", b"e"]
    assert_same_log_everywhere(cluster, topic)


def test_a_partition_is_moved_while_it_has_an_open_transaction(
    cluster: LocalCluster, name: str
) -> None:
    topic = make_placed(cluster, name, 1)
    producer = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    producer.send(topic, b"lost")
    producer.abort()
    producer.write(topic, b"a")
    producer.begin()
    producer.send(topic, b"b")
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        moved = TopicPartition(topic, 0)
        eventually(lambda: alter_reassignments(client, {moved: [2]})[moved].holds, "a move begins")
    await_isr(cluster, topic, [2])
    eventually(lambda: leader_of(cluster, topic) == 2, "the new replica leads")
    assert values_of(cluster.bootstrap, topic) == [b"a"]
    producer.send(topic, b"c")
    producer.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"a", b"b", b"c"]
    assert len(aborted(cluster, 2, topic)) == 1


def test_an_unclean_election_removes_a_part_of_a_transaction(
    cluster: LocalCluster, name: str
) -> None:
    """Its marker still arrives, the old leader truncates, and readers are not held back."""
    topic = make_placed(cluster, name, 1, 2, unclean=True)
    producer = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    producer.send(topic, b"lost")
    producer.abort()
    producer.write(topic, b"a")
    await_stable(cluster.bootstrap, topic)
    await_isr(cluster, topic, [1, 2])
    producer.begin()
    producer.send(topic, b"b")
    await_isr(cluster, topic, [1, 2])  # so broker 2 has the record
    for partition in range(int(FEW_INTERNAL_PARTITIONS["transaction.state.log.num.partitions"])):
        await_isr(cluster, TRANSACTIONS_TOPIC, cluster.ids, partition)
    cluster.kill(2)
    producer.send(topic, b"only on broker 1")
    cluster.kill(1)
    cluster.start_broker(2)
    eventually(lambda: leader_of(cluster, topic) == 2, "an unclean election")
    producer.commit()
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"a", b"b"]
    cluster.start_broker(1)
    await_members(cluster)
    await_isr(cluster, topic, [1, 2])
    await_same_log(cluster, 1, 2, topic)
    # The first producer would notice that sequence numbers are missing.
    TransactionalProducer(cluster.bootstrap, name).write(topic, b"c")
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"a", b"b", b"c"]
