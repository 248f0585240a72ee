"""Kafka's earlier truncation rules, kept runnable to show how they fail.

    high-watermark   before 0.11: truncate to the own high watermark. Loses acknowledged records.
    kip-101          0.11: request the end of the last epoch. Wrong after fast elections.
    kip-279          2.0: the response names its epoch; repeat until both logs agree.

They differ from the shipped rule (core/replication/truncation.py) only in the
offset to which a follower truncates; everything else a replica does is the broker's own
code. Brokers can't be configured to use them.
"""

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication.truncation import LEADER_EPOCH, Cut, TruncationPolicy, diverging_cut
from tidelog.core.types import EpochEnd, Offset


class HighWatermarkTruncation:
    """Truncate to the own high watermark, without a request to the leader."""

    name = "high-watermark"
    asks_first = False
    fetches_with_epoch = False

    def cut_on_following(
        self, _epochs: LeaderEpochs, _log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """Return the high watermark, which is one fetch out of date."""
        return high_watermark

    def cut_on_answer(
        self,
        _end: EpochEnd | None,
        _epochs: LeaderEpochs,
        _log_end_offset: Offset,
        _high_watermark: Offset,
    ) -> Cut:
        """Fail: this rule sends no request."""
        raise AssertionError("the high-watermark rule sends no request for epochs")


class Kip101Truncation:
    """Request the end of the last epoch; use the offset without comparing its epoch."""

    name = "kip-101"
    asks_first = True
    fetches_with_epoch = False

    def cut_on_following(
        self, epochs: LeaderEpochs, log_end_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """Return the high watermark for a log without epochs; others wait for the response."""
        return high_watermark if epochs.latest is None else log_end_offset

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        _epochs: LeaderEpochs,  # the flaw: it ignores them
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> Cut:
        """Truncate to the offset in the response, or to the high watermark without one."""
        offset = high_watermark if end is None else min(end.end_offset, log_end_offset)
        return Cut(offset, done=True)


class Kip279Truncation(Kip101Truncation):
    """Compare the epoch in the response too, and repeat until both logs agree."""

    name = "kip-279"

    def cut_on_answer(
        self,
        end: EpochEnd | None,
        epochs: LeaderEpochs,
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> Cut:
        """Truncate as the shipped rule does; only the request differs."""
        if end is None:
            return Cut(high_watermark, done=True)
        return diverging_cut(end, epochs, log_end_offset)


POLICIES: dict[str, TruncationPolicy] = {
    policy.name: policy
    for policy in (LEADER_EPOCH, HighWatermarkTruncation(), Kip101Truncation(), Kip279Truncation())
}
"""Every rule by name; the first is the shipped one."""
