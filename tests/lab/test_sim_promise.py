"""The records that the simulator lets brokers lose after damage, power loss or lost folders."""

from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.oracle.promise import LossReports, Promise


def test_removed_folder_allows_loss_from_offset_0() -> None:
    promise = Promise(min_isr=1)
    assert not promise.allows_loss_from(0)
    promise.emptied(2, revision=14)
    assert promise.allows_loss_from(0), "a log made anew begins at 0, whatever was deleted"
    assert promise.folderless == {2}
    promise.settle(2, now_ms=1)
    assert not promise.allows_loss_from(0)
    assert promise.folderless == set()


def test_loss_on_fewer_than_min_isr_replicas_loses_nothing() -> None:
    promise = Promise(min_isr=2)
    promise.lost(1, 7)
    assert not promise.allows_loss_from(7)
    promise.stopped_uncleanly(1, revision=3)
    assert not promise.allows_loss_from(7)
    promise.stopped_uncleanly(2, revision=4)
    assert promise.allows_loss_from(7)
    assert not promise.allows_loss_from(6)


def test_damage_to_one_replica_loses_nothing_by_itself() -> None:
    promise = Promise(min_isr=1)
    promise.damage(2, revision=14)
    promise.stopped_uncleanly(1, revision=15)
    assert not promise.allows_loss_from(0)
    promise.lost(1, 7)
    assert promise.allows_loss_from(7), "two replicas at a time lack records"
    promise.settle(2, now_ms=1)
    assert promise.damaged == set()


def test_records_committed_by_damaged_replicas_only_may_be_lost() -> None:
    promise = Promise(min_isr=1)
    promise.decay(2)
    promise.committed(5, isr=(1, 2))
    assert not promise.allows_loss_from(9)
    promise.committed(6, isr=(2,))
    promise.committed(7, isr=(2,))
    assert promise.allows_loss_from(6)
    assert not promise.allows_loss_from(5)
    assert not promise.is_intact()
    promise.settle(2, now_ms=1)
    assert not promise.allows_loss_from(6)
    assert promise.is_intact()
    assert promise.repaired == 1


def test_a_broker_may_serve_damage_only_until_it_is_restarted() -> None:
    promise = Promise(min_isr=1)
    promise.decay(2)
    assert promise.may_serve_damage(2, requested_ms=40)
    promise.stopped(2, now_ms=50)
    assert not promise.decayed
    assert promise.damaged == {2}
    assert promise.may_serve_damage(2, requested_ms=50), "sent before, received later"
    assert not promise.may_serve_damage(2, requested_ms=51)
    assert not promise.may_serve_damage(1, requested_ms=40)


def test_loss_is_covered_by_log_events_of_brokers() -> None:
    said = LossReports(TopicPartition("t", 1))
    said.noted([Note("log_damaged", ("t", 0, 3, "checksum differs")), Note("registered", (7,))])
    assert not said.covers(3), "of another partition"
    said.noted([Note("truncated", ("t", 1, 4, 2, 5))])
    assert [offset for offset in range(7) if said.covers(offset)] == [2, 3, 4]
    said.noted([Note("log_damaged", ("t", 1, 6, "checksum differs"))])
    assert said.covers(6)
    assert not said.covers(5)
    said.noted([Note("log_lost", ("t", 1))])
    assert said.covers(0)
    said.clear()
    assert not said.covers(6)
