"""The state of one replica of one partition, which leader.py and follower.py change.

This module makes no decisions. The state is mutable for speed. `freeze()` returns all of it as a
hashable tuple, so that the model checker can run the shipped code.

Invariant: log_start_offset <= high_watermark <= log_end_offset.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.replication.isr import NO_ISR, Isr, freeze_isr, thaw_isr
from tidelog.core.replication.log_end_offset import FollowerProgress
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

FrozenState: TypeAlias = tuple[Any, ...]

NO_EPOCH = -1
"""The epoch before the first registration; any real epoch is newer."""


@slotted
class PartitionConfig:
    """The settings that replication uses, under Kafka's names."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_backoff_ms: int = 1_000
    flush_before_ack: bool = False
    """Count a record for the HW only when it is flushed, on every replica."""
    unclean_leader_election_enable: bool = False


class Following(Enum):
    """The next request of a follower."""

    NOTHING = auto()
    """No request: not a follower, or waiting for the controller."""
    FETCHING = auto()
    ASKING_EPOCH = auto()
    """OffsetForLeaderEpoch: where does my last epoch end? Only historical policies use it: the lab
    runs them in the shipped broker, to show what they lose (lab/historical_truncation.py)."""
    ASKING_OFFSETS = auto()
    """ListOffsets, after OFFSET_OUT_OF_RANGE: where does the leader's log start and end?"""


class Repair(NamedTuple):
    """The range of damaged records to fetch; empty while no fetch may be sent.

    Fetched records below `start` may not be in the log yet: they are in the copy of a segment
    (storage/repair.py).
    """

    start: Offset
    end: Offset
    leader_end: Offset = 0
    """The leader's log end in this leader epoch, when it was last requested; 0 if it was not."""

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is to be fetched now."""
        return self.start == self.end

    @property
    def may_be_beyond_leader(self) -> bool:
        """Whether the leader's log, as far as this replica knows, ends where the range starts."""
        return self.start >= self.leader_end


class Replica:
    """The state of one replica."""

    __slots__ = (
        "brokers",
        "config",
        "epoch_start_offset",
        "epochs",
        "flushed_offset",
        "followers",
        "following",
        "high_watermark",
        "high_watermark_uncertain",
        "isr",
        "leader",
        "leader_epoch",
        "local",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "partition_epoch",
        "policy",
        "producers",
        "refusals",
        "refused_leader",
        "repair",
        "replicas",
        "retry_at_ms",
        "unclean_epoch",
    )

    def __init__(
        self,
        local: BrokerId,
        config: PartitionConfig,
        brokers: Mapping[BrokerId, BrokerEpoch | None],
        epochs: LeaderEpochs,
        *,
        log_start_offset: Offset = 0,
        log_end_offset: Offset = 0,
        high_watermark: Offset = 0,
        high_watermark_uncertain: bool = False,
        policy: TruncationPolicy = LEADER_EPOCH,
        producers: ProducerState | None = None,
    ) -> None:
        self.local = local
        self.config = config
        self.brokers = brokers
        """Brokers that may be in an ISR: registered, unfenced, not shutting down."""
        self.epochs = epochs
        self.producers = producers
        self.policy = policy
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = max(log_start_offset, min(high_watermark, log_end_offset))
        # Recovery has read the log, but after a crash only a flush makes it durable.
        self.flushed_offset = log_start_offset if config.flush_before_ack else log_end_offset
        self.leader: BrokerId | None = None
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: Isr = NO_ISR
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.epoch_start_offset: Offset | None = None
        """Where this leader's epoch starts; None on a follower."""
        self.following = Following.NOTHING
        self.retry_at_ms: int | None = None
        """A follower sends no request before this time."""
        self.refusals = 0
        """Consecutive errors from the leader; they only determine the backoff."""
        self.repair: Repair | None = None
        """Set while damaged records of this follower are replaced. It fetches only these, and
        the leader does not count these fetches as progress."""
        self.unclean_epoch: LeaderEpoch = NO_EPOCH
        """The leader epoch of the last unclean election, which may have lost committed records."""
        self.high_watermark_uncertain = high_watermark_uncertain
        """Records below the high watermark may be uncommitted: the log or a checkpoint was found
        damaged, or two leaders lack them. True until a leader has sent its high watermark."""
        self.refused_leader: BrokerId | None = None
        """The leader for which this replica refused to truncate its log (follower.py)."""
        self.offline = False

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads in the leader epoch that it knows."""
        return self.leader == self.local and not self.offline

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which no transaction is open: the limit for read-committed consumers."""
        producers = self.producers
        if producers is None or not (producers.open_transactions or producers.ended):
            return self.high_watermark
        unstable = producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return max(self.log_start_offset, min(self.high_watermark, unstable))

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of all live replicas, which DeleteRecords returns."""
        return min(
            [self.log_start_offset]
            + [f.log_start_offset for b, f in self.followers.items() if b in self.brokers]
        )

    @property
    def min_isr(self) -> int:
        """How many replicas must be in sync for records to be committed."""
        return min(self.config.min_insync_replicas, len(self.replicas))

    def is_below_min_isr(self, members: int) -> bool:
        """Whether an ISR of this size is too small: `members < min_isr`, with the rarely needed
        comparison last."""
        return members < self.config.min_insync_replicas and members < len(self.replicas)

    @property
    def durable_end_offset(self) -> Offset:
        """The end of this replica's own log as it counts for the high watermark."""
        return self.flushed_offset if self.config.flush_before_ack else self.log_end_offset

    def freeze(self) -> FrozenState:
        """Return all state that can influence a later step, as nested tuples of ints.

        Producers are left out: the model checker has none.
        """
        return (
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.flushed_offset,
            self.epochs.freeze(),
            _frozen(self.leader),
            self.leader_epoch,
            self.partition_epoch,
            self.replicas,
            freeze_isr(self.isr),
            tuple(
                (
                    broker,
                    _frozen(f.log_end_offset),
                    f.log_start_offset,
                    f.leader_log_end_offset,
                    f.last_fetch_ms,
                    f.last_caught_up_ms,
                    _frozen(f.broker_epoch),
                )
                for broker, f in sorted(self.followers.items())
            ),
            _frozen(self.epoch_start_offset),
            self.following.value,
            _frozen(self.retry_at_ms),
            int(self.offline),
            self.repair or (),
            self.unclean_epoch,
            int(self.high_watermark_uncertain),
            _frozen(self.refused_leader),
        )

    def thaw(self, frozen: FrozenState) -> None:
        """Restore the state that `freeze` returned."""
        (
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.flushed_offset,
            epochs,
            leader,
            self.leader_epoch,
            self.partition_epoch,
            self.replicas,
            isr,
            followers,
            epoch_start_offset,
            following,
            retry_at_ms,
            offline,
            repair,
            self.unclean_epoch,
            high_watermark_uncertain,
            refused_leader,
        ) = frozen
        self.epochs = LeaderEpochs.thaw(epochs)
        self.leader = _thawed(leader)
        self.isr = thaw_isr(isr)
        self.followers = {
            f[0]: FollowerProgress(_thawed(f[1]), f[2], f[3], f[4], f[5], _thawed(f[6]))
            for f in followers
        }
        self.epoch_start_offset = _thawed(epoch_start_offset)
        self.following = Following(following)
        self.retry_at_ms = _thawed(retry_at_ms)
        self.offline = bool(offline)
        self.repair = Repair(*repair) if repair else None
        self.high_watermark_uncertain = bool(high_watermark_uncertain)
        self.refused_leader = _thawed(refused_leader)


def _frozen(number: int | None) -> int:
    return -1 if number is None else number


def _thawed(number: int) -> int | None:
    return None if number < 0 else number
