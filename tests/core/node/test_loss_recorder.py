"""Each loss is in the ledger on disk before it happens, with what this broker knows of it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, produce

from tidelog.core.controller.events import (
    AlterReassignmentsReceived,
    DeleteTopicReceived,
    ElectionType,
    ElectLeadersReceived,
)
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.lineage.acks_history import EXACT_MAX, parse_notes
from tidelog.core.node.messages import Produce
from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage import layout
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.loss_ledger import read_lines
from tidelog.lab.memory_disk import MemoryDisk

KEY = PartitionKey(b"t" * 16, 0)
ACKS = f"orders-0/{layout.ACKS_HISTORY}"


@pytest.fixture
def cluster() -> Cluster:
    return running()


def running(min_isr: int = 2) -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(min_insync_replicas=str(min_isr))
    return cluster


def leader_of(cluster: Cluster) -> int:
    cluster.run_until(lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    return leader


def ledger(cluster: Cluster, broker: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(cluster.disks[broker])]


def lose(cluster: Cluster, *acks: int) -> int:
    """Let a leader die with records that no other broker has; return the broker, restarted and in
    sync again."""
    old = leader_of(cluster)
    cluster.produce(old, b"one")
    cluster.cut |= {(other, old) for other in {1, 2, 3} - {old}}
    for each in acks:
        cluster.ask(old, produce_of(each))
    cluster.crash(old, proof=True)
    cluster.cut.clear()
    new = leader_of(cluster)
    cluster.produce(new, b"two")
    cluster.start(old)
    cluster.run_until(lambda: cluster.replica(new).partition.isr.members == {1, 2, 3})
    return old


def produce_of(acks: int) -> Produce:
    return produce(b"lost", acks)


def counts(entry: dict[str, Any]) -> dict[str, int]:
    names = ("records", "committed", "acked_1", "acked_all", "not_acked", "acks_unknown")
    return {name: entry[name] for name in names if entry[name]}


def test_a_killed_leader_counts_what_it_acknowledged_with_acks_1(cluster: Cluster) -> None:
    old = lose(cluster, 1, 1, 0, 1)
    [entry] = ledger(cluster, old)
    assert counts(entry) == {"records": 4, "acked_1": 3, "not_acked": 1}
    assert (entry["event"], entry["cause"]) == ("loss", "leader_change")
    assert (entry["start"], entry["end"], entry["first_epoch"]) == (1, 5, 0)
    assert (entry["topic"], entry["partition"], entry["broker"]) == ("orders", 0, old)
    assert entry["leader"] == cluster.leader()
    assert entry["level"] == "WARN"


def test_a_leader_that_was_not_killed_knows_what_acks_all_had_acknowledged(
    cluster: Cluster,
) -> None:
    old = leader_of(cluster)
    cluster.produce(old, b"one")
    others = {1, 2, 3} - {old}
    cluster.cut |= {(other, old) for other in others} | {(old, other) for other in others}
    cluster.ask(old, produce_of(-1))
    cluster.storeless.add(old)
    cluster.run_until(lambda: any(cluster.replica(b).partition.is_leader for b in others))
    new = next(b for b in others if cluster.replica(b).partition.is_leader)
    cluster.run_until(lambda: cluster.nodes[new].acting)
    cluster.produce(new, b"two")
    cluster.cut.clear()
    cluster.storeless.clear()
    cluster.run_until(lambda: bool(ledger(cluster, old)))
    [entry] = ledger(cluster, old)
    assert counts(entry) == {"records": 1, "not_acked": 1}
    assert entry["level"] == "INFO"


def test_after_a_reboot_the_acks_are_unknown(cluster: Cluster) -> None:
    """A power failure may have lost notes. The broker is killed in the first boot."""
    cluster.boot_id = "second boot"
    old = lose(cluster, 1)
    [entry] = ledger(cluster, old)
    assert counts(entry) == {"records": 1, "acks_unknown": 1}


def test_entries_outlive_restarts(cluster: Cluster) -> None:
    old = lose(cluster, 1)
    before = ledger(cluster, old)
    cluster.crash(old)
    cluster.start(old)
    cluster.run(5000)
    assert ledger(cluster, old) == before


def test_levels_in_turns_cost_a_bounded_number_of_notes(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    for _ in range(2 * EXACT_MAX):
        cluster.produce(leader, b"one", acks=1)
        cluster.produce(leader, b"two", acks=-1)
    notes = parse_notes(cluster.disks[leader].read(ACKS, 0, 1 << 20))
    assert len(notes) <= EXACT_MAX + 3
    assert [note.levels for note in notes[:2]] == [4, 1]


def test_one_level_of_acks_is_noted_once(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, *[b"one"] * 20, acks=1)
    assert len(parse_notes(cluster.disks[leader].read(ACKS, 0, 1 << 20))) == 1


class OrderedDisk(MemoryDisk):
    """Remembers the order of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.refuses_ledger = False

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        if path == layout.LOSSES:
            if self.refuses_ledger:
                raise DiskError("input/output error", path)
            self.done.append("write ledger")
        return super().append(path, buffers)

    def sync(self, path: str) -> None:
        if path == layout.LOSSES:
            self.done.append("sync ledger")
        super().sync(path)

    def truncate(self, path: str, size: int) -> None:
        if path.endswith(layout.LOG) and size < self.size(path):
            self.done.append("truncate")
        super().truncate(path, size)


def with_ordered_disks() -> Cluster:
    cluster = Cluster()
    cluster.disks.update({broker: OrderedDisk() for broker in cluster.brokers})
    cluster.start()
    cluster.create_topic()
    return cluster


def test_the_entry_is_synced_before_the_log_is_truncated() -> None:
    cluster = with_ordered_disks()
    old = lose(cluster, 1)
    assert cluster.disks[old].done == ["write ledger", "sync ledger", "truncate"]


def test_no_record_is_removed_if_the_entry_can_not_be_written() -> None:
    cluster = with_ordered_disks()
    old = leader_of(cluster)
    cluster.produce(old, b"one")
    cluster.cut |= {(other, old) for other in {1, 2, 3} - {old}}
    cluster.ask(old, produce_of(1))
    cluster.crash(old, proof=True)
    cluster.cut.clear()
    cluster.produce(leader_of(cluster), b"two")
    cluster.disks[old].refuses_ledger = True
    cluster.start(old)
    cluster.run_until(lambda: old in cluster.halted)
    assert "truncate" not in cluster.disks[old].done


def unclean() -> tuple[Cluster, int, int]:
    """A cluster after an unclean election, its leader, and the broker with the lost record."""
    cluster = running(min_isr=1)
    last = leader_of(cluster)
    cluster.produce(last, b"one")
    cluster.run(20)
    for other in {1, 2, 3} - {last}:
        cluster.crash(other, proof=True)
    cluster.run_until(lambda: cluster.replica(last).partition.isr.members == {last}, 90_000)
    cluster.produce(last, b"two")
    cluster.run(6000)  # the high watermark is saved
    cluster.crash(last, proof=True)
    others = sorted({1, 2, 3} - {last})
    cluster.start(*others)
    cluster.run_until(lambda: all(cluster.nodes[b].acting for b in others), 90_000)
    request = ElectLeadersReceived(0, ElectionType.UNCLEAN, (KEY,))
    cluster.call(cluster.controller(), request)
    return cluster, leader_of(cluster), last


def test_an_unclean_election_is_recorded_by_leader_and_controller_under_one_id() -> None:
    cluster, leader, _ = unclean()
    assert any(entry["start"] == 1 for entry in ledger(cluster, leader))
    every = [entry for broker in (1, 2, 3) for entry in ledger(cluster, broker)]
    assert len({entry["id"] for entry in every}) == 1
    assert {(entry["event"], entry["leader"]) for entry in every} == {("unclean_election", leader)}
    assert any(entry["start"] is None for entry in every), "the controller does not know it"


def test_records_that_an_unclean_election_gave_up_are_recorded_as_such() -> None:
    cluster, leader, last = unclean()
    cluster.produce(leader, b"three")
    cluster.start(last)
    cluster.run_until(lambda: any(e["event"] == "loss" for e in ledger(cluster, last)), 90_000)
    [entry] = [e for e in ledger(cluster, last) if e["event"] == "loss"]
    assert entry["cause"] == "unclean_election"
    assert counts(entry) == {"records": 1, "committed": 1, "acked_all": 1}


def test_a_missing_folder_is_recorded_with_the_saved_high_watermark(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"one", b"two")
    cluster.run(6000)
    gone = min({1, 2, 3} - {leader})
    cluster.crash(gone)
    cluster.disks[gone].delete_dir("orders-0")
    cluster.start(gone)
    cluster.run_until(lambda: bool(ledger(cluster, gone)))
    [entry] = ledger(cluster, gone)
    assert (entry["cause"], entry["high_watermark"], entry["records"]) == ("log_lost", 2, None)


def test_losses_are_counted_by_cause(cluster: Cluster) -> None:
    old = lose(cluster, 1, 1)
    count = cluster.nodes[old].counters.losses["leader_change"]
    assert (count.losses, count.removed, count.committed, count.acknowledged) == (1, 2, 0, 2)
    assert ORDERS in cluster.nodes[old].counters.truncated


def test_a_reassignment_that_removes_the_only_copy_of_an_acknowledged_record(
    cluster: Cluster,
) -> None:
    old = leader_of(cluster)
    cluster.produce(old, b"one")
    others = tuple(sorted({1, 2, 3} - {old}))
    cluster.cut |= {(other, old) for other in others}
    cluster.ask(old, produce_of(1))
    cluster.call(cluster.controller(), AlterReassignmentsReceived(0, {KEY: others}))
    cluster.run_until(lambda: ORDERS not in cluster.nodes[old].replicas)
    [entry] = ledger(cluster, old)
    assert (entry["cause"], entry["start"]) == ("replica_removed", 1)
    assert counts(entry) == {"records": 1, "acked_1": 1}


def test_a_reassignment_that_removes_such_a_record_while_its_broker_is_down(
    cluster: Cluster,
) -> None:
    """Seed 3003746: the broker deleted its log at startup without an entry."""
    old = leader_of(cluster)
    cluster.produce(old, b"one")
    others = tuple(sorted({1, 2, 3} - {old}))
    cluster.cut |= {(other, old) for other in others}
    cluster.ask(old, produce_of(1))
    cluster.crash(old, proof=True)
    cluster.cut.clear()
    leader_of(cluster)
    cluster.call(cluster.controller(), AlterReassignmentsReceived(0, {KEY: others}))
    cluster.start(old)
    cluster.run_until(lambda: bool(ledger(cluster, old)))
    assert ORDERS not in cluster.nodes[old].replicas
    assert ORDERS not in cluster.nodes[old].directory.logs
    [entry] = ledger(cluster, old)
    assert (entry["cause"], entry["end"]) == ("replica_removed", 2)
    assert entry["leader"] in others
    assert entry["leader_epoch"] > 0
    assert counts(entry)["acked_1"] == 1


def test_a_deleted_topic_leaves_no_entry(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    cluster.produce(leader, b"one", acks=1)
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run_until(lambda: ORDERS not in cluster.nodes[leader].replicas)
    assert ledger(cluster, leader) == []
