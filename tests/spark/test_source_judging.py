"""The lost range is exact for every history of a log that the model generates."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.apps.spark.source.data_loss import (
    LossKind,
    LostRange,
    PartitionState,
    Place,
    StaleLeader,
    judge,
    judge_new,
    needs_epoch_end,
)
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.types import TopicPartition

KEY = TopicPartition("t", 0)


class Step(NamedTuple):
    """An event of the log."""

    kind: str
    amount: int


class Log:
    """A partition as brokers have it: its bounds and the real epoch cache."""

    def __init__(self) -> None:
        self.start = self.end = self.epoch = 0
        self.epochs = LeaderEpochs()
        self.epochs.assign(0, 0)

    def take(self, step: Step) -> int | None:
        """Apply a step; return the offset of a truncation, or None."""
        if step.kind == "append":
            self.end += step.amount
        elif step.kind == "retain":
            self.start = min(self.start + step.amount, self.end)
            self.epochs.drop_before(self.start)
        else:
            self.epoch += 1
            cut = None
            if step.kind == "unclean":
                cut = self.end = max(self.end - step.amount, self.start)
                self.epochs.truncate_to(cut)
            self.epochs.assign(self.epoch, self.end)
            return cut
        return None

    def facts(self, place: Place) -> PartitionState:
        end = Place(self.end, self.epoch)
        found = None
        if needs_epoch_end(place, end):
            answer = self.epochs.end_offset_for(place.epoch, self.end)
            found = None if answer is None else answer.end_offset
        return PartitionState(end, self.start, found)


steps = st.lists(
    st.builds(
        Step, st.sampled_from(["append", "append", "clean", "unclean", "retain"]), st.integers(0, 9)
    ),
    max_size=12,
)


@given(steps, st.integers(0, 30), steps)
def test_the_lost_range_is_exact(before: list[Step], back: int, after: list[Step]) -> None:
    log = Log()
    for step in before:
        log.take(step)
    place = Place(max(log.end - back, log.start), log.epoch)
    cuts = [cut for step in after if (cut := log.take(step)) is not None]
    kept = min([place.offset, *cuts])
    verdict = judge(KEY, place, log.facts(place))
    assert log.start <= verdict.resume <= log.end
    by_kind = {each.kind: (each.start, each.end) for each in verdict.lost}
    if log.start <= kept:
        assert verdict.resume == kept
        wanted = {LossKind.TRUNCATED: (kept, place.offset)} if kept < place.offset else {}
        assert by_kind == wanted
    else:
        # What was cut and then deleted at the front may leave no trace of the cut.
        assert verdict.resume == log.start
        told = {offset for first, last in by_kind.values() for offset in range(first, last or 0)}
        traced = sorted((place.offset, log.start))
        assert set(range(*traced)) <= told <= set(range(kept, traced[1]))


def test_leader_changes_are_not_a_loss() -> None:
    assert judge(KEY, Place(10, 3), PartitionState(Place(12, 5), 0, 11)) == (10, ())
    assert judge(KEY, Place(10, 3), PartitionState(Place(10, 3), 10)) == (10, ())
    # A new leader's high watermark may be behind; its log is not.
    assert judge(KEY, Place(10, 3), PartitionState(Place(8, 5), 0, 11)) == (10, ())


@pytest.mark.parametrize("has_id", [True, False])
def test_an_open_transaction_is_not_a_loss(has_id: bool) -> None:
    """An open transaction hides records from a reader that now reads committed data only."""
    place, end = Place(100, 3), Place(90, 3)
    assert needs_epoch_end(place, end)
    assert not needs_epoch_end(place, Place(100, 3))
    assert judge(KEY, place, PartitionState(end, 0, 130), has_id=has_id) == (100, ())
    cut = judge(KEY, place, PartitionState(end, 0, 95), has_id=has_id)
    assert [(e.kind, e.start) for e in cut.lost] == [
        (LossKind.TRUNCATED, 95) if has_id else (LossKind.RECREATED, 100)
    ]


def test_truncation_and_retention_together() -> None:
    verdict = judge(KEY, Place(100, 3), PartitionState(Place(120, 5), 90, 80))
    assert verdict.resume == 90
    assert [(e.kind, e.start, e.end, e.resume, e.epoch) for e in verdict.lost] == [
        (LossKind.TRUNCATED, 80, 100, 90, 3),
        (LossKind.RETENTION, 80, 90, 90, -1),
    ]


def test_without_ids_epochs_detect_a_recreated_topic() -> None:
    backwards = judge(KEY, Place(100, 3), PartitionState(Place(120, 0), 0), has_id=False)
    assert backwards == (0, (LostRange("t", 0, LossKind.RECREATED, 100, None, 0),))
    shorter = judge(KEY, Place(100, 0), PartitionState(Place(20, 0), 0, 20), has_id=False)
    assert [each.kind for each in shorter.lost] == [LossKind.RECREATED]
    # As long as the old one, in the same epoch: nothing tells.
    assert judge(KEY, Place(100, 0), PartitionState(Place(120, 0), 0), has_id=False) == (100, ())


def test_with_an_id_a_stale_leader_is_retried() -> None:
    with pytest.raises(StaleLeader, match="t-0: the leader has epoch 2"):
        judge(KEY, Place(100, 3), PartitionState(Place(90, 2), 0))


def test_a_checkpoint_without_epochs_is_compared_by_offsets() -> None:
    verdict = judge(KEY, Place(100), PartitionState(Place(80, 5), 0))
    assert verdict.resume == 80
    assert [(e.kind, e.start, e.end) for e in verdict.lost] == [(LossKind.TRUNCATED, 80, 100)]
    assert judge(KEY, Place(100), PartitionState(Place(130, 5), 0)) == (100, ())


def test_new_partitions_begin_at_their_start() -> None:
    assert judge_new(KEY, 0, known_topic=True) == (0, ())
    assert judge_new(KEY, 7, known_topic=False) == (7, ())
    verdict = judge_new(KEY, 7, known_topic=True)
    assert verdict.lost == (LostRange("t", 0, LossKind.RETENTION, 0, 7, 7),)
