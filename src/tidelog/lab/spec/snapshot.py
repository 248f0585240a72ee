"""A plain picture of a cluster at one moment, as seen from outside.

Whoever runs replicas (a story, the simulator, the checker) paints it, and invariants.py
judges it; neither has to know how the other works. A picture holds what a person would
write on a board: each replica's log, LEO and HW, whom the controller named leader, and
what clients were promised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog.core.types import BrokerId, EpochEntry, LeaderEpoch, Offset

RecordId: TypeAlias = str | int
"""Tells one produced record from every other."""


class LogEntry(NamedTuple):
    """One record where it lies: two entries are the same record if all three are equal."""

    offset: Offset
    epoch: LeaderEpoch
    id: RecordId

    def __str__(self) -> str:
        return f"{self.id} at {self.offset}"


@dataclass(slots=True)
class ReplicaSnapshot:
    """One replica. Of a broker that is down, what its disk would give back."""

    broker: BrokerId
    alive: bool
    leads: bool
    """It takes itself for the leader; the controller may know better."""
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    epochs: Sequence[EpochEntry]
    log: Sequence[LogEntry]
    """From the log start on, in order; offsets may have gaps where batches were compacted."""


@dataclass(slots=True)
class ControllerSnapshot:
    """What the controller has decided about the partition."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: frozenset[BrokerId]
    elr: frozenset[BrokerId] = frozenset()


@dataclass(slots=True)
class History:
    """What clients were promised, and what they saw."""

    acked: list[LogEntry] = field(default_factory=list)
    """Acknowledged with acks=all: the only acknowledgement that promises anything."""
    consumed: list[LogEntry] = field(default_factory=list)
    committed: dict[Offset, LogEntry] = field(default_factory=dict)
    """Everything that ever lay below a rightful leader's high watermark."""


@dataclass(slots=True)
class ClusterSnapshot:
    """All of it."""

    replicas: Mapping[BrokerId, ReplicaSnapshot]
    controller: ControllerSnapshot
    history: History

    @property
    def leader(self) -> ReplicaSnapshot | None:
        """The rightful leader, if it is up and knows that it leads."""
        if self.controller.leader is None:
            return None
        replica = self.replicas[self.controller.leader]
        knows = replica.leads and replica.leader_epoch == self.controller.leader_epoch
        return replica if replica.alive and knows else None
