"""One broker of a story: the broker's own code on a simulated disk.

A crash discards the node; a start creates a new node on the same disk. The requests of a
node stay in its outbox until the story delivers them.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from tidelog.core.controller.metadata.metadata_store import NO_SESSION, Revision, SessionId
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.node import Node
from tidelog.core.replication.isr import Committed
from tidelog.core.replication.partition import Partition
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directories import LogDisk
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.core.wall_clock import ClockReading
from tidelog.lab.disk_pair import FailingDisk
from tidelog.lab.spec.snapshot import LogEntry, ReplicaSnapshot
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.coordinator_log import read_coordinator_log
from tidelog.lab.story.stage.disk import StoryDisk
from tidelog.lab.story.stage.narration import VisibleState, members
from tidelog.lab.story.stage.records import read_log

NOT_VISIBLE = VisibleState(False, None, -1, 0, 0, 0, (), "", "")


@dataclass(slots=True)
class Sent:
    """A request that a node has sent."""

    sender: "StoryBroker"
    receiver: BrokerId
    correlation: int
    request: object
    leader_epoch: LeaderEpoch
    """The sender's leader epoch; the request is stale once the epoch has changed."""
    incarnation: int
    """The sender's incarnation; a response never reaches a later incarnation."""


class StoryBroker:
    """A broker: a name, a disk, and a node while it is up."""

    def __init__(
        self, name: str, config: NodeConfig, policy: TruncationPolicy, labels: Mapping[int, str]
    ) -> None:
        self.name = name
        self.id = config.broker_id
        self.config = config
        self.policy = policy
        self.disk = StoryDisk()
        """The disk of the log directory with the partition."""
        self.first_disk = FailingDisk(self.disk, reads=False)
        self.other_disks: list[StoryDisk] = []
        """Disks of further log directories, without the partition."""
        self.node: Node | None = None
        self.session: SessionId = NO_SESSION
        self.incarnation = 0
        self.watches: Revision | None = None
        """The last revision of the store that it received; None before it watches the store."""
        self.metadata_withheld = False
        """Whether the story withholds metadata changes from it."""
        self.outbox: list[Sent] = []
        self.registered = False
        """Whether the controller has handled its registration since it started."""
        self.may_join = False
        """Whether its last heartbeat said that it has sent all required reports."""
        self.held_request: int | None = None
        """The correlation id of a request that the story holds, or whose response it holds."""
        self.compared: tuple[int, LeaderEpoch] | None = None
        """The process and leader epoch in which its log was last compared with the leader's."""
        self.visible = NOT_VISIBLE
        self.clock_ahead_ms = 0
        """How far its wall clock is ahead of the story's clock."""
        self.shown: TopicPartition = PARTITION
        """The partition whose replica stories show."""
        self.coordinates = False
        """Whether it hosts internal topics, and `shown` is one of them."""
        self.shows_transactions = False
        """Whether the story has transactions: only then is the last stable offset of interest."""
        self._labels = labels

    @property
    def served(self) -> TopicPartition:
        """The partition that clients request from it."""
        return PARTITION if self.coordinates else self.shown

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.node is not None

    def boot(self, now_ms: int) -> Node:
        """Start a new process on the same disk, with log recovery."""
        self.incarnation += 1
        clock = ClockReading(now_ms + self.clock_ahead_ms, "the only boot", now_ms)
        disks: Disk | list[LogDisk] = self.disk
        if self.other_disks:
            every: tuple[Disk, ...] = (self.first_disk, *self.other_disks)
            disks = [LogDisk(f"disk-{number}", disk) for number, disk in enumerate(every)]
        self.node = Node(
            self.config, disks, self.incarnation, now_ms, policy=self.policy, clock=clock
        )
        self.outbox.clear()
        self.held_request = None
        self.watches = None
        self.registered = self.may_join = False
        return self.node

    def die(self) -> None:
        """Discard the process; its disk stays."""
        self.node = None
        self.outbox.clear()
        self.visible = NOT_VISIBLE

    @property
    def _hosted(self) -> HostedReplica | None:
        return self.node.replicas.get(self.shown) if self.node is not None else None

    @property
    def partition(self) -> Partition | None:
        """Its replica of the story's partition; None if it is down or has no replica."""
        hosted = self._hosted
        return None if hosted is None else hosted.partition

    @property
    def log(self) -> Log | None:
        """The log of that replica."""
        hosted = self._hosted
        return None if hosted is None else hosted.log

    @property
    def repairing(self) -> bool:
        """Whether a repair of damaged records in its log is in progress."""
        hosted = self._hosted
        return hosted is not None and hosted.repair is not None

    @property
    def last_stable_offset(self) -> Offset | None:
        """The last stable offset of that replica; None if the story has no transactions."""
        partition = self.partition
        shown = self.shows_transactions and partition is not None
        return partition.last_stable_offset if shown and partition is not None else None

    def visible_state(self) -> VisibleState:
        """Return the current visible state of its replica."""
        partition, log = self.partition, self.log
        if partition is None or log is None or self.node is None:
            return NOT_VISIBLE
        refused = self.node.refused.get(self.shown)
        isr = proposed = ""
        if partition.is_leader:
            isr = self._members(partition.isr.members)
            if not isinstance(partition.isr, Committed):
                proposed = self._members(partition.isr.proposed)
        return VisibleState(
            partition.is_leader,
            partition.leader,
            partition.leader_epoch,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            self._read_log(log),
            isr,
            proposed,
            None if refused is None else refused.offset,
            self.last_stable_offset,
        )

    def _read_log(self, log: Log) -> tuple[LogEntry, ...]:
        return read_coordinator_log(self.shown, log) if self.coordinates else read_log(log)

    def _members(self, brokers: frozenset[BrokerId]) -> str:
        return members(self._labels[broker] for broker in sorted(brokers))

    def snapshot(self, now_ms: int) -> ReplicaSnapshot:
        """Return a snapshot of its replica; if it is down, what it would recover from its disk."""
        partition, log = self.partition, self.log
        if partition is not None and log is not None:
            return ReplicaSnapshot(
                self.id,
                True,
                partition.is_leader,
                partition.leader_epoch,
                partition.log_start_offset,
                partition.log_end_offset,
                partition.high_watermark,
                partition.epochs.entries,
                self._read_log(log),
                self.last_stable_offset,
                tuple(log.producers.open_transactions.items()) if self.shows_transactions else (),
            )
        directory = LogDirectory.open(deepcopy(self.disk), now_ms, lambda _: self.config.log)
        found = directory.logs.get(self.shown)
        if found is None:
            return ReplicaSnapshot(self.id, self.alive, False, -1, 0, 0, 0, (), ())
        return ReplicaSnapshot(
            self.id,
            self.alive,
            False,
            -1,
            found.log_start_offset,
            found.log_end_offset,
            directory.high_watermarks.get(self.shown, 0),
            found.epochs.entries,
            self._read_log(found),
        )


def as_recovered(snapshot: ReplicaSnapshot) -> VisibleState:
    """Return the visible state of a replica directly after log recovery."""
    return VisibleState(
        False,
        None,
        -1,
        snapshot.log_start_offset,
        snapshot.log_end_offset,
        snapshot.high_watermark,
        tuple(snapshot.log),
        "",
        "",
    )
