"""The truncation rules Kafka had before, kept runnable so that they can be seen to fail.

    high-watermark   before 0.11: cut to the own high watermark. Loses acknowledged records.
    kip-101          0.11: ask where the last epoch ends. Wrong after fast elections.
    kip-279          2.0: the answer names its epoch, and one asks again until both agree.

They differ from the shipped rule (core/replication/truncation.py) only in where a
follower cuts; everything else a replica does is the broker's own code. Brokers can't
be configured to use them.
"""

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication.truncation import (
    LEADER_EPOCH,
    Cut,
    TruncationPolicy,
    diverging_cut,
)
from tidelog.core.types import EpochEnd, Offset


class HighWatermarkTruncation:
    """Cut to the own high watermark, and ask nobody."""

    name = "high-watermark"
    asks_first = False
    fetches_with_epoch = False

    def cut_on_following(
        self, _epochs: LeaderEpochs, _log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """The high watermark: one fetch out of date."""
        return high_watermark

    def cut_on_answer(
        self,
        _end: EpochEnd | None,
        _epochs: LeaderEpochs,
        _log_end_offset: Offset,
        _high_watermark: Offset,
    ) -> Cut:
        """Never asked."""
        raise AssertionError("this rule asks nobody about epochs")


class Kip101Truncation:
    """Ask where the last epoch ends; believe the offset, whatever epoch it is about."""

    name = "kip-101"
    asks_first = True
    fetches_with_epoch = False

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """A log without epochs has only its high watermark; others wait for the answer."""
        return high_watermark if epochs.latest is None else log_end_offset

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        _epochs: LeaderEpochs,  # the flaw: it does not look
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> Cut:
        """Cut at the offset told; at the high watermark if none was."""
        offset = high_watermark if end is None else min(end.end_offset, log_end_offset)
        return Cut(offset, done=True)


class Kip279Truncation(Kip101Truncation):
    """Compare the epoch in the answer too, and go on asking until both sides agree."""

    name = "kip-279"

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        epochs: LeaderEpochs,
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> Cut:
        """Cut as the shipped rule does; it only asks in another way."""
        if end is None:
            return Cut(high_watermark, done=True)
        return diverging_cut(end, epochs, log_end_offset)


POLICIES: dict[str, TruncationPolicy] = {
    policy.name: policy
    for policy in (
        LEADER_EPOCH,
        HighWatermarkTruncation(),
        Kip101Truncation(),
        Kip279Truncation(),
    )
}
"""Every rule by its name; the first is the one that ships."""
