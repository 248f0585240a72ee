"""A snapshot of a cluster at one moment, as seen from outside.

Code that runs replicas (a story, for example) creates the snapshot, and invariants.py checks it.
Neither depends on the other. A snapshot has each replica's log, LEO and HW, the controller's
choice of the leader, and the promises to clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog.core.types import BrokerId, EpochEntry, LeaderEpoch, Offset

RecordId: TypeAlias = str | int
"""Distinguishes a produced record from every other."""


class LogEntry(NamedTuple):
    """One record at its offset. Two entries are the same record if all three fields are equal."""

    offset: Offset
    epoch: LeaderEpoch
    id: RecordId

    def __str__(self) -> str:
        return f"{self.id} at {self.offset}"


@dataclass(slots=True)
class ReplicaSnapshot:
    """One replica. If its broker is down, the state that a restart would read from its disk."""

    broker: BrokerId
    alive: bool
    leads: bool
    """The replica acts as leader. The controller may have elected another one since."""
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    epochs: Sequence[EpochEntry]
    log: Sequence[LogEntry]
    """From the log start on, in order; compaction may leave gaps between offsets."""
    last_stable_offset: Offset | None = None
    """The limit for read-committed consumers; None if it is unknown or not of interest."""
    open_transactions: Sequence[tuple[int, Offset]] = ()
    """The producer ids with an open transaction, and its first offset."""


@dataclass(slots=True)
class ControllerSnapshot:
    """The controller's state of the partition."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: frozenset[BrokerId]
    elr: frozenset[BrokerId] = frozenset()


@dataclass(slots=True)
class History:
    """The promises to clients, and the records that they read."""

    acked: list[LogEntry] = field(default_factory=list)
    """Acknowledged with acks=all; acks=0 and acks=1 do not promise that records survive."""
    consumed: list[LogEntry] = field(default_factory=list)
    committed: dict[Offset, LogEntry] = field(default_factory=dict)
    """All records that were ever below the high watermark of the elected leader."""
    read_committed: list[LogEntry] = field(default_factory=list)
    """The records that read-committed consumers got."""
    aborted: set[RecordId] = field(default_factory=set)
    """The records of transactions that were aborted."""


@dataclass(slots=True)
class ClusterSnapshot:
    """The replicas, the controller and the clients' view of one partition."""

    replicas: Mapping[BrokerId, ReplicaSnapshot]
    controller: ControllerSnapshot
    history: History
    unfinished: frozenset[int] | None = None
    """The producer ids whose transaction in this partition the coordinator has not completed; None
    if that is unknown or not of interest."""

    @property
    def leader(self) -> ReplicaSnapshot | None:
        """The leader that the controller elected, if it is up and knows that it leads."""
        if self.controller.leader is None:
            return None
        replica = self.replicas[self.controller.leader]
        knows = replica.leads and replica.leader_epoch == self.controller.leader_epoch
        return replica if replica.alive and knows else None
