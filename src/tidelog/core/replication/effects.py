"""Everything a replica can ask for, in the order in which it must be done.

The first five change the replica's log; if one of them fails, nothing after it in the
same list may be carried out, and the replica is told LogFailed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.replication.events import Batch, Request
from tidelog.core.types import BrokerEpoch, BrokerId, EpochEnd, LeaderEpoch, Offset


@dataclass(slots=True)
class AppendRecords:
    """Write these batches, already stamped, at the end of the log."""

    batches: Sequence[Batch]


@dataclass(slots=True)
class TruncateTo:
    """Cut the log so that it ends at `offset`; the last two fields say what was there."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset


@dataclass(slots=True)
class RestartAt:
    """Throw the whole log away; it starts anew at `offset`."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset


@dataclass(slots=True)
class DropBefore:
    """Move the log start to `offset`."""

    offset: Offset


@dataclass(slots=True)
class WriteEpochs:
    """Write the leader-epoch checkpoint before anything else is served."""


@dataclass(slots=True)
class AnswerProduce:
    """Tell the producer; `base_offset` is None on error."""

    request: Request
    error: ErrorCode
    base_offset: Offset | None


@dataclass(slots=True)
class AwaitCommit:
    """Tell the producer once the high watermark has reached `offset`."""

    request: Request
    offset: Offset
    base_offset: Offset


@dataclass(slots=True)
class AwaitFlush:
    """Tell the producer once everything below `offset` is on this replica's disk."""

    request: Request
    offset: Offset
    base_offset: Offset


@dataclass(slots=True)
class AnswerFetch:
    """Tell the fetcher: records from `offset` up to `upto`, or why there are none."""

    request: Request
    error: ErrorCode
    offset: Offset
    upto: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None


@dataclass(slots=True)
class AnswerEpochEnd:
    """Tell where the epoch ends; None when nothing can be said."""

    request: Request
    error: ErrorCode
    end: EpochEnd | None


@dataclass(slots=True)
class AnswerOffsets:
    """Tell where the log starts and ends, for this asker."""

    request: Request
    error: ErrorCode
    log_start_offset: Offset
    end_offset: Offset
    end_known: bool
    """False while a new leader can't yet know the high watermark (KIP-207)."""


@dataclass(slots=True)
class AnswerDeleteRecords:
    """Tell why records can't be deleted."""

    request: Request
    error: ErrorCode


@dataclass(slots=True)
class AwaitLowWatermark:
    """Tell the client once every live replica's log starts at or after `offset`."""

    request: Request
    offset: Offset


@dataclass(slots=True)
class AdvanceHighWatermark:
    """Wake whoever waits for commits or for committed records."""

    offset: Offset


@dataclass(slots=True)
class AdvanceFlushed:
    """Wake whoever waits for this leader's own disk."""

    offset: Offset


@dataclass(slots=True)
class AdvanceLowWatermark:
    """Some follower's log start moved: wake whoever waits for deletion."""


@dataclass(slots=True)
class ProposeIsr:
    """Ask the controller for this ISR (AlterPartition)."""

    isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int

    @property
    def members(self) -> frozenset[BrokerId]:
        """The proposed ISR without the broker epochs."""
        return frozenset(broker for broker, _ in self.isr)


@dataclass(slots=True)
class TakeLeadership:
    """Serve clients: this replica leads from `start_offset` on."""

    leader_epoch: LeaderEpoch
    start_offset: Offset
    isr: tuple[BrokerId, ...]
    recovering: bool


@dataclass(slots=True)
class FollowLeader:
    """Fetch from this leader, in this epoch."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(slots=True)
class StopFollowing:
    """Fetch no more until the controller says whom to follow."""


@dataclass(slots=True)
class FailWaiters:
    """This replica no longer leads: nobody who waits here will be served."""

    error: ErrorCode


@dataclass(slots=True)
class FetchPosition:
    """What a follower would ask its leader now: the next records."""

    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch | None
    log_start_offset: Offset


@dataclass(slots=True)
class EpochQuestion:
    """What a follower would ask its leader now: where does this epoch end?"""

    epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


@dataclass(slots=True)
class OffsetsQuestion:
    """What a follower would ask its leader now: where does your log start and end?"""

    leader_epoch: LeaderEpoch


Question: TypeAlias = FetchPosition | EpochQuestion | OffsetsQuestion

Effect: TypeAlias = (
    AppendRecords
    | TruncateTo
    | RestartAt
    | DropBefore
    | WriteEpochs
    | AnswerProduce
    | AwaitCommit
    | AwaitFlush
    | AnswerFetch
    | AnswerEpochEnd
    | AnswerOffsets
    | AnswerDeleteRecords
    | AwaitLowWatermark
    | AdvanceHighWatermark
    | AdvanceFlushed
    | AdvanceLowWatermark
    | ProposeIsr
    | TakeLeadership
    | FollowLeader
    | StopFollowing
    | FailWaiters
)
