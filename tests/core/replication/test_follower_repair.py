"""How a follower replaces its damaged records with those of the leader."""

import pytest
from playbook import A, B, C, Playbook, elected, follower, position, reply, span

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.partition import Partition

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


def repair_position(offset: int, *, epoch: int = 1, last: int | None) -> do.FetchPosition:
    return position(offset, epoch=epoch, last=last, start=on.NO_PROGRESS)


def leader_offsets(end: int, *, epoch: int = 1, error: ErrorCode = ErrorCode.NONE) -> on.Event:
    """The leader's log start and end, as requested before a repair fetches."""
    return on.OffsetsAnswered(epoch, error, 0, end, 0)


def damaged(*, start: int = 3, end: int = 6) -> Partition:
    """A follower with eight records, of which some are damaged. Its leader's log has eight too."""
    partition = follower(log=(0, 8), hw=8, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(start, end))
    partition.step(leader_offsets(8))
    return partition


def test_a_repair_fetches_the_damaged_records_and_no_others() -> None:
    """The leader does not count these fetches as progress."""
    assert damaged().next_question(0) == repair_position(3, last=0)
    assert damaged(start=0).next_question(0) == repair_position(0, last=None)


def test_nothing_is_fetched_while_a_repair_copies_local_records() -> None:
    partition = damaged(start=3, end=3)
    assert partition.next_question(0) is None
    assert Playbook(partition) >> reply(3, span(3, epoch=0)) << None
    assert Playbook(partition) >> reply(8, span(8)) << None


def test_damaged_records_are_replaced_by_those_of_the_leader() -> None:
    first, second, behind = span(3, 4, epoch=0), span(5, epoch=1), span(6, epoch=1)
    partition = damaged()
    assert (
        Playbook(partition)
        >> reply(3, first, hw=8)
        << do.ReplaceRecords([first], 5)
        >> reply(3, first, second, behind, hw=8)
        << do.ReplaceRecords([first, second], 6)
        >> reply(3, hw=8)
        << None
    )
    assert (partition.log_end_offset, partition.high_watermark) == (8, 8)


def test_a_compacted_leader_has_fewer_records() -> None:
    assert Playbook(damaged()) >> reply(3, span(6)) << do.ReplaceRecords([], 6)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(span(3, epoch=1), id="of another leader epoch"),
        pytest.param(span(2, 3, epoch=0), id="from before the damage"),
        pytest.param(span(5, 6, epoch=1), id="reaches beyond the damage"),
    ],
)
def test_records_that_were_never_here_do_not_repair_a_log(other: on.Batch) -> None:
    assert Playbook(damaged()) >> reply(3, other) << do.AbandonRepair()


@pytest.mark.parametrize("start", [0, 4, 9])
def test_a_leader_without_the_damaged_records_ends_the_repair(start: int) -> None:
    out_of_range = reply(3, error=OUT_OF_RANGE, start=start)
    assert Playbook(damaged()) >> out_of_range << do.AbandonRepair()


def test_damaged_records_that_the_leader_deleted_are_deleted_here() -> None:
    partition = damaged()
    deleted = reply(3, error=OUT_OF_RANGE, start=6)
    assert Playbook(partition) >> deleted << do.WriteEpochs() << do.DropBefore(6)
    assert partition.next_question(0) == position(8, last=1, start=6)


def test_a_log_that_diverges_before_the_damage_is_truncated_there() -> None:
    partition = damaged()
    partition.high_watermark = 2
    diverging = reply(3, diverging=(0, 2))
    assert Playbook(partition) >> diverging << do.TruncateTo(2, 8, 2) << do.WriteEpochs()
    assert partition.next_question(0) is None
    partition.step(on.RepairEnded())
    assert partition.next_question(0) == position(2, last=0)


def test_a_repair_keeps_committed_records_that_the_leader_lacks() -> None:
    partition = damaged()
    diverging = reply(3, diverging=(0, 2))
    refused = do.RefuseTruncation(A, 1, 2, 8)
    assert Playbook(partition) >> diverging << do.StopFollowing() << refused
    partition.step(elected(C, 2))
    partition.step(leader_offsets(8, epoch=2))
    assert partition.next_question(0) == repair_position(3, epoch=2, last=0)


def test_a_repair_continues_after_an_error() -> None:
    partition = damaged()
    assert Playbook(partition) >> reply(3, error=ErrorCode.KAFKA_STORAGE_ERROR, now=5) << None
    assert partition.next_question(5) is None
    assert partition.next_question(5000) == repair_position(3, last=0)


def test_a_repair_continues_under_the_next_leader() -> None:
    partition = damaged()
    partition.step(elected(C, 2))
    assert partition.next_question(0) == do.OffsetsQuestion(2), "its log may end elsewhere"
    partition.step(leader_offsets(8))
    assert partition.next_question(0) == do.OffsetsQuestion(2), "the answer was of another leader"
    partition.step(leader_offsets(8, epoch=2))
    assert partition.next_question(0) == repair_position(3, epoch=2, last=0)
    partition.step(elected(None, 3))
    assert partition.next_question(0) is None


def test_a_replica_that_leads_is_not_repaired() -> None:
    partition = damaged()
    partition.step(elected(B, 2))
    assert partition.repair is None
    partition.step(on.RepairNeeded(3, 6))
    assert partition.repair is None, "a leader has no broker to fetch from"


def test_after_a_repair_the_log_end_is_fetched_again() -> None:
    partition = damaged()
    partition.step(on.RepairEnded())
    assert partition.next_question(0) == position(8, last=1)


def test_a_repair_of_the_first_segment_moves_the_log_start_back() -> None:
    partition = follower(log=(5, 8), hw=8, epochs=[(0, 0)])
    partition.step(on.RepairNeeded(0, 5))
    assert partition.log_start_offset == 0


def test_a_repair_replaces_the_search_for_the_leaders_offsets() -> None:
    partition = follower(log=(0, 8), hw=8, epochs=[(1, 0)])
    partition.step(reply(8, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    partition.step(on.RepairNeeded(3, 6))
    assert partition.next_question(0) == do.OffsetsQuestion(1)
    partition.step(leader_offsets(6))
    assert partition.next_question(0) == repair_position(3, last=1)


def test_a_truncation_to_the_damage_ends_the_repair() -> None:
    partition = damaged()
    assert Playbook(partition) >> on.DamageFound(3) << do.TruncateTo(3, 8, 3) << do.WriteEpochs()
    assert partition.next_question(0) == position(3, last=0)


def test_a_repair_requests_the_leaders_log_end_before_it_fetches() -> None:
    """A fetch at the log end would wait for a record that min.insync.replicas may forbid."""
    partition = follower(log=(0, 8), hw=2, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(3, 6))
    assert partition.next_question(0) == do.OffsetsQuestion(1)
    assert Playbook(partition) >> leader_offsets(4) << None
    assert partition.next_question(0) == repair_position(3, last=0)
    partition.step(on.RepairNeeded(4, 6))
    assert partition.next_question(0) == do.OffsetsQuestion(1), "the range reached the known end"
    partition.step(leader_offsets(9))
    partition.step(on.RepairNeeded(5, 6))
    assert partition.next_question(0) == repair_position(5, last=0), "the end is known to be later"


@pytest.mark.parametrize("end", [2, 3])
def test_a_log_is_truncated_to_a_leader_that_ends_before_the_damage(end: int) -> None:
    partition = follower(log=(0, 8), hw=2, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(3, 6))
    truncated = do.TruncateTo(end, 8, 2)
    assert Playbook(partition) >> leader_offsets(end) << truncated << do.WriteEpochs()


def test_a_leader_that_ends_before_damaged_committed_records_is_reported() -> None:
    """Sound records behind the damage are kept: another leader may have the damaged ones."""
    partition = follower(log=(0, 8), hw=7, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(3, 6))
    refused = do.RefuseTruncation(A, 1, 3, 7)
    assert Playbook(partition) >> leader_offsets(3) << do.StopFollowing() << refused
    assert (partition.log_end_offset, partition.high_watermark) == (8, 7)


def test_after_a_truncation_nothing_is_fetched_until_the_repair_begins_again_or_ends() -> None:
    """Records below the new log end may be missing: the repair had copied them to another file. A
    fetch at the log end would claim that they are here (simulator seed 20400)."""
    partition = follower(log=(0, 8), hw=2, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(1, 6))
    partition.step(leader_offsets(5))
    partition.step(on.RepairNeeded(5, 6))
    partition.step(leader_offsets(5))
    assert partition.log_end_offset == 5
    assert partition.next_question(0) is None
    assert Playbook(partition) >> leader_offsets(4) << None
    partition.step(on.RepairNeeded(1, 5))
    assert partition.next_question(0) == repair_position(1, last=0)


def test_a_repair_requests_the_log_end_again_after_an_error() -> None:
    partition = follower(log=(0, 8), hw=2, epochs=[(0, 0), (1, 5)])
    partition.step(on.RepairNeeded(3, 6))
    partition.step(leader_offsets(-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert partition.next_question(0) is None
    assert partition.next_question(5000) == do.OffsetsQuestion(1)
