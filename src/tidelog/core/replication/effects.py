"""The effects that a replica returns; the node carries them out in order.

The first seven change the replica's log. If one of them fails, the node carries out none of the
later ones in the list and sends LogFailed to the replica.
"""

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.replication.events import Batch, Request
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId, EpochEnd, EpochEntry, LeaderEpoch, Offset


@slotted
class AppendRecords:
    """Append these batches, whose offsets and epochs are set."""

    batches: Sequence[Batch]


@slotted
class TruncateTo:
    """Truncate the log to `offset`; the other fields are from before the truncation."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    epochs: Sequence[EpochEntry] = ()
    """The leader epochs of the removed records."""


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
    """Delete the whole log and start an empty one at `offset`."""

    offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    epochs: Sequence[EpochEntry] = ()
    """The leader epochs of the removed records."""


@slotted
class DropBefore:
    """Move the log start to `offset`."""

    offset: Offset


@slotted
class WriteEpochs:
    """Write the leader-epoch checkpoint before any later effect, or before the next append."""

    before_append: bool = False


@slotted
class AnswerProduce:
    """Respond to a produce request; `base_offset` is None on error."""

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
    """Respond to a produce request when the high watermark has reached `offset`."""

    request: Request
    offset: Offset
    base_offset: Offset


@slotted
class AwaitFlush:
    """Respond to a produce request when all records below `offset` are flushed here."""

    request: Request
    offset: Offset
    base_offset: Offset


@slotted
class AnswerFetch:
    """Respond to a fetch with the records from `offset` up to `upto`, or with an error."""

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
    """Respond to OffsetForLeaderEpoch; `end` is None if the epoch is unknown here."""

    request: Request
    error: ErrorCode
    end: EpochEnd | None


@slotted
class AnswerOffsets:
    """Respond to ListOffsets; a client gets the end that it may read up to."""

    request: Request
    error: ErrorCode
    log_start_offset: Offset
    end_offset: Offset
    end_known: bool
    """False while a new leader does not know the high watermark yet (KIP-207)."""


@slotted
class AnswerDeleteRecords:
    """Respond to DeleteRecords with an error."""

    request: Request
    error: ErrorCode


@slotted
class AwaitLowWatermark:
    """Respond to DeleteRecords when every live replica's log starts at or after `offset`."""

    request: Request
    offset: Offset


@slotted
class AdvanceHighWatermark:
    """Complete produce requests and fetches that wait for the high watermark."""

    offset: Offset


@slotted
class AdvanceFlushed:
    """Complete produce requests that wait for this leader's flush."""

    offset: Offset


@slotted
class AdvanceLowWatermark:
    """A follower's log start has changed: check the DeleteRecords requests that wait."""


@slotted
class ProposeIsr:
    """Propose this ISR to the controller (AlterPartition)."""

    isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int

    @property
    def members(self) -> frozenset[BrokerId]:
        """The proposed ISR without the broker epochs."""
        return frozenset(broker for broker, _ in self.isr)


@slotted
class TakeLeadership:
    """Serve clients: this replica is the leader, and its epoch starts at `start_offset`."""

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
    """Stop fetching until the controller names a leader."""


@slotted
class RefuseTruncation:
    """Report to the controller that the leader lacks committed records: those of this log from
    `offset` up to the high watermark."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset
    high_watermark: Offset


@slotted
class FailWaiters:
    """Fail all requests that wait on this replica: it no longer leads, or leads a new epoch."""

    error: ErrorCode


@slotted
class FetchPosition:
    """A follower's next request: a fetch from this position."""

    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch | None
    log_start_offset: Offset


@slotted
class EpochQuestion:
    """A follower's next request: where does this epoch end? (OffsetForLeaderEpoch)"""

    epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


@slotted
class OffsetsQuestion:
    """A follower's next request: where does the leader's log start and end? (ListOffsets)"""

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
