"""A broker with many partitions syncs once where it could sync a thousand times."""

from collections.abc import Sequence

import pytest
from node_cluster import Cluster

from tidelog.core.controller.events import CreateTopicReceived, DeleteTopicReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import Fetch, Produce, ProducePartition
from tidelog.core.record.encoder import encode_value
from tidelog.core.replication.events import Event
from tidelog.core.storage import checkpoint
from tidelog.core.storage.disk import DiskError
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

COUNT = 40


class CountedSyncs(MemoryDisk):
    """A disk that records each sync as one entry, however many files it covers."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: list[tuple[str, ...]] = []
        self.broken = False

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        if self.broken:
            raise DiskError("broken", "")
        self.syncs.append((*files, *directories))

    def sync(self, path: str) -> None:
        super().sync(path)
        self.syncs.append((path,))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(settings={"partitions_at_once": COUNT})
    cluster.disks = {broker: CountedSyncs() for broker in (1, 2, 3)}
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    return cluster


def make_topic(cluster: Cluster) -> None:
    for disk in cluster.disks.values():
        disk.syncs.clear()
    request = CreateTopicReceived(0, "orders", b"t" * 16, COUNT, 3)
    assert cluster.call(cluster.controller(), request).error is ErrorCode.NONE
    cluster.run_until(lambda: all(len(n.replicas) == COUNT for n in cluster.nodes.values()))


def names() -> list[TopicPartition]:
    return [TopicPartition("orders", n) for n in range(COUNT)]


def test_topic_is_created_with_a_few_syncs(cluster: Cluster) -> None:
    make_topic(cluster)
    for disk in cluster.disks.values():
        assert len(disk.syncs) == 2, "topic ids, and the directories of their files"


def test_a_new_leader_writes_no_epoch_file_before_its_first_record(cluster: Cluster) -> None:
    """A restart removes an epoch without records in any case."""
    make_topic(cluster)
    name = names()[0]
    leader = cluster.leader(name)
    assert leader is not None
    log, disk = cluster.nodes[leader].replicas[name].log, cluster.disks[leader]
    assert checkpoint.read_epochs(disk, log.epochs_path) == []
    produced = Produce(-1, 1000, [ProducePartition(name, encode_value(b"one"))])
    assert cluster.call(leader, produced).partitions[0].error is ErrorCode.NONE
    assert checkpoint.read_epochs(disk, log.epochs_path) == [EpochEntry(0, 0)]


def test_failover_takes_a_few_syncs_too(cluster: Cluster) -> None:
    make_topic(cluster)
    cluster.run(1000)
    gone = max(set(cluster.nodes) - {cluster.controller()})
    for disk in cluster.disks.values():
        disk.syncs.clear()
    cluster.crash(gone, proof=True)
    cluster.run_until(lambda: all(cluster.leader(name) is not None for name in names()))
    for broker in cluster.nodes:
        synced = {path for paths in cluster.disks[broker].syncs for path in paths}
        assert not [path for path in synced if path.startswith("orders-")]


@pytest.mark.parametrize("on_leader", [True, False])
def test_an_epoch_is_on_disk_before_its_first_record(cluster: Cluster, on_leader: bool) -> None:
    make_topic(cluster)
    name = names()[0]
    leader = cluster.leader(name)
    assert leader is not None
    broker = leader if on_leader else min(set(cluster.nodes) - {leader})
    disk = cluster.disks[broker]
    path = cluster.nodes[broker].replicas[name].log.epochs_path
    seen: list[bytes] = []
    append = disk.append

    def watched(path_: str, buffers: Sequence[bytes]) -> int:
        if path_.startswith("orders-0/") and path_.endswith(".log"):
            seen.append(bytes(disk.files[path]))
        return int(append(path_, buffers))

    disk.append = watched
    produced = Produce(-1, 1000, [ProducePartition(name, encode_value(b"one"))])
    assert cluster.call(leader, produced).partitions[0].error is ErrorCode.NONE
    assert seen == [b"0\n1\n0 0\n"]


def test_disk_error_while_creating_logs_halts_the_broker(cluster: Cluster) -> None:
    make_topic(cluster)
    broker = max(set(cluster.nodes) - {cluster.controller()})
    cluster.disks[broker].broken = True
    gone = min(set(cluster.nodes) - {broker, cluster.controller()}, default=0) or 2
    cluster.crash(gone, proof=True)
    cluster.run_until(lambda: broker in cluster.halted)
    assert not cluster.halted[broker].clean


def test_topic_created_and_deleted_in_one_snapshot_leaves_no_epochs(cluster: Cluster) -> None:
    """One snapshot may contain both changes; then there is no log to write epochs for."""
    make_topic(cluster)
    node = cluster.nodes[1]
    replica = next(iter(node.replicas.values()))
    node._replicas._unwritten[replica] = None
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run(100)
    assert not cluster.nodes[1].replicas
    assert 1 not in cluster.halted


def test_record_causes_no_work_for_other_partitions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the partition that got a record takes steps, and no request names another one.

    Each follower's fetch session has forty partitions.
    """
    make_topic(cluster)
    cluster.run(3000)
    name = names()[7]
    leader = cluster.leader(name)
    assert leader is not None
    stepped: set[TopicPartition] = set()
    named: set[TopicPartition] = set()
    step = Replicas.step

    def counted(replicas: Replicas, replica: HostedReplica, event: Event) -> None:
        stepped.add(replica.topic_partition)
        step(replicas, replica, event)

    def watched(_sender: int, _target: int, request: object) -> None:
        if isinstance(request, Fetch):
            named.update(asked.topic_partition for asked in request.partitions)

    monkeypatch.setattr(Replicas, "step", counted)
    cluster.on_send = watched
    for value in (b"one", b"two", b"three"):
        produced = Produce(-1, 1000, [ProducePartition(name, encode_value(value))])
        assert cluster.call(leader, produced).partitions[0].error is ErrorCode.NONE
        cluster.run(50)
    assert named == stepped == {name}
