"""One broker of a story: the broker's own code on a disk of ours.

A crash is forgetting the node; a start is a new node on the same disk. What a node wants
to send lies in its outbox until the story lets it go.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from tidelog.core.controller.metadata.metadata_store import NO_SESSION, Revision, SessionId
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.node import Node
from tidelog.core.replication.isr import Committed
from tidelog.core.replication.partition import Partition
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import BrokerId, LeaderEpoch
from tidelog.core.wall_clock import ClockReading
from tidelog.lab.spec.snapshot import ReplicaSnapshot
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.disk import StoryDisk
from tidelog.lab.story.stage.narration import Seen, members
from tidelog.lab.story.stage.records import read_log

NOTHING_SEEN = Seen(False, None, -1, 0, 0, 0, (), "", "")


@dataclass(slots=True)
class Sent:
    """A request that a node wants delivered."""

    sender: "StoryBroker"
    receiver: BrokerId
    correlation: int
    request: object
    leader_epoch: LeaderEpoch
    """Under which it was written: a later epoch makes it stale."""
    incarnation: int
    """Of the sender: a reply never reaches its next life."""


class StoryBroker:
    """A name, a disk, and a node while it is up."""

    def __init__(
        self, name: str, config: NodeConfig, policy: TruncationPolicy, labels: Mapping[int, str]
    ) -> None:
        self.name = name
        self.id = config.broker_id
        self.config = config
        self.policy = policy
        self.disk = StoryDisk()
        self.node: Node | None = None
        self.session: SessionId = NO_SESSION
        self.incarnation = 0
        self.watches: Revision | None = None
        """What it has seen of the store; None before it watches."""
        self.deaf = False
        """It hears no news of the cluster until it is told."""
        self.outbox: list[Sent] = []
        self.registered = False
        """Whether the controller has handled its registration since it started."""
        self.may_join = False
        """Its last heartbeat says that it has nothing to report first."""
        self.in_limbo: int | None = None
        """A request of which the story holds on to the request or the reply."""
        self.seen = NOTHING_SEEN
        self.clock_ahead_ms = 0
        """How far its wall clock is ahead of the story's time."""
        self._labels = labels

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.node is not None

    def boot(self, now_ms: int) -> Node:
        """A new process on the same disk; recovery happens here."""
        self.incarnation += 1
        clock = ClockReading(now_ms + self.clock_ahead_ms, "the only boot", now_ms)
        self.node = Node(
            self.config, self.disk, self.incarnation, now_ms, policy=self.policy, clock=clock
        )
        self.outbox.clear()
        self.in_limbo = None
        self.watches = None
        self.registered = self.may_join = False
        return self.node

    def die(self) -> None:
        """The process is gone; its disk stays."""
        self.node = None
        self.outbox.clear()
        self.seen = NOTHING_SEEN

    @property
    def partition(self) -> Partition | None:
        """Its replica of the story's partition, while it is up and has one."""
        hosted = self.node.replicas.get(PARTITION) if self.node is not None else None
        return None if hosted is None else hosted.partition

    @property
    def log(self) -> Log | None:
        """The log under that replica."""
        hosted = self.node.replicas.get(PARTITION) if self.node is not None else None
        return None if hosted is None else hosted.log

    @property
    def repairing(self) -> bool:
        """Whether damaged records of its log are being replaced."""
        hosted = self.node.replicas.get(PARTITION) if self.node is not None else None
        return hosted is not None and hosted.repair is not None

    def look(self) -> Seen:
        """What is visible of its replica now."""
        partition, log = self.partition, self.log
        if partition is None or log is None or self.node is None:
            return NOTHING_SEEN
        refused = self.node.refused.get(PARTITION)
        isr = proposed = ""
        if partition.is_leader:
            isr = self._members(partition.isr.members)
            if not isinstance(partition.isr, Committed):
                proposed = self._members(partition.isr.proposed)
        return Seen(
            partition.is_leader,
            partition.leader,
            partition.leader_epoch,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            read_log(log),
            isr,
            proposed,
            None if refused is None else refused.offset,
        )

    def _members(self, brokers: frozenset[BrokerId]) -> str:
        return members(self._labels[broker] for broker in sorted(brokers))

    def picture(self, now_ms: int) -> ReplicaSnapshot:
        """For the invariants; of a broker that is down, what its disk would give back."""
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
                read_log(log),
            )
        directory = LogDirectory.open(deepcopy(self.disk), now_ms, lambda _: self.config.log)
        found = directory.logs.get(PARTITION)
        if found is None:
            return ReplicaSnapshot(self.id, self.alive, False, -1, 0, 0, 0, (), ())
        return ReplicaSnapshot(
            self.id,
            self.alive,
            False,
            -1,
            found.log_start_offset,
            found.log_end_offset,
            directory.high_watermarks.get(PARTITION, 0),
            found.epochs.entries,
            read_log(found),
        )


def as_recovered(picture: ReplicaSnapshot) -> Seen:
    """How a replica looks when its process has just found its log."""
    return Seen(
        False,
        None,
        -1,
        picture.log_start_offset,
        picture.log_end_offset,
        picture.high_watermark,
        tuple(picture.log),
        "",
        "",
    )
