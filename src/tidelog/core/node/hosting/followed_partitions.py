"""The partitions that this broker follows, by leader, and those with a new request to send.

The effects of replicas change this (replicas.py); the fetchers read it (following/).
"""

from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.types import BrokerId, TopicPartition


class LeaderPartitions:
    """The partitions that this broker follows at one leader."""

    __slots__ = ("changed", "replicas")

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, HostedReplica] = {}
        self.changed: dict[TopicPartition, None] = {}
        """Partitions whose next request to the leader may have changed."""


class FollowedPartitions:
    """All partitions that this broker follows."""

    __slots__ = ("_placed", "by_leader")

    def __init__(self) -> None:
        self.by_leader: dict[BrokerId, LeaderPartitions] = {}
        self._placed: dict[TopicPartition, LeaderPartitions] = {}

    def follow(self, replica: HostedReplica, leader: BrokerId) -> None:
        """Fetch this replica from that leader from now on."""
        self.stop(replica)
        found = self.by_leader.get(leader)
        if found is None:
            found = self.by_leader[leader] = LeaderPartitions()
        name = replica.topic_partition
        self._placed[name] = found
        found.replicas[name] = replica
        found.changed[name] = None

    def stop(self, replica: HostedReplica) -> None:
        """Stop fetching this replica."""
        name = replica.topic_partition
        found = self._placed.pop(name, None)
        if found is not None and found.replicas.get(name) is replica:
            del found.replicas[name]
            found.changed[name] = None

    def changed(self, replica: HostedReplica) -> None:
        """Let the fetcher compute the replica's next request again."""
        name = replica.topic_partition
        found = self._placed.get(name)
        if found is not None:
            found.changed[name] = None
