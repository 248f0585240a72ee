"""One replica on this broker (its state machine, its log, and the requests that wait at it), and
the index of the replicas that follow a leader.
"""

from collections.abc import Collection, Iterable
from typing import Any

from tidelog.core.node.measuring.counters import Traffic
from tidelog.core.node.waiters import PartQueue
from tidelog.core.record.validation import BatchRules
from tidelog.core.replication.partition import Partition
from tidelog.core.slotted import field, slotted
from tidelog.core.storage.log import Log
from tidelog.core.storage.repair import LogRepair
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition


@slotted(eq=False)
class HostedReplica:
    """One replica on this broker."""

    topic_partition: TopicPartition
    topic_id: TopicId
    partition: Partition
    log: Log
    rules: BatchRules
    traffic: Traffic
    """The topic's counters on this broker."""
    commits: PartQueue = field(default_factory=PartQueue)
    """Producers that wait for the high watermark."""
    flushes: PartQueue = field(default_factory=PartQueue)
    """Producers with acks=1 that wait for this leader's disk, where flush-before-ack is on."""
    deletions: PartQueue = field(default_factory=PartQueue)
    """DeleteRecords requests that wait for the low watermark."""
    polls: dict[Any, Any] = field(default_factory=dict)
    """Fetches that wait at this replica (serving/long_poll.py), with their part for it."""
    resting: dict[Any, Any] = field(default_factory=dict)
    """Session partitions whose readers are caught up, with their sessions (serving/fetch.py)."""
    sent: dict[BrokerId, Offset] = field(default_factory=dict)
    """By follower: the first offset of the records in its last response, if it had any."""
    out_since_ms: dict[BrokerId, int] = field(default_factory=dict)
    """Replicas outside the ISR, and since when this broker knows that."""
    isr: tuple[BrokerId, ...] = ()
    """The ISR of the image that was applied last; empty before the first."""
    leader_high_watermark: Offset = -1
    """The leader's high watermark in its last response; only for display."""
    leader_throttled: bool = False
    """Whether `leader.replication.throttled.replicas` has this replica."""
    follower_throttled: bool = False
    acks_seen: int = 0
    """The levels of acks that the latest note of this leader epoch covers
    (core/lineage/acks_history.py)."""
    acks_notes: int = 0
    """How many notes there are of this leader epoch."""
    led_epoch: LeaderEpoch = -1
    """The last leader epoch in which this process led the partition."""
    led_high_watermark: Offset = -1
    """The high watermark at the end of that epoch; -1 before."""
    unclean_recorded: LeaderEpoch = -1
    """The epoch of the latest unclean election that this process wrote to the loss ledger."""
    repair: LogRepair | None = None
    """Replaces damaged records with those of the leader (upkeep/repairs.py)."""

    def note_isr(
        self, replicas: Iterable[BrokerId], isr: Collection[BrokerId], now_ms: int
    ) -> None:
        """Note since when each replica is outside the ISR."""
        before = self.out_since_ms
        self.out_since_ms = {b: before.get(b, now_ms) for b in replicas if b not in isr}


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
