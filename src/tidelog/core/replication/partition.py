"""One replica of one partition: `step(event) -> effects`.

This module chooses the role that the controller assigned, and the function that handles an
event. leader.py has the rules of a leader, follower.py those of a follower, reading.py the
requests that both serve. Nothing here uses a disk, a socket or a clock: the node (core/node)
carries out the effects in order, before the next step.
"""

from collections.abc import Callable
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication import follower, leader, reading
from tidelog.core.replication.replica import Following, PartitionConfig, Replica
from tidelog.core.types import BrokerId

__all__ = ["Partition", "PartitionConfig"]

_NONE = ErrorCode.NONE


class Partition(Replica):
    """A replica and its `step` function."""

    __slots__ = ()

    def step(self, event: on.Event) -> list[do.Effect]:
        """Apply one event to the state; return the effects to carry out, in order."""
        return _HANDLERS[type(event)](self, event)

    def next_question(self, now_ms: int) -> do.Question | None:
        """Return the next request to the leader, if this replica follows one."""
        return follower.next_question(self, now_ms)

    def fetch_again(
        self, answer: do.AnswerFetch, reader: BrokerId | None, *, read_committed: bool = False
    ) -> do.AnswerFetch:
        """Return the response to a fetch that waited, as of now."""
        return reading.fetch_again(self, answer, reader, read_committed=read_committed)

    def produce_error(self, acks: int) -> ErrorCode:
        """Return why no batch can be appended now; NONE if one can."""
        return leader.append_error(self, acks)

    def needs_fetches_of(self, broker: BrokerId) -> bool:
        """Whether the leader must see further fetches of a follower that is at the log end.

        Outside the ISR each of them is an attempt to join, unless a change of the ISR is pending or
        the broker can't join. When that ends, the caller repeats the last fetch.
        """
        return broker not in self.isr.members and leader.may_rejoin(self, broker)

    @property
    def has_followers_outside_isr(self) -> bool:
        return not self.isr.members.issuperset(self.followers)

    def commit_error(self) -> ErrorCode:
        """Return the error for a producer whose records are below the high watermark."""
        if self.is_below_min_isr(len(self.isr.maximal)):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _NONE

    def copy(self) -> "Partition":
        """Return an independent copy; config, brokers, policy and producers are shared."""
        twin = Partition.__new__(Partition)
        for slot in Replica.__slots__:
            setattr(twin, slot, getattr(self, slot))
        twin.epochs = self.epochs.copy()
        twin.followers = {broker: f.copy() for broker, f in self.followers.items()}
        return twin


def _partition_changed(partition: Partition, event: on.PartitionChanged) -> list[do.Effect]:
    """Apply the controller's registration of this partition, unless a newer one is known.

    The same partition epoch means the same content: applying it again would forget a
    pending proposal, and with it a replica that may already be in the ISR.
    """
    if partition.offline or event.partition_epoch <= partition.partition_epoch:
        return []
    assert event.leader_epoch >= partition.leader_epoch, "epochs only grow"
    new_epoch = event.leader_epoch > partition.leader_epoch
    partition.partition_epoch = event.partition_epoch
    partition.leader_epoch = event.leader_epoch
    partition.leader = event.leader
    partition.replicas = tuple(event.replicas)
    partition.unclean_epoch = event.unclean_epoch
    effects: list[do.Effect] = []
    if new_epoch:
        # Also if this replica stays the leader: a fetch that waits under the older epoch is
        # fenced, and a producer can't know whether there was another leader in between.
        effects.append(do.FailWaiters(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if event.leader == partition.local:
        # A leader does not repair its log: it reports the damage and resigns, or serves the rest.
        partition.repair = None
        change = leader.become_leader if new_epoch else leader.update_leadership
        return effects + change(partition, event)
    if new_epoch:
        effects += follower.begin_following(partition, event)
    return effects


def _records_flushed(partition: Partition, event: on.RecordsFlushed) -> list[do.Effect]:
    effects: list[do.Effect] = []
    if not partition.offline:
        partition.flushed_offset = min(
            partition.log_end_offset, max(partition.flushed_offset, event.offset)
        )
    if partition.is_leader:
        if partition.config.flush_before_ack:
            effects.append(do.AdvanceFlushed(partition.flushed_offset))
        leader.advance(partition, event.now_ms, effects)
    return effects


def _brokers_changed(partition: Partition, event: on.BrokersChanged) -> list[do.Effect]:
    """Recompute both watermarks: a fenced broker no longer limits them."""
    effects: list[do.Effect] = []
    if partition.is_leader:
        effects.append(do.AdvanceLowWatermark())
        leader.advance(partition, event.now_ms, effects)
    return effects


def _retention_reached(partition: Partition, event: on.RetentionReached) -> list[do.Effect]:
    effects: list[do.Effect] = []
    if partition.offline:
        return effects
    leader.drop_before(partition, min(event.offset, partition.high_watermark), effects)
    return effects


def _log_end_moved(partition: Partition, event: on.LogEndMoved) -> list[do.Effect]:
    follower.set_log_end(partition, event.offset)
    return [do.WriteEpochs()] if partition.epochs.truncate_to(event.offset) else []


def _damage_found(partition: Partition, event: on.DamageFound) -> list[do.Effect]:
    """Truncate to the first damaged record, and end the repair. The leader has the records."""
    effects: list[do.Effect] = []
    partition.repair = None
    partition.high_watermark = min(partition.high_watermark, event.offset)
    follower.truncate(partition, event.offset, effects)
    return effects


def _log_failed(partition: Partition, _event: on.LogFailed) -> list[do.Effect]:
    partition.offline = True
    partition.following = Following.NOTHING
    return [do.FailWaiters(ErrorCode.KAFKA_STORAGE_ERROR), do.StopFollowing()]


_HANDLERS: dict[type, Callable[[Partition, Any], list[do.Effect]]] = {
    on.ProduceReceived: leader.produce,
    on.FollowerFetchReceived: leader.follower_fetch,
    on.FetchAnswered: follower.fetch_answered,
    on.ConsumerFetchReceived: reading.consumer_fetch,
    on.EpochEndRequested: reading.epoch_end,
    on.OffsetsRequested: reading.offsets,
    on.DeleteRecordsRequested: leader.delete_records,
    on.EpochEndAnswered: follower.epoch_end_answered,
    on.OffsetsAnswered: follower.offsets_answered,
    on.IsrChangeAnswered: leader.isr_change_answered,
    on.PartitionChanged: _partition_changed,
    on.RecordsFlushed: _records_flushed,
    on.BrokersChanged: _brokers_changed,
    on.RetentionReached: _retention_reached,
    on.LogEndMoved: _log_end_moved,
    on.DamageFound: _damage_found,
    on.RepairNeeded: follower.repair_needed,
    on.RepairEnded: follower.repair_ended,
    on.LogFailed: _log_failed,
    on.Ticked: leader.expire_followers,
}
