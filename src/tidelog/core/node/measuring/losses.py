"""Records that replicas on this broker dropped, so that losses are reported exactly.

A truncation is normal: records that no other replica has confirmed are dropped when the leader
changes. Below the high watermark it is a loss of committed records, which only an unclean election
or a lost disk can cause. The tools show it, and the simulator compares it with the records that
were really lost.
"""

from collections import deque

from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition

KEPT_MAX = 1000


@slotted(frozen=True)
class Loss:
    """Records from `start` to `end` (exclusive) were dropped when following `leader_epoch`."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    start: Offset
    end: Offset
    high_watermark: Offset
    """This replica's high watermark before the truncation."""
    now_ms: int
    restarted_at: Offset | None = None
    """The leader's log start offset, if the leader has deleted the dropped records."""

    @property
    def committed(self) -> int:
        """How many of them this replica knew to be committed."""
        return max(0, min(self.end, self.high_watermark) - self.start)


class Losses:
    """The latest losses, and their total number."""

    __slots__ = ("count", "recent")

    def __init__(self) -> None:
        self.recent: deque[Loss] = deque(maxlen=KEPT_MAX)
        self.count = 0

    def note(self, loss: Loss) -> None:
        """Add a loss, unless it is empty."""
        if loss.start < loss.end:
            self.count += 1
            self.recent.append(loss)
