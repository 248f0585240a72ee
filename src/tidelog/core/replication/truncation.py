"""Truncation: what a replica throws away when it begins to follow another.

Its log may end in records that the new leader never had. The question is where the two
logs part. The high watermark can't answer it: a follower's is one fetch late, so cutting
there drops records that were acknowledged, or keeps records that differ. Leader epochs
can: the leader names the end of the follower's last epoch, and what lies beyond is not
in the leader's log (scenarios/truncation/).

The shipped rule asks inline with Fetch (KIP-595): each fetch carries the epoch of the
follower's last record; a leader whose log disagrees answers with the *diverging* epoch
and where that ends. The rules Kafka used before live in lab/historical_truncation.py,
for comparison only.
"""

from typing import NamedTuple, Protocol

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.types import EpochEnd, Offset


class Cut(NamedTuple):
    """Where to truncate, and whether the two logs then agree or must be compared again."""

    offset: Offset
    done: bool


def diverging_cut(end: EpochEnd, epochs: LeaderEpochs, log_end_offset: Offset) -> Cut:
    """Where a follower cuts when the leader says that `end.epoch` ends at `end.end_offset`.

    The leader's epoch may be unknown here; then the largest epoch before it is where the
    logs can still agree, and after cutting to its end the leader must be asked again
    (KIP-279: consecutive fast elections leave epochs that only one side has).
    """
    mine = epochs.end_offset_for(end.epoch, log_end_offset)
    if mine is None:
        return Cut(min(end.end_offset, log_end_offset), done=True)
    if mine.epoch != end.epoch:
        return Cut(min(mine.end_offset, log_end_offset), done=False)
    return Cut(min(mine.end_offset, end.end_offset, log_end_offset), done=True)


class TruncationPolicy(Protocol):
    """How a replica makes its log a prefix of its leader's."""

    name: str

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset, /
    ) -> Offset:
        """Where to cut at once when a leader is given, before anything is asked."""
        ...

    @property
    def asks_first(self) -> bool:
        """Whether OffsetForLeaderEpoch is asked before the first fetch."""
        ...

    @property
    def fetches_with_epoch(self) -> bool:
        """Whether each fetch carries the last fetched epoch."""
        ...

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        epochs: LeaderEpochs,
        log_end_offset: Offset,
        high_watermark: Offset,
        /,
    ) -> Cut:
        """Where to cut when the leader has said where an epoch ends."""
        ...


class LeaderEpochTruncation:
    """The shipped rule: never by the own high watermark, always by the leader's epochs."""

    name = "leader-epoch"
    asks_first = False
    fetches_with_epoch = True

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """Keep everything; but a log without any epoch has only its high watermark."""
        return high_watermark if epochs.latest is None else log_end_offset

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        epochs: LeaderEpochs,
        log_end_offset: Offset,
        _high_watermark: Offset,
    ) -> Cut:
        """Cut what the leader does not have."""
        assert end is not None, "a diverging reply always names an epoch"
        return diverging_cut(end, epochs, log_end_offset)


LEADER_EPOCH: TruncationPolicy = LeaderEpochTruncation()
