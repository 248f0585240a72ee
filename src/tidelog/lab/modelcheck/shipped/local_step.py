"""One replica's step, run by the broker's own code and cached.

The checker's states hold frozen replicas: the fields of a `Partition` as bytes. A step thaws a
frozen replica into a real `Partition`, applies a real event to it, and freezes the result. The
same replica handles the same event in thousands of cluster states. So each step runs once and is
then looked up, which makes checking the real code fast enough.
"""

import marshal
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.log_end_offset import NEVER_MS
from tidelog.core.replication.partition import Partition, PartitionConfig
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.types import BrokerId

FrozenReplica: TypeAlias = bytes
Fields: TypeAlias = tuple[Any, ...]

LOG_END_OFFSET, HIGH_WATERMARK, LEADER, LEADER_EPOCH, PARTITION_EPOCH = 1, 2, 5, 6, 7
ISR, FOLLOWERS, ACCUSED = 9, 10, 18
"""The positions of these values in the fields that `Replica.freeze` returns."""

_FIELDS: dict[FrozenReplica, Fields] = {}
_FROZEN: dict[FrozenReplica, FrozenReplica] = {}


def frozen_replica(fields: Fields) -> FrozenReplica:
    """Return the fields as bytes, the same object for equal fields.

    Bytes cache their hash, tuples do not, and a search hashes the same few thousand replicas
    millions of times. Format 2 has no back references.
    """
    packed = marshal.dumps(fields, 2)
    frozen = _FROZEN.setdefault(packed, packed)
    _FIELDS[frozen] = fields
    return frozen


def fields_of(frozen: FrozenReplica) -> Fields:
    """Return the fields of a frozen replica, also if another process froze it."""
    fields = _FIELDS.get(frozen)
    if fields is None:
        fields = _FIELDS[frozen] = marshal.loads(frozen)
    return fields


Record: TypeAlias = tuple[int, int]
"""A record as (leader epoch, id)."""

NOW_MS = 0
"""The checker has no clock: a follower is caught up, or it never was (NEVER_MS)."""


@dataclass(slots=True)
class ModelBatch:
    """A batch of one record; its id stands for its content."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    record: int
    producer_id: int = -1

    def assign(self, base_offset: int, leader_epoch: int) -> None:
        """Set offset and leader epoch, as for a real batch."""
        self.base_offset = self.last_offset = base_offset
        self.leader_epoch = leader_epoch


class Replicas:
    """All replicas of the partition, with a cache of their steps."""

    def __init__(self, brokers: int, config: PartitionConfig, policy: TruncationPolicy) -> None:
        self._config = config
        self._policy = policy
        self._brokers: dict[BrokerId, int | None] = dict.fromkeys(range(brokers))
        self._steps: dict[Any, tuple[FrozenReplica, list[do.Effect]]] = {}
        self._questions: dict[Any, do.Question | None] = {}

    def fresh(
        self, broker: BrokerId, high_watermark: int = 0, log: tuple[Record, ...] = ()
    ) -> FrozenReplica:
        """Return the frozen state of a replica that has just started on this log."""
        epochs = LeaderEpochs()
        for offset, (epoch, _) in enumerate(log):
            epochs.assign(epoch, offset)
        return frozen_replica(self._partition(broker, epochs, len(log), high_watermark).freeze())

    def step(
        self, broker: BrokerId, frozen: FrozenReplica, event: on.Event
    ) -> tuple[FrozenReplica, list[do.Effect]]:
        """Apply the event; return the replica's next frozen and its effects."""
        key = (broker, frozen, _key(event))
        known = self._steps.get(key)
        if known is None:
            partition = self.thawed(broker, frozen)
            effects = partition.step(event)
            _forget_times(partition)
            known = self._steps[key] = (frozen_replica(partition.freeze()), effects)
        return known

    def question(self, broker: BrokerId, frozen: FrozenReplica) -> do.Question | None:
        """Return the request that the replica would now send to its leader, if any."""
        key = (broker, frozen)
        if key not in self._questions:
            self._questions[key] = self.thawed(broker, frozen).next_question(NOW_MS)
        return self._questions[key]

    def lagging(self, broker: BrokerId, frozen: FrozenReplica, follower: BrokerId) -> FrozenReplica:
        """Return the leader's frozen state if `follower` has not caught up for too long."""
        partition = self.thawed(broker, frozen)
        partition.followers[follower].last_caught_up_ms = NEVER_MS
        return frozen_replica(partition.freeze())

    def thawed(self, broker: BrokerId, frozen: FrozenReplica) -> Partition:
        """Return a real partition with the state of a frozen one."""
        partition = self._partition(broker, LeaderEpochs())
        partition.thaw(fields_of(frozen))
        return partition

    def _partition(
        self,
        broker: BrokerId,
        epochs: LeaderEpochs,
        log_end_offset: int = 0,
        high_watermark: int = 0,
    ) -> Partition:
        return Partition(
            broker,
            self._config,
            self._brokers,
            epochs,
            log_end_offset=log_end_offset,
            high_watermark=high_watermark,
            policy=self._policy,
        )


def _forget_times(partition: Partition) -> None:
    """Reset two fields that only matter with a clock.

    They let a fetch that is one round trip behind count as caught up. Without a clock they
    have no effect, and would only multiply the states.
    """
    for follower in partition.followers.values():
        follower.leader_log_end_offset = -1
        follower.last_fetch_ms = NEVER_MS


def _key(event: on.Event) -> tuple[Any, ...]:
    match event:
        case on.ProduceReceived(batch=ModelBatch(record=record)):
            return ("produce", record)
        case on.FetchAnswered():
            batches = tuple(
                (b.leader_epoch, b.record) for b in event.batches if isinstance(b, ModelBatch)
            )
            return (
                "reply",
                event.leader_epoch,
                event.offset,
                event.error,
                batches,
                event.high_watermark,
                event.diverging,
            )
        case on.FollowerFetchReceived():
            return (
                "fetch",
                event.replica,
                event.offset,
                event.leader_epoch,
                event.last_fetched_epoch,
            )
        case on.PartitionChanged():
            return ("learn", event.leader, event.leader_epoch, event.partition_epoch, event.isr)
        case on.IsrChangeAnswered():
            return (
                "isr",
                event.proposed_isr,
                event.proposed_at,
                event.error,
                event.leader_epoch,
                event.partition_epoch,
                event.isr,
            )
        case _:
            return (repr(event),)
