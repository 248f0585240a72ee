"""Before KIP-101: a new follower truncates its log to its own high watermark.

A follower receives a new high watermark one fetch late, so it may truncate committed records.
"""

from tidelog.lab.modelcheck.published.replication import KafkaReplication, Replica


class TruncateToHighWatermark(KafkaReplication):
    """Truncate to the follower's own high watermark."""

    name = "truncate-to-high-watermark"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:  # noqa: ARG002
        return follower.high_watermark
