"""Before KIP-101: a new follower cuts its log at its own high watermark.

A follower hears of a new high watermark one fetch late, so it may cut what is committed.
"""

from tidelog.lab.modelcheck.published.replication import KafkaReplication, Replica


class TruncateToHighWatermark(KafkaReplication):
    name = "truncate-to-high-watermark"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:  # noqa: ARG002
        return follower.high_watermark
