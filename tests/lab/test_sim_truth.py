"""The simulator's true history of a partition."""

import pytest

from tidelog.core.controller.metadata.registrations import PartitionRegistration, UncleanElection
from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.oracle.promise import LossReports, Promise
from tidelog.lab.sim.oracle.shadow import Entry, Shadow
from tidelog.lab.sim.oracle.truth import Truth

RECORD = Entry(epoch=0, base=0, crc=7, newest_ms=0)


def fenced_commit() -> tuple[Truth, list[str]]:
    """Let broker 1 commit a record after its session ended and broker 2 was elected uncleanly."""
    broken: list[str] = []
    truth = Truth(
        TopicPartition("t", 0),
        lambda invariant, _: broken.append(invariant),
        Promise(min_isr=2),
        lambda broker: broker == 1,
        unclean_allowed=True,
    )
    old, new = Shadow(1), Shadow(2)
    truth.shadows = {1: old, 2: new}
    old.leads, old.leader_epoch, old.entries = True, 0, [RECORD]
    truth.became_leader(old, 0)
    election = UncleanElection(2, 1, 1, (1,), (), recovered=False)
    registration = PartitionRegistration(
        b"0" * 16, 0, (1, 2), (2,), 2, leader_epoch=1, unclean_election=election
    )
    truth.registered(registration, away=())
    new.leads, new.leader_epoch = True, 1
    truth.became_leader(new, 1)
    truth.advanced(old, 0, 1)
    return truth, broken


def test_fenced_leader_may_count_a_record_as_committed_that_no_client_sees() -> None:
    """Seed 51644: after a pause, a fetch that waited in the socket raises the high watermark."""
    truth, broken = fenced_commit()
    assert broken == []
    assert truth.committed == []


def test_fenced_leader_must_not_acknowledge_the_record() -> None:
    truth, broken = fenced_commit()
    truth.acknowledged(0, RECORD.crc)
    assert broken == ["fenced-leaders-stop"]


def test_fenced_leader_must_not_serve_the_record_to_a_consumer() -> None:
    truth, broken = fenced_commit()
    truth.consumed(0, RECORD)
    assert broken == ["fenced-leaders-stop"]


def test_reported_losses_are_accepted_when_every_replica_is_repaired() -> None:
    """Seed 21966: both replicas lost and reported the start of the log, and were repaired."""
    name = TopicPartition("t", 0)
    truth = Truth(name, lambda *_: None, Promise(min_isr=1), lambda _: False, unclean_allowed=False)
    truth.loss_reports = LossReports(name)
    truth.registered(PartitionRegistration(bytes(16), 0, (1, 2), (1, 2), 1), away=())
    records = [Entry(epoch=0, base=offset, crc=offset, newest_ms=0) for offset in range(3)]
    one, two = Shadow(1), Shadow(2)
    one.start, one.entries = 2, records[2:]
    two.start, two.entries = 1, records[1:]
    truth.shadows = {1: one, 2: two}
    truth.acked = dict(enumerate(records))
    truth.loss_reports.noted([Note("log_damaged", ("t", 0, 0, "the start is missing"))])
    truth.close_loss_reports()
    assert truth.acked == dict(enumerate(records[1:], 1)), "a replica has the record at offset 1"
    assert truth.deleted_upto == 1
    assert not truth.loss_reports.covers(1), "a later loss needs a new report"


def test_a_loss_that_no_broker_reported_is_not_accepted() -> None:
    name = TopicPartition("t", 0)
    truth = Truth(name, lambda *_: None, Promise(min_isr=1), lambda _: False, unclean_allowed=False)
    truth.loss_reports = LossReports(name)
    truth.registered(PartitionRegistration(bytes(16), 0, (1,), (1,), 1), away=())
    truth.shadows = {1: Shadow(1)}
    truth.shadows[1].start = 1
    truth.acked = {0: RECORD}
    truth.close_loss_reports()
    assert truth.acked == {0: RECORD}
    assert truth.deleted_upto == 0


def test_the_last_replica_in_sync_waits_for_an_operator_only_if_its_log_lost_records() -> None:
    """Seed 44781: a power failure damaged the end of its log, of which nothing was committed."""
    broken: list[str] = []
    name = TopicPartition("t", 0)
    promise = Promise(min_isr=1)
    truth = Truth(
        name, lambda one, _: broken.append(one), promise, lambda _: False, unclean_allowed=False
    )
    truth.registered(
        PartitionRegistration(bytes(16), 0, (1, 2), (), None, last_known_elr=(2,)), away=()
    )
    promise.stopped_uncleanly(2, revision=1)
    promise.shortened.add(2)
    truth.check_needs_operator(reported=[2])
    assert broken == []
    truth.check_needs_operator(reported=[])
    assert broken == ["settles"], "a log that is not reported as damaged is elected"
    promise.settle(2, now_ms=1)
    truth.check_needs_operator(reported=[2])
    assert broken == ["settles", "settles"], "a log that lost nothing is not damaged"


def test_an_unclean_election_need_not_be_recorded_if_the_next_one_replaced_it_unapplied() -> None:
    """Seed 3000913: the disk of the controller, the only broker that was up, failed."""
    name = TopicPartition("t", 0)
    truth = Truth(name, lambda *_: None, Promise(min_isr=1), lambda _: False, unclean_allowed=True)
    truth.shadows = {1: Shadow(1), 2: Shadow(2)}
    for number, epoch in enumerate((1, 3, 5)):
        election = UncleanElection(1, epoch, None, (), (2,), recovered=False)
        truth.registered(
            PartitionRegistration(
                b"0" * 16, 0, (1, 2), (1,), 1, epoch, number, unclean_election=election
            ),
            away=(),
        )
        if epoch == 1:
            truth.became_leader(truth.shadows[1], epoch)
        assert epoch in truth.unclean_epochs_to_record, "no later one has an entry"
    assert truth.unclean_epochs_to_record == {1, 5}


@pytest.mark.parametrize(
    ("to", "end", "deleted_upto", "broken"),
    [
        (0, 3, 9, False),  # seed 3003110: damage had taken all later ones
        (0, 10, 9, True),  # offset 9 was not deleted
        (0, 3, 0, True),
        (25, 30, 9, False),  # none was committed
        (24, 30, 9, True),
    ],
)
def test_an_in_sync_replica_truncates_only_deleted_and_uncommitted_records(
    to: int, end: int, deleted_upto: int, broken: bool
) -> None:
    found: list[str] = []
    truth = Truth(
        TopicPartition("t", 0),
        lambda invariant, _: found.append(invariant),
        Promise(min_isr=2),
        lambda _: False,
        unclean_allowed=False,
    )
    truth.registered(PartitionRegistration(bytes(16), 0, (1, 2), (1, 2), 1), away=())
    truth.committed = [Entry(0, offset, offset, 0) for offset in range(25)]
    truth.deleted_upto = deleted_upto
    truth.truncated(Shadow(2), to, end)
    assert bool(found) is broken
