"""The few types every room shares.

Offsets, epochs and broker ids are plain ints: they travel through the hot path,
and the names of arguments say which is which.
"""

from typing import NamedTuple, TypeAlias

BrokerId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
BrokerEpoch: TypeAlias = int
TopicId: TypeAlias = bytes
"""Sixteen bytes, as on the wire; `partition.metadata` spells them in URL-safe base64."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochEntry(NamedTuple):
    """A leader epoch and the offset at which its leader first wrote."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end?": the epoch known and its exclusive end."""

    epoch: LeaderEpoch
    end_offset: Offset


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""What brokers keep for themselves: clients may read them and no more."""


class StorePoint(NamedTuple):
    """A revision of the metadata store, and the checksum of its history up to there."""

    revision: int
    checksum: int
