"""KIP-101: a new follower truncates to where the epoch of its last record ends on the leader.

A leader that knows neither the epoch nor a later one has no answer. Then the follower truncates
to its own high watermark, which can again lose committed records.
"""

from tidelog.lab.modelcheck.published.replication import KafkaReplication, Replica


class Kip101(KafkaReplication):
    """Truncate to the leader's end offset for the epoch of the follower's last record."""

    name = "kip-101"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        if not follower.log:
            return 0
        epoch = follower.log[-1].epoch
        if leader.log and leader.log[-1].epoch == epoch:
            return leader.log_end_offset
        larger = (offset for offset, record in enumerate(leader.log) if record.epoch > epoch)
        return next(larger, follower.high_watermark)
