"""KIP-279: a new follower goes back from its tail to the last record the leader has too.

Right between two replicas. But the leader asked may itself be of another epoch, and commits are
still counted from followers of other epochs.
"""

from tidelog.lab.modelcheck.published.replication import KafkaReplication, Replica


class Kip279(KafkaReplication):
    name = "kip-279"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        matching = 0
        for offset, (ours, theirs) in enumerate(zip(follower.log, leader.log, strict=False)):
            if ours == theirs:
                matching = offset + 1
        return matching


def high_watermark_reached_own_epoch(leader: Replica) -> bool:
    """True once a new leader knows of all that its predecessor may have committed."""
    high_watermark = leader.high_watermark
    return high_watermark == leader.log_end_offset or (
        leader.has_offset(high_watermark)
        and leader.log[high_watermark].epoch == leader.leader_epoch
    )
