"""A partition's folder is replaced by an old copy after a clean stop, its checkpoints too.

Nothing on that broker shows that records are missing. Its followers know that these records were
committed, and keep them.
"""

from typing import Any

from node_cluster import ORDERS, Cluster, produce

from tidelog.core.controller.events import ElectionType, ElectLeadersReceived, LogReportsReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    decode_partition,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.description import describe
from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import BrokerId

KEY = PartitionKey(b"t" * 16, 0)
VALUES = [b"a", b"b", b"c", b"d"]


def known(cluster: Cluster) -> PartitionRegistration:
    (kv,) = cluster.store.range(keys.partition(*KEY)).kvs
    return decode_partition(KEY, kv.value)


def stop(cluster: Cluster, *brokers: BrokerId) -> None:
    """Stop brokers cleanly, one after the other."""
    for broker in brokers:
        cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
        cluster.run_until(lambda broker=broker: broker in cluster.halted)  # type: ignore[misc]


def copied(cluster: Cluster, broker: BrokerId) -> dict[str, bytearray]:
    """Return the partition's files and the checkpoints, which have no other partition."""
    wanted = ("orders-0/", "recovery-point", "replication-offset", "log-start")
    files = cluster.disks[broker].files
    return {path: bytearray(data) for path, data in files.items() if path.startswith(wanted)}


def put_back(cluster: Cluster, broker: BrokerId, copy: dict[str, bytearray]) -> None:
    files = cluster.disks[broker].files
    for path in copied(cluster, broker):
        del files[path]
    files.update(copy)


def all_in_sync(cluster: Cluster) -> bool:
    partition = known(cluster)
    return (
        len(cluster.nodes) == 3
        and partition.leader is not None
        and set(partition.isr) == set(partition.replicas)
    )


def with_old_copy(last: BrokerId = 1, **settings: Any) -> Cluster:
    """All brokers are down; `last`, which leads next, has only the first of four records."""
    cluster = Cluster(settings={"auto_leader_rebalance_enable": False})
    cluster.start()
    cluster.create_topic(replicas=(1, 2, 3), **settings)
    cluster.produce(1, VALUES[0])
    cluster.run(6_000)
    others = [broker for broker in (3, 2, 1) if broker != last]
    stop(cluster, *others, last)
    copy = copied(cluster, last)
    cluster.start()
    cluster.run_until(lambda: all_in_sync(cluster))
    for value in VALUES[1:]:
        assert cluster.produce(known(cluster).leader or 0, value)[0].error is ErrorCode.NONE
    cluster.run(6_000)
    stop(cluster, *others, last)
    assert last in (*known(cluster).isr, *known(cluster).elr)
    put_back(cluster, last, copy)
    return cluster


def test_a_leader_with_an_old_copy_of_its_log_is_replaced() -> None:
    cluster = with_old_copy(min_insync_replicas="2")
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).leader == 1)
    assert len(cluster.log(1)) == 1
    cluster.start(2, 3)
    cluster.run_until(lambda: all_in_sync(cluster))
    assert known(cluster).leader == 2, "it was in the ELR"
    assert known(cluster).unclean_election is None
    assert cluster.consume(2) == VALUES
    assert cluster.log(1) == cluster.log(2) == cluster.log(3)
    refusals = [node.counters.truncations_refused for node in cluster.nodes.values()]
    assert sum(refusals) >= 1
    assert all(not node.refused and not node.losses.count for node in cluster.nodes.values())


def test_a_refusal_is_logged_and_described() -> None:
    cluster = with_old_copy(min_insync_replicas="1")
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).leader == 1)
    epoch = known(cluster).leader_epoch
    cluster.start(2)
    cluster.run_until(lambda: bool(cluster.nodes[2].refused))
    notes, _ = cluster.nodes[2].journal.take()
    assert Note("truncation_refused", (*ORDERS, 1, epoch, 1, 4)) in notes
    (described,) = describe(cluster.nodes[2], "orders", 0)["partitions"]
    refused = {"leader": 1, "leader_epoch": epoch, "offset": 1, "high_watermark": 4}
    assert described["refused"] == refused


def test_nothing_is_dropped_while_no_other_replica_is_in_sync() -> None:
    """The last broker to stop was alone in the ISR.

    It leads with the records it has until an operator decides; the others report it repeatedly.
    """
    cluster = with_old_copy(min_insync_replicas="1")
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).leader == 1)
    cluster.start(2, 3)
    cluster.run(5_000)
    cluster.sent.clear()
    cluster.run(30_000)
    assert (known(cluster).leader, known(cluster).isr) == (1, (1,))
    assert [len(cluster.log(broker)) for broker in (1, 2, 3)] == [1, 4, 4]
    reports = [r for _, _, r in cluster.sent if isinstance(r, LogReportsReceived)]
    assert 20 <= len(reports) <= 70
    stop(cluster, 1)
    request = ElectLeadersReceived(0, ElectionType.UNCLEAN, (KEY,))
    assert cluster.call(cluster.controller(), request).results[KEY] is ErrorCode.NONE
    cluster.start(1)
    cluster.run_until(lambda: all_in_sync(cluster))
    assert cluster.consume(known(cluster).leader or 0) == VALUES
    assert known(cluster).unclean_election is not None


def test_a_report_that_gets_lost_is_sent_again() -> None:
    cluster = with_old_copy(min_insync_replicas="2")
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).leader == 1)
    assert cluster.controller() == 1
    dropped: list[Any] = []

    def drop(sender: BrokerId, receiver: BrokerId, request: Any) -> None:
        if isinstance(request, LogReportsReceived) and request.refused and not dropped:
            dropped.append(request)
            cluster.cut.add((sender, receiver))
            cluster.at(cluster.now_ms + 100, cluster.cut.clear)

    cluster.on_send = drop
    cluster.start(2)
    cluster.run_until(lambda: known(cluster).leader == 2)
    assert dropped
    cluster.start(3)
    cluster.run_until(lambda: all_in_sync(cluster))
    assert cluster.consume(2) == VALUES


def test_a_follower_with_a_wrong_high_watermark_gives_way_to_a_second_leader() -> None:
    """The log ends in records that were never committed, but its checkpoint says otherwise."""
    cluster = Cluster(settings={"auto_leader_rebalance_enable": False})
    cluster.start()
    cluster.create_topic(replicas=(1, 2, 3), min_insync_replicas="2")
    cluster.produce(1, b"a")
    cluster.run(6_000)
    cluster.cut |= {(1, 2), (1, 3)}
    cluster.ask(1, produce(b"x"))
    cluster.run(50)
    cluster.crash(1, proof=True)
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.leader() == 2)
    assert cluster.produce(2, b"b")[0].error is ErrorCode.NONE
    cluster.disks[1].write("replication-offset-checkpoint", b"0\n1\norders 0 2\n")
    cluster.disks[1].delete("checkpoint-checksums")  # it would not be believed
    first = known(cluster).leader
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).leader != first)
    cluster.run_until(lambda: all_in_sync(cluster))
    assert cluster.consume(known(cluster).leader or 0) == [b"a", b"b"]
    (loss,) = cluster.nodes[1].losses.recent
    assert (loss.start, loss.end, loss.committed) == (1, 2, 1)
    notes, _ = cluster.nodes[1].journal.take()
    assert {"truncation_refused", "records_lost"} <= {note.event for note in notes}
    elected = known(cluster).leader_epoch
    cluster.run(30_000)
    assert known(cluster).leader_epoch == elected, "leaders change once, not for ever"
