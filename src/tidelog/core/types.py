"""Types that all packages share.

Offsets, epochs and broker ids are plain ints, because the hot path uses them.
"""

from typing import NamedTuple, TypeAlias

BrokerId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
BrokerEpoch: TypeAlias = int
TopicId: TypeAlias = bytes
"""Sixteen bytes, as on the wire; in `partition.metadata` as URL-safe base64."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochEntry(NamedTuple):
    """A leader epoch and the offset at which its leader first wrote a record."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The exclusive end of a leader epoch, as OffsetForLeaderEpoch returns it."""

    epoch: LeaderEpoch
    end_offset: Offset


CLIENT_LISTENER = "CLIENT"
"""The first client listener in a registration. Older releases know no other name."""
INTERNAL_LISTENER = "INTERNAL"
"""The listener for brokers in a registration."""
LOSSES_TOPIC = "__tidelog_losses"
"""The entries of all brokers' loss ledgers (shell/broker/loss_publisher.py)."""
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", LOSSES_TOPIC}
)
"""Topics that brokers write for themselves; clients can only read them."""


class StorePoint(NamedTuple):
    """A revision of the metadata store, and the checksum of its history up to it."""

    revision: int
    checksum: int
