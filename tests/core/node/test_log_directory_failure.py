"""One of two log directories of a broker fails: only its replicas go offline (KIP-112, KIP-858)."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, produce

from tidelog.core.controller.events import (
    AlterReassignmentsReceived,
    DeleteTopicReceived,
    ElectionType,
    ElectLeadersReceived,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Put
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    decode_partition,
    encode_features,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.messages import FetchResponse
from tidelog.core.replication.events import RetentionReached
from tidelog.core.storage.log_directories import LogDirectories
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.disk_pair import DiskPair
from tidelog.lab.memory_disk import MemoryDisk

KEY = PartitionKey(b"t" * 16, 0)
OTHER = TopicPartition("other", 0)
OTHER_KEY = PartitionKey(b"o" * 16, 0)
LONG_MS = 60_000


def known(cluster: Cluster, key: PartitionKey = KEY) -> PartitionRegistration:
    (kv,) = cluster.store.range(keys.partition(*key)).kvs
    return decode_partition(key, kv.value)


def running(replicas: tuple[BrokerId, ...] = (1, 2, 3), **settings: Any) -> Cluster:
    """Every broker has two disks: `orders` is on the first, `other` on the second."""
    cluster = Cluster(settings={"auto_leader_rebalance_enable": False})
    for broker in (1, 2, 3):
        cluster.disks[broker] = DiskPair(MemoryDisk)
    cluster.start()
    cluster.create_topic(replicas=replicas, **settings)
    cluster.create_topic("other", replicas, b"o" * 16, **settings)
    assert cluster.produce(1, b"a", b"b")[1].error is ErrorCode.NONE
    cluster.run(1_000)
    for broker in replicas:
        directory = cluster.nodes[broker].directory
        assert [directory.place_of(name) for name in (ORDERS, OTHER)] == [0, 1]
    return cluster


def break_disk(cluster: Cluster, broker: BrokerId, number: int = 0) -> None:
    cluster.disks[broker].disks[number].broken = True


def offline(cluster: Cluster, broker: BrokerId) -> list[int]:
    directory = cluster.nodes[broker].directory
    assert isinstance(directory, LogDirectories)
    return list(directory.offline)


def produce_other(cluster: Cluster, broker: BrokerId) -> ErrorCode:
    request = produce(b"x", -1, 1_000)
    request.partitions[0].topic_partition = OTHER
    error: ErrorCode = cluster.call(broker, request).partitions[0].error
    return error


def test_only_the_replicas_of_the_failed_directory_go_offline() -> None:
    cluster = running()
    break_disk(cluster, 1)
    (answer,) = cluster.produce(1, b"c")
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert offline(cluster, 1) == [0]
    cluster.run_until(lambda: known(cluster).offline == (1,))
    assert (known(cluster).isr, known(cluster).leader) == ((2, 3), 2)
    cluster.run_until(lambda: cluster.leader() == 2)
    assert cluster.consume(2) == [b"a", b"b"]
    assert cluster.produce(2, b"d")[0].error is ErrorCode.NONE
    assert cluster.produce(1, b"e", timeout_ms=100)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.halted == {}
    assert (known(cluster, OTHER_KEY).leader, known(cluster, OTHER_KEY).isr) == (1, (1, 2, 3))
    assert produce_other(cluster, 1) is ErrorCode.NONE


def test_the_other_replicas_keep_leading_while_the_report_waits_for_the_store() -> None:
    cluster = running()
    controller = cluster.controller()
    broken = next(b for b in (1, 2, 3) if b != controller)
    other = next(b for b in (1, 2, 3) if b not in (controller, broken))
    request = AlterReassignmentsReceived(0, {OTHER_KEY: (broken, other, controller)})
    cluster.call(controller, request)
    cluster.call(controller, ElectLeadersReceived(0, ElectionType.PREFERRED, (OTHER_KEY,)))
    cluster.run(100)
    before = known(cluster, OTHER_KEY)
    assert before.leader == broken
    cluster.storeless.add(controller)
    break_disk(cluster, broken)
    cluster.nodes[broken].directory.write_recovery_points()
    cluster.run(2_000)
    cluster.storeless.clear()
    cluster.run_until(lambda: known(cluster).offline == (broken,))
    cluster.run(5_000)
    assert known(cluster, OTHER_KEY) == before, "the broker was not fenced"


def test_a_follower_with_a_failed_directory_leaves_the_isr() -> None:
    cluster = running()
    break_disk(cluster, 3)
    cluster.ask(1, produce(b"c", -1, 30_000))
    cluster.run_until(lambda: known(cluster).offline == (3,))
    cluster.run(100)
    (answer,) = cluster.produce(1, b"d", timeout_ms=1_000)
    assert answer.error is ErrorCode.NONE, "the high watermark does not wait for broker 3"
    cluster.run(LONG_MS)
    assert known(cluster).isr == (1, 2), "it does not come back without its directory"
    assert known(cluster, OTHER_KEY).isr == (1, 2, 3)


def test_a_failure_that_a_checkpoint_finds() -> None:
    """No request uses the disk: the next checkpoint finds the failure."""
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    assert known(cluster).leader == 2


def test_a_failed_flush_takes_its_directory_offline() -> None:
    cluster = running(flush_messages="1")
    cluster.flush_held = True
    cluster.ask(1, produce(b"c", 1, 1_000))
    cluster.run(10)
    effects = [e for b, _, e in cluster._flushes if b == 1]
    assert [effect.place for effect in effects] == [0]
    cluster.step(1, on.FlushCompleted(effects[0].flush, "input/output error", cluster.now_ms))
    assert offline(cluster, 1) == [0]
    assert cluster.halted == {}


def test_the_last_directory_halts_the_broker() -> None:
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    break_disk(cluster, 1, 1)
    cluster.run_until(lambda: 1 in cluster.halted)
    assert "log directory offline" in cluster.halted[1].reason
    cluster.run_until(lambda: known(cluster, OTHER_KEY).leader == 2)


def test_the_disk_is_back_after_a_restart() -> None:
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.run_until(lambda: cluster.leader() == 2)
    assert cluster.produce(2, b"c")[0].error is ErrorCode.NONE
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = False
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).isr == (1, 2, 3))
    assert known(cluster).offline == ()
    assert cluster.replica(1).log.log_end_offset == 3


def test_a_restart_with_the_disk_still_failed_creates_no_log() -> None:
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.crash(1, proof=True)
    cluster.start(1)
    cluster.run_until(lambda: known(cluster, OTHER_KEY).isr == (1, 2, 3))
    cluster.run(LONG_MS)
    assert (known(cluster).offline, known(cluster).isr) == ((1,), (2, 3))
    assert ORDERS not in cluster.nodes[1].directory.logs
    assert cluster.produce(1, b"x", timeout_ms=100)[0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_that_fails_at_startup() -> None:
    """The failure is unknown to the cluster when the broker starts."""
    cluster = running()
    cluster.crash(1, proof=True)
    break_disk(cluster, 1)
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.run_until(lambda: known(cluster, OTHER_KEY).isr == (1, 2, 3))
    assert 1 not in known(cluster).isr


def test_an_empty_disk_in_its_place_is_a_lost_log() -> None:
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.crash(1, proof=True)
    cluster.disks[1].replace(0)
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).isr == (1, 2, 3))
    assert (known(cluster).offline, known(cluster).lost) == ((), ())
    assert cluster.replica(1).log.log_end_offset == 2


def test_an_empty_disk_in_its_place_while_the_replica_is_being_added() -> None:
    cluster = running(replicas=(1, 2))
    cluster.tamper = lambda _, asker, message: (
        None if asker == 3 and isinstance(message, FetchResponse) else message
    )
    cluster.call(cluster.controller(), AlterReassignmentsReceived(0, {KEY: (1, 2, 3)}))
    cluster.run(200)
    place = cluster.nodes[3].directory.place_of(ORDERS)
    break_disk(cluster, 3, place)
    cluster.run_until(lambda: known(cluster).offline == (3,))
    assert known(cluster).adding == (3,)
    cluster.tamper = None
    cluster.crash(3, proof=True)
    cluster.disks[3].replace(place)
    cluster.start(3)
    cluster.run_until(lambda: known(cluster).isr == (1, 2, 3))
    assert (known(cluster).offline, known(cluster).adding) == ((), ())


@pytest.mark.parametrize("back", [True, False])
def test_a_sole_replica_waits_for_its_disk(back: bool) -> None:
    """No empty log replaces it, though no other replica exists."""
    cluster = running(replicas=(1,))
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    assert known(cluster).leader is None
    cluster.run(LONG_MS)
    request = ElectLeadersReceived(0, ElectionType.UNCLEAN, (KEY,))
    cluster.call(cluster.controller(), request)
    assert known(cluster).leader is None, "not even an unclean election elects it"
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = not back
    cluster.start(1)
    if back:
        cluster.run_until(lambda: cluster.leader() == 1)
        assert cluster.consume(1) == [b"a", b"b"]
        assert known(cluster).offline == ()
    else:
        cluster.run(LONG_MS)
        assert (known(cluster).leader, known(cluster).offline) == (None, (1,))
        assert ORDERS not in cluster.nodes[1].directory.logs


def test_a_sole_replica_waits_for_its_disk_at_an_older_level() -> None:
    """Level 2 can't store that it is offline; still no empty log replaces it."""
    cluster = running(replicas=(1,))
    levels = Put(keys.FEATURES, encode_features({"tidelog.version": 2}))
    cluster.store.txn((), (levels,))
    cluster._notify()
    cluster.run(100)
    cluster.crash(1, proof=True)
    break_disk(cluster, 1)
    cluster.start(1)
    cluster.run(LONG_MS)
    assert ORDERS not in cluster.nodes[1].directory.logs
    assert OTHER in cluster.nodes[1].directory.logs
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = False
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1)
    assert cluster.consume(1) == [b"a", b"b"]


def test_the_isr_without_the_failed_directory_is_the_only_one_elected() -> None:
    """Broker 1 alone was in sync: its records wait for the disk, and broker 2 does not lead."""
    cluster = running(replicas=(1, 2))
    cluster.crash(2, proof=True)
    cluster.run_until(lambda: known(cluster).isr == (1,))
    assert cluster.produce(1, b"c")[0].error is ErrorCode.NONE
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.start(2)
    cluster.run(LONG_MS)
    assert known(cluster).leader is None
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = False
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1)
    assert cluster.consume(1) == [b"a", b"b", b"c"]


def test_a_topic_is_deleted_and_created_again_while_the_disk_is_offline() -> None:
    cluster = running()
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders", b"t" * 16))
    cluster.create_topic(topic_id=b"n" * 16)
    assert cluster.nodes[1].directory.place_of(ORDERS) == 1
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = False
    cluster.start(1)
    new = PartitionKey(b"n" * 16, 0)
    cluster.run_until(lambda: known(cluster, new).isr == (1, 2, 3))
    assert cluster.nodes[1].directory.place_of(ORDERS) == 1
    names = cluster.disks[1].disks[0].list_dir("")
    assert any(name.endswith("-stray") for name in names)


def test_the_controller_fails_over_while_a_directory_is_offline() -> None:
    cluster = running()
    controller = cluster.controller()
    broken = next(b for b in (1, 2, 3) if b != controller)
    break_disk(cluster, broken)
    cluster.run_until(lambda: known(cluster).offline == (broken,))
    cluster.crash(controller, proof=True)
    cluster.run_until(lambda: controller not in known(cluster).isr)
    cluster.run(LONG_MS)
    assert known(cluster).offline == (broken,)
    assert broken not in (*known(cluster).isr, known(cluster).leader)


def stopped_with_a_missing_segment(cluster: Cluster) -> None:
    """Broker 3 is stopped, and lacks the second segment of its log in the first directory."""
    for number in range(40):
        cluster.produce(1, b"%03d" % number * 10)
    cluster.run(1_000)
    cluster.step(3, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: 3 in cluster.halted)
    disk = cluster.disks[3].disks[0].disk
    disk.delete([f"orders-0/{n}" for n in disk.list_dir("orders-0") if n.endswith(".log")][1])


def test_no_log_is_repaired_in_a_failed_directory() -> None:
    """The repair would fail in each turn, before the other periodic work of the broker."""
    cluster = running(segment_bytes="200", min_insync_replicas="2")
    stopped_with_a_missing_segment(cluster)
    cluster.start(3)
    cluster.run_until(lambda: bool(cluster.nodes[3]._replicas.repairing))
    cluster.cut.add((1, 3))
    cluster.run(10)
    assert cluster.replica(3).repair is not None, "it waits for records"
    break_disk(cluster, 3)  # a checkpoint finds it
    cluster.run_until(lambda: offline(cluster, 3) == [0])
    cluster.cut.clear()
    cluster.run_until(lambda: known(cluster).offline == (3,))
    cluster.run_until(lambda: known(cluster, OTHER_KEY).isr == (1, 2, 3))
    assert cluster.replica(3).repair is None


def test_a_topic_is_deleted_whose_repair_finds_the_failure() -> None:
    cluster = running(segment_bytes="200", min_insync_replicas="2")
    stopped_with_a_missing_segment(cluster)
    cluster.start(3)
    cluster.run_until(lambda: bool(cluster.nodes[3]._replicas.repairing))
    cluster.cut.add((1, 3))
    cluster.run(10)
    assert cluster.replica(3).repair is not None, "it waits for records"
    break_disk(cluster, 3)
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders", b"t" * 16))
    cluster.run(100)
    assert offline(cluster, 3) == [0]
    assert ORDERS not in cluster.nodes[3].replicas
    assert ORDERS not in cluster.nodes[3].directory.logs


def test_a_failure_that_another_step_of_the_replica_finds_ends_its_repair() -> None:
    cluster = running(segment_bytes="200", min_insync_replicas="2")
    stopped_with_a_missing_segment(cluster)
    cluster.start(3)
    cluster.run_until(lambda: ORDERS in cluster.nodes[3].replicas)
    replica = cluster.replica(3)
    cluster.run_until(lambda: replica.repair is not None)
    break_disk(cluster, 3)
    node = cluster.nodes[3]
    node._replicas.step(replica, RetentionReached(replica.partition.high_watermark))
    cluster.run_until(lambda: known(cluster).offline == (3,))
    cluster.run(1_000)
    assert replica.repair is None
    assert not node._replicas.repairing


def test_a_directory_that_fails_before_its_replicas_are_hosted() -> None:
    """The broker is still reading the store. Its replicas are hosted as offline ones."""
    cluster = running(segment_bytes="200", min_insync_replicas="2")
    stopped_with_a_missing_segment(cluster)
    cluster.storeless.add(3)
    cluster.start(3, replica_high_watermark_checkpoint_interval_ms=10)
    assert ORDERS in cluster.nodes[3].directory.damaged
    break_disk(cluster, 3)
    cluster.run(50)
    assert (offline(cluster, 3), cluster.nodes[3].replicas) == ([0], {})
    cluster.storeless.clear()
    cluster.run_until(lambda: known(cluster).offline == (3,))
    cluster.run_until(lambda: known(cluster, OTHER_KEY).isr == (1, 2, 3))
    assert cluster.replica(3).partition.offline
    assert cluster.replica(3).repair is None


def test_a_directory_that_fails_while_its_logs_are_reported_as_found() -> None:
    cluster = running(replicas=(1,))
    break_disk(cluster, 1)
    cluster.run_until(lambda: known(cluster).offline == (1,))
    cluster.crash(1, proof=True)
    cluster.disks[1].disks[0].broken = False
    cluster.start(1)
    reporter = cluster.nodes[1]._reporter
    cluster.run_until(lambda: bool(reporter.found) and reporter._sent)
    break_disk(cluster, 1)
    cluster.nodes[1].directory.write_recovery_points()
    cluster.run(30_000)
    assert known(cluster).offline == (1,)
    assert known(cluster).leader is None


def test_a_directory_that_fails_again_while_an_interrupted_creation_is_completed() -> None:
    """The log was never there, so it is not reported as offline, and not as lost later."""
    cluster = Cluster(brokers=(1,))
    cluster.disks[1] = disks = DiskPair(MemoryDisk)
    disks.disks[0].make_dir("orders-0")
    cluster.start()
    assert cluster.nodes[1].directory.place_of(ORDERS) == 0
    break_disk(cluster, 1)
    cluster.create_topic(replicas=(1,))
    assert offline(cluster, 1) == [0]
    assert cluster.produce(1, b"a")[0].error is ErrorCode.NONE
    cluster.crash(1)
    disks.disks[0].broken = False
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() == 1)
    assert known(cluster).offline == known(cluster).lost == ()
    assert cluster.consume(1) == [b"a"]
    assert cluster.nodes[1].directory.place_of(ORDERS) == 1
