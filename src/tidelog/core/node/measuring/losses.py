"""What this broker's replicas threw away, so that loss is reported and never guessed.

A truncation is nothing special: records that no other replica confirmed go when leaders
change. Below the high watermark it is loss of committed records, which only an unclean
election or a lost disk can bring about; the tools show it, and the simulator compares it
with what was really lost.
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
    """This replica's, before the cut."""
    now_ms: int
    restarted_at: Offset | None = None
    """Set when the leader's log starts only there: it no longer keeps what was dropped."""

    @property
    def committed(self) -> int:
        """How many of them this replica knew to be committed."""
        return max(0, min(self.end, self.high_watermark) - self.start)


class Losses:
    """The latest losses, and how many there were."""

    __slots__ = ("count", "recent")

    def __init__(self) -> None:
        self.recent: deque[Loss] = deque(maxlen=KEPT_MAX)
        self.count = 0

    def note(self, loss: Loss) -> None:
        if loss.start < loss.end:
            self.count += 1
            self.recent.append(loss)
