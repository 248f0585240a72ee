"""One replica of one partition as plain data: what leader.py and follower.py act upon.

Nothing here decides. The state is mutable for speed; `freeze()` gives a hashable picture
of all of it and `copy()` a twin, so that the model checker runs this very state.

Always true: log_start_offset <= high_watermark <= log_end_offset.
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

Picture: TypeAlias = tuple[Any, ...]

NO_EPOCH = -1
"""Before the controller's first word; any real epoch is newer."""


@slotted
class PartitionConfig:
    """The settings that replication itself needs, under Kafka's names."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_backoff_ms: int = 1_000
    flush_before_ack: bool = False
    """Count a record for the HW only once it is on stable storage, on every replica."""


class Following(Enum):
    """What a follower does next."""

    NOTHING = auto()
    """Not a follower, or waiting for the controller's word."""
    FETCHING = auto()
    ASKING_EPOCH = auto()
    """Historical policies: where does my last epoch end?"""
    ASKING_OFFSETS = auto()
    """Out of range: where does the leader's log start and end?"""


class Repair(NamedTuple):
    """Damaged records from `start` to `end`; the log is whole below `start`."""

    start: Offset
    end: Offset


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
        # Recovery has read everything below, but only a flush makes it durable again.
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
        """A follower asks nothing before this time."""
        self.refusals = 0
        """How often in a row the leader refused: only how long to wait hangs on it."""
        self.repair: Repair | None = None
        """Set while damaged records of this follower are being replaced. It fetches only these,
        and its leader does not count these fetches as progress."""
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
        """Whether this replica takes itself for the leader."""
        return self.leader == self.local and not self.offline

    @property
    def last_stable_offset(self) -> Offset:
        """Read-committed consumers read below this: no open transaction lies before it."""
        producers = self.producers
        if producers is None or not (producers.open_transactions or producers.ended):
            return self.high_watermark
        unstable = producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return max(self.log_start_offset, min(self.high_watermark, unstable))

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of all live replicas: what DeleteRecords answers."""
        return min(
            [self.log_start_offset]
            + [f.log_start_offset for b, f in self.followers.items() if b in self.brokers]
        )

    @property
    def min_isr(self) -> int:
        """How many replicas must be in sync before anything commits."""
        return min(self.config.min_insync_replicas, len(self.replicas))

    def is_below_min_isr(self, members: int) -> bool:
        """Whether an ISR of so many is too small: `members < min_isr`, the rare case last."""
        return members < self.config.min_insync_replicas and members < len(self.replicas)

    @property
    def durable_end_offset(self) -> Offset:
        """How far this replica's own log counts towards the high watermark."""
        return self.flushed_offset if self.config.flush_before_ack else self.log_end_offset

    def freeze(self) -> Picture:
        """Everything that can influence a later step, as nested tuples of ints.

        Producers are left out: a replica that has them is not pictured.
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

    def thaw(self, picture: Picture) -> None:
        """Take the state that `freeze` pictured."""
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
        ) = picture
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
