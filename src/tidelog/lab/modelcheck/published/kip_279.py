"""KIP-279: a new follower truncates to the last record that the leader has too.

This is correct between two replicas. But the leader may itself be in another epoch, and a leader
still counts followers of other epochs when it commits.
"""

from tidelog.lab.modelcheck.published.replication import KafkaReplication, Replica


class Kip279(KafkaReplication):
    """Truncate to the last record that follower and leader share."""

    name = "kip-279"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        matching = 0
        for offset, (ours, theirs) in enumerate(zip(follower.log, leader.log, strict=False)):
            if ours == theirs:
                matching = offset + 1
        return matching


def high_watermark_reached_own_epoch(leader: Replica) -> bool:
    """Return whether a leader's high watermark covers all that its predecessors committed."""
    high_watermark = leader.high_watermark
    return high_watermark == leader.log_end_offset or (
        leader.has_offset(high_watermark)
        and leader.log[high_watermark].epoch == leader.leader_epoch
    )
