"""Everything a replica can ask for, in the order in which it must be done.

The first seven change the replica's log; if one of them fails, nothing after it in the
same list may be carried out, and the replica is told LogFailed.
"""

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.replication.events import Batch, Request
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId, EpochEnd, LeaderEpoch, Offset


@slotted
class AppendRecords:
    """Write these batches, already stamped, at the end of the log."""

    batches: Sequence[Batch]


@slotted
class TruncateTo:
    """Cut the log so that it ends at `offset`; the last two fields say what was there."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset


@slotted
class ReplaceRecords:
    """Replace damaged records with these batches of the leader.

    `upto`: the leader has no other batch between the last of these and this offset.
    """

    batches: Sequence[Batch]
    upto: Offset


@slotted
class AbandonRepair:
    """Truncate to the first damaged record: the leader does not have the damaged records."""


@slotted
class RestartAt:
    """Throw the whole log away; it starts anew at `offset`."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset


@slotted
class DropBefore:
    """Move the log start to `offset`."""

    offset: Offset


@slotted
class WriteEpochs:
    """Write the leader-epoch checkpoint before anything else is served."""


@slotted
class AnswerProduce:
    """Tell the producer; `base_offset` is None on error."""

    request: Request
    error: ErrorCode
    base_offset: Offset | None


@slotted
class DuplicateFound:
    """The batch is a retry of one that was appended with `timestamp`; the answer follows."""

    request: Request
    timestamp: int


@slotted
class AwaitCommit:
    """Tell the producer once the high watermark has reached `offset`."""

    request: Request
    offset: Offset
    base_offset: Offset


@slotted
class AwaitFlush:
    """Tell the producer once everything below `offset` is on this replica's disk."""

    request: Request
    offset: Offset
    base_offset: Offset


@slotted
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


@slotted
class AnswerEpochEnd:
    """Tell where the epoch ends; None when nothing can be said."""

    request: Request
    error: ErrorCode
    end: EpochEnd | None


@slotted
class AnswerOffsets:
    """Tell where the log starts and ends, for this asker."""

    request: Request
    error: ErrorCode
    log_start_offset: Offset
    end_offset: Offset
    end_known: bool
    """False while a new leader can't yet know the high watermark (KIP-207)."""


@slotted
class AnswerDeleteRecords:
    """Tell why records can't be deleted."""

    request: Request
    error: ErrorCode


@slotted
class AwaitLowWatermark:
    """Tell the client once every live replica's log starts at or after `offset`."""

    request: Request
    offset: Offset


@slotted
class AdvanceHighWatermark:
    """Wake whoever waits for commits or for committed records."""

    offset: Offset


@slotted
class AdvanceFlushed:
    """Wake whoever waits for this leader's own disk."""

    offset: Offset


@slotted
class AdvanceLowWatermark:
    """Some follower's log start moved: wake whoever waits for deletion."""


@slotted
class ProposeIsr:
    """Ask the controller for this ISR (AlterPartition)."""

    isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int

    @property
    def members(self) -> frozenset[BrokerId]:
        """The proposed ISR without the broker epochs."""
        return frozenset(broker for broker, _ in self.isr)


@slotted
class TakeLeadership:
    """Serve clients: this replica leads from `start_offset` on."""

    leader_epoch: LeaderEpoch
    start_offset: Offset
    isr: tuple[BrokerId, ...]
    recovering: bool


@slotted
class FollowLeader:
    """Fetch from this leader, in this epoch."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@slotted
class StopFollowing:
    """Fetch no more until the controller says whom to follow."""


@slotted
class RefuseTruncation:
    """Report the leader to the controller: it lacks the records of this log from `offset` on,
    and those below the high watermark were committed."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset
    high_watermark: Offset


@slotted
class FailWaiters:
    """This replica no longer leads: nobody who waits here will be served."""

    error: ErrorCode


@slotted
class FetchPosition:
    """What a follower would ask its leader now: the next records."""

    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch | None
    log_start_offset: Offset


@slotted
class EpochQuestion:
    """What a follower would ask its leader now: where does this epoch end?"""

    epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


@slotted
class OffsetsQuestion:
    """What a follower would ask its leader now: where does your log start and end?"""

    leader_epoch: LeaderEpoch


Question: TypeAlias = FetchPosition | EpochQuestion | OffsetsQuestion

Effect: TypeAlias = (
    AppendRecords
    | TruncateTo
    | ReplaceRecords
    | AbandonRepair
    | RestartAt
    | DropBefore
    | WriteEpochs
    | AnswerProduce
    | DuplicateFound
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
    | RefuseTruncation
    | FailWaiters
)
