"""Truncation: which records a replica deletes when it starts to follow a leader.

Its log may end in records that the new leader never had, so it must find where the two logs
diverge. The high watermark does not show that: a follower's is one fetch late, so truncating
there drops acknowledged records, or keeps records that differ. Leader epochs do: the leader
returns the end of the follower's last epoch, and records beyond it are not in the leader's log
(scenarios/truncation/).

The shipped rule compares epochs in each fetch (KIP-595): the fetch carries the epoch of the
follower's last record, and a leader whose log differs returns the *diverging* epoch and its end.
The rules that Kafka used before are in lab/historical_truncation.py, for comparison only.
"""

from typing import NamedTuple, Protocol

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.types import EpochEnd, Offset


class Cut(NamedTuple):
    """Where to truncate; unless `done`, the two logs must be compared again afterwards."""

    offset: Offset
    done: bool


def diverging_cut(end: EpochEnd, epochs: LeaderEpochs, log_end_offset: Offset) -> Cut:
    """Return where a follower truncates if `end.epoch` ends at `end.end_offset` on the leader.

    If this epoch is unknown here, the logs can agree at most up to the end of the largest epoch
    before it; after that truncation they are compared again (KIP-279: several elections in short
    time leave epochs that only one of the two logs has).
    """
    mine = epochs.end_offset_for(end.epoch, log_end_offset)
    if mine is None:
        return Cut(min(end.end_offset, log_end_offset), done=True)
    if mine.epoch != end.epoch:
        return Cut(min(mine.end_offset, log_end_offset), done=False)
    return Cut(min(mine.end_offset, end.end_offset, log_end_offset), done=True)


class TruncationPolicy(Protocol):
    """A rule by which a replica makes its log a prefix of its leader's."""

    name: str

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset, /
    ) -> Offset:
        """Return where to truncate when the leader is known, before the first request."""
        ...

    @property
    def asks_first(self) -> bool:
        """Whether OffsetForLeaderEpoch is sent before the first fetch."""
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
        """Return where to truncate, from the leader's end of an epoch."""
        ...


class LeaderEpochTruncation:
    """The shipped rule: truncate by the leader's epochs, not by the own high watermark."""

    name = "leader-epoch"
    asks_first = False
    fetches_with_epoch = True

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """Keep all records; a log without epochs is truncated to its high watermark."""
        return high_watermark if epochs.latest is None else log_end_offset

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        epochs: LeaderEpochs,
        log_end_offset: Offset,
        _high_watermark: Offset,
    ) -> Cut:
        """Truncate the records that the leader does not have."""
        assert end is not None, "a diverging response always names an epoch"
        return diverging_cut(end, epochs, log_end_offset)


LEADER_EPOCH: TruncationPolicy = LeaderEpochTruncation()
