"""A partition's folder is removed while its broker is down: replicas with records keep them, and
the replica that lost its log is not elected automatically while they exist."""

from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.controller.events import (
    DeleteTopicReceived,
    ElectionType,
    ElectLeadersReceived,
    HeartbeatReceived,
    LogReportsReceived,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    decode_partition,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.storage.disk import DiskError
from tidelog.core.types import BrokerId
from tidelog.lab.memory_disk import MemoryDisk

KEY = PartitionKey(b"t" * 16, 0)
FOLDER = "orders-0"
LONG_MS = 40_000


def known(cluster: Cluster) -> PartitionRegistration:
    (kv,) = cluster.store.range(keys.partition(*KEY)).kvs
    return decode_partition(KEY, kv.value)


def running(**settings: Any) -> Cluster:
    """Broker 1 leads; broker 3 left the ISR and lacks the last record. No automatic elections."""
    cluster = Cluster(settings={"auto_leader_rebalance_enable": False})
    cluster.start()
    cluster.create_topic(**settings)
    assert [a.error for a in cluster.produce(1, b"a", b"b")] == [ErrorCode.NONE] * 2
    cluster.run(1_000)
    cluster.crash(3, proof=True)
    cluster.run_until(lambda: known(cluster).isr == (1, 2))
    assert cluster.produce(1, b"c")[0].error is ErrorCode.NONE
    cluster.run(1_000)
    return cluster


def remove(cluster: Cluster, *brokers: BrokerId) -> None:
    for broker in brokers:
        assert cluster.disks[broker].is_dir(FOLDER)
        cluster.disks[broker].delete_dir(FOLDER)


def crash_and_remove(cluster: Cluster, *brokers: BrokerId) -> None:
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    remove(cluster, *brokers)


def elect_uncleanly(cluster: Cluster) -> None:
    request = ElectLeadersReceived(0, ElectionType.UNCLEAN, (KEY,))
    answer = cluster.call(cluster.controller(), request)
    assert answer.results[KEY] is ErrorCode.NONE


def settled(cluster: Cluster) -> bool:
    """Whether all replicas are in the ISR with their current incarnation."""
    partition = known(cluster)
    return (
        cluster.leader() is not None
        and set(partition.isr) == set(partition.replicas)
        and all(ORDERS in cluster.nodes[broker].replicas for broker in partition.replicas)
    )


def test_emptied_leader_is_not_elected_over_a_replica_with_records() -> None:
    cluster = running()
    crash_and_remove(cluster, 1, 2)
    cluster.start()
    cluster.run(LONG_MS)
    assert cluster.leader() is None
    assert known(cluster).lost == (1, 2)
    assert all(node.acting for node in cluster.nodes.values()), "for other partitions they serve"
    assert len(cluster.log(3)) == 2, "the sound replica has what it had"
    elect_uncleanly(cluster)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.leader() == 3
    assert cluster.consume(3) == [b"a", b"b"]
    assert [len(cluster.log(broker)) for broker in (1, 2)] == [2, 2]
    assert known(cluster).lost == ()


def test_unclean_election_prefers_a_replica_with_records() -> None:
    cluster = running(unclean_leader_election_enable="true")
    crash_and_remove(cluster, 1, 2)
    cluster.start(3)
    cluster.start(1, 2)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.consume(cluster.leader() or 0) == [b"a", b"b"]


def test_a_sound_in_sync_replica_leads_and_nothing_is_lost() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(min_insync_replicas="3")
    cluster.produce(1, b"a", b"b")
    cluster.run(1_000)
    for broker in (1, 2, 3):
        cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
        cluster.run_until(lambda broker=broker: broker in cluster.halted)  # type: ignore[misc]
    assert set(known(cluster).elr) == {1, 2, 3}
    for path in cluster.disks[1].list_dir(""):
        if path.startswith(FOLDER) or path.endswith("checkpoint"):
            cluster.disks[1].delete_dir(path) if path == FOLDER else cluster.disks[1].delete(path)
    cluster.start(1)
    cluster.run(LONG_MS)
    assert cluster.leader() is None
    assert set(known(cluster).elr) == {2, 3}, "it stopped cleanly, but has nothing"
    cluster.start(2, 3)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.leader() in (2, 3)
    assert cluster.consume(cluster.leader() or 0) == [b"a", b"b"]
    assert known(cluster).unclean_election is None


def test_a_loss_is_reported_again_after_a_crash() -> None:
    cluster = running()
    crash_and_remove(cluster, 1, 2)
    cluster.start(1)
    cluster.run_until(lambda: cluster.nodes[1].image.revision > 0)
    assert not cluster.disks[1].exists(FOLDER), "while nobody knows, nothing hides the loss"
    cluster.crash(1)
    cluster.start()
    cluster.run(LONG_MS)
    assert cluster.leader() is None
    assert set(known(cluster).lost) == {1, 2}


def test_loss_is_remembered_when_all_brokers_restart() -> None:
    cluster = running()
    crash_and_remove(cluster, 1, 2)
    cluster.start()
    cluster.run_until(lambda: known(cluster).lost == (1, 2))
    for _ in range(2):
        for broker in list(cluster.nodes):
            cluster.crash(broker)
        cluster.start()
        cluster.run(LONG_MS)
        assert cluster.leader() is None
    elect_uncleanly(cluster)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.consume(3) == [b"a", b"b"]


def test_an_emptied_replica_catches_up_while_others_lead() -> None:
    cluster = running()
    cluster.start(3)
    cluster.run_until(lambda: settled(cluster))
    cluster.crash(2, proof=True)
    remove(cluster, 2)
    cluster.start(2)
    cluster.run_until(lambda: settled(cluster) and known(cluster).behind == ())
    assert cluster.leader() == 1
    assert cluster.log(2) == cluster.log(1)


def test_a_folder_that_is_put_back_counts_again() -> None:
    cluster = running()
    for broker in (1, 2):
        cluster.crash(broker)
    cluster.disks[1].rename(FOLDER, "elsewhere")
    cluster.start(1)
    cluster.run_until(lambda: known(cluster).lost == (1,))
    cluster.run(LONG_MS)
    assert cluster.leader() is None
    cluster.crash(1)
    assert not cluster.disks[1].exists(FOLDER)
    cluster.disks[1].rename("elsewhere", FOLDER)
    cluster.start()
    cluster.run_until(lambda: settled(cluster))
    assert known(cluster).lost == ()
    assert cluster.consume(cluster.leader() or 0) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
def test_if_every_replica_lost_its_log_the_last_leader_starts_an_empty_one(
    replicas: tuple[BrokerId, ...],
) -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=replicas)
    cluster.produce(1, b"a")
    cluster.run(1_000)
    crash_and_remove(cluster, *replicas)
    cluster.start()
    cluster.run_until(lambda: settled(cluster))
    assert cluster.leader() == 1
    assert cluster.consume(1) == []
    assert known(cluster).lost == ()
    unclean = known(cluster).unclean_election
    assert unclean is not None
    assert unclean.recovered, "counted and recorded"
    assert cluster.produce(1, b"b")[0].error is ErrorCode.NONE


def test_folders_in_place_are_not_reported_as_lost() -> None:
    cluster = running()
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    before = len(cluster.sent)
    cluster.start()
    cluster.run_until(lambda: settled(cluster))
    sent = [r for _, _, r in cluster.sent[before:] if isinstance(r, LogReportsReceived)]
    assert all(not (report.lost or report.damaged or report.found) for report in sent)
    assert cluster.consume(1) == [b"a", b"b", b"c"]
    assert ORDERS in cluster.nodes[3].replicas


def test_a_leader_that_died_before_it_saw_its_new_topic_lost_nothing() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run_until(lambda: all(cluster.nodes[broker].acting for broker in cluster.brokers))
    cluster.create_topic("first", topic_id=b"f" * 16)
    cluster.storeless.add(3)
    cluster.create_topic(replicas=(3, 2), wait=False)
    cluster.run_until(lambda: ORDERS in cluster.nodes[2].replicas)
    assert known(cluster).leader == 3
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    cluster.storeless.clear()
    assert not cluster.disks[3].exists(FOLDER)
    cluster.start()
    cluster.run_until(lambda: settled(cluster))
    assert cluster.produce(cluster.leader() or 0, b"a")[0].error is ErrorCode.NONE


def test_a_folder_of_which_only_the_name_is_left_is_lost() -> None:
    cluster = running()
    crash_and_remove(cluster, 2)
    for path in cluster.disks[1].list_dir(FOLDER):
        cluster.disks[1].delete(f"{FOLDER}/{path}")
    cluster.start()
    cluster.run(LONG_MS)
    assert cluster.leader() is None
    assert known(cluster).lost == (1, 2)


def test_a_loss_is_reported_to_the_next_controller() -> None:
    cluster = running()
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    cluster.start(2, 3)
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    remove(cluster, 1)
    controller = cluster.controller()
    cluster.cut |= {(1, controller), (controller, 1)}
    cluster.start(1)
    cluster.run(3_000)
    assert known(cluster).lost == ()
    assert not cluster.nodes[1].acting
    cluster.crash(controller, proof=True)
    cluster.run_until(lambda: 1 in known(cluster).lost + known(cluster).behind)
    cluster.run_until(lambda: cluster.nodes[1].acting)


def test_deleted_topic_is_not_reported_as_lost() -> None:
    cluster = running()
    crash_and_remove(cluster, 1, 2)
    cluster.start(2, 3)
    cluster.run_until(lambda: known(cluster).lost == (2,))
    controller = cluster.controller()
    cluster.cut |= {(1, controller), (controller, 1)}
    cluster.start(1)
    cluster.run(1_000)
    answer = cluster.call(controller, DeleteTopicReceived(0, "orders"))
    assert answer.error is ErrorCode.NONE
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.nodes[1].acting)


def test_a_broker_does_not_act_before_its_loss_is_known() -> None:
    cluster = running()
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    remove(cluster, 1)
    cluster.start(2, 3)
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    sent = len(cluster.sent)

    reports = 0

    def lose_reports(sender: BrokerId, target: BrokerId, request: Any) -> None:
        nonlocal reports
        if isinstance(request, LogReportsReceived):
            reports += 1
            cluster.cut.add((sender, target))
            cluster.at(cluster.now_ms + 2, partial(mend, reports, (sender, target)))

    def mend(report: int, link: tuple[BrokerId, BrokerId]) -> None:
        if report == reports:
            cluster.cut.discard(link)

    cluster.on_send = lose_reports
    cluster.start(1)
    cluster.run(LONG_MS)
    beats = [r for s, _, r in cluster.sent[sent:] if isinstance(r, HeartbeatReceived) and s == 1]
    assert beats
    assert all(beat.want_fence for beat in beats), "the first one, too: it may arrive last"
    assert known(cluster).lost == ()
    assert not cluster.nodes[1].acting
    assert cluster.leader() == 2, "after the time-out a sound log leads"
    cluster.on_send = lambda *_: None
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert known(cluster).leader == 2


def test_a_replica_with_a_new_log_keeps_the_last_records() -> None:
    """Broker 2 lost its folder and copied a part again; then all other brokers lose theirs."""
    cluster = running(min_insync_replicas="1")
    cluster.crash(2, proof=True)
    remove(cluster, 2)
    cluster.start(2)
    cluster.run_until(lambda: known(cluster).behind == (2,))
    cluster.run_until(lambda: ORDERS in cluster.nodes[2].replicas)
    cluster.run_until(lambda: cluster.replica(2).log.log_end_offset == 3)
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    remove(cluster, 1, 3)
    cluster.start()
    cluster.run(LONG_MS)
    assert known(cluster).leader is None
    assert (known(cluster).lost, known(cluster).behind) == ((1, 3), (2,))
    elect_uncleanly(cluster)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.leader() == 2
    assert cluster.consume(2) == [b"a", b"b", b"c"]


class BadFile(MemoryDisk):
    """A disk on which one file can't be read."""

    bad = f"{FOLDER}/partition.metadata"

    def read(self, path: str, position: int, length: int) -> bytes:
        if path == self.bad:
            raise DiskError("Input/output error", path)
        return super().read(path, position, length)


def spoil_file(cluster: Cluster, broker: BrokerId) -> BadFile:
    disk = BadFile()
    disk.__dict__.update(cluster.disks[broker].__dict__)
    cluster.disks[broker] = disk
    return disk


def test_a_log_that_cannot_be_opened_is_copied_from_the_leader() -> None:
    cluster = running()
    cluster.start(3)
    cluster.run_until(lambda: settled(cluster))
    cluster.crash(1, proof=True)
    spoil_file(cluster, 1).bad = f"{FOLDER}/leader-epoch-checkpoint"
    cluster.start(1)
    cluster.disks[1].bad = ""
    cluster.run_until(lambda: settled(cluster))
    assert cluster.leader() in (2, 3)
    assert len(cluster.log(1)) == 3
    assert known(cluster).unclean_election is None


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_no_empty_log_takes_the_place_of_the_only_copy(replicas: tuple[BrokerId, ...]) -> None:
    """The log can't be opened, and no other replica has the records."""
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=replicas)
    cluster.produce(1, b"a", b"b")
    cluster.run(1_000)
    for broker in replicas:
        cluster.crash(broker, proof=True)
    before = deepcopy(spoil_file(cluster, 1))
    if 2 in replicas:
        remove(cluster, 2)
    cluster.start(*replicas)
    cluster.run(LONG_MS)
    assert not cluster.halted
    assert ORDERS not in cluster.nodes[1].replicas
    assert cluster.disks[1].list_dir(FOLDER) == before.list_dir(FOLDER)
    cluster.crash(1, proof=True)
    cluster.disks[1].bad = ""
    cluster.start(1)
    cluster.run_until(lambda: settled(cluster))
    assert cluster.consume(1) == [b"a", b"b"]


def test_a_new_topic_gets_its_log_beside_a_folder_that_cannot_be_opened() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(1,))
    cluster.produce(1, b"a", b"b")
    cluster.run(1_000)
    cluster.crash(1, proof=True)
    disk = spoil_file(cluster, 1)
    cluster.start(1)
    cluster.run(LONG_MS)
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run(1_000)
    disk.bad = ""
    cluster.create_topic(replicas=(1,), topic_id=b"u" * 16)
    cluster.produce(1, b"c")
    assert cluster.consume(1) == [b"c"]
