"""Everything that can happen to one replica of a partition.

Events are nouns and past participles; their counterpart, what a replica asks for in
return, is effects.py. They are mutable slotted classes for speed (a frozen one costs
six times as much to make), and nobody changes one after making it.

`request` is an opaque token: whoever asked gets it back in the answer.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId, EpochEnd, LeaderEpoch, Offset

Request: TypeAlias = object

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1

NO_PROGRESS: Offset = -1
"""The log start in a fetch that says nothing of the follower's log: a repair fetches records
that it has yet to put in place (follower.py)."""


class Batch(Protocol):
    """What replication needs to know of a record batch; record.RecordBatch is one."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    producer_id: int

    def assign(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Stamp the batch with its place in the log."""


@slotted
class PartitionChanged:
    """The controller's word on this partition, as the metadata store has it."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Sequence[BrokerId]
    replicas: Sequence[BrokerId]
    recovering: bool
    """True when this leader was elected uncleanly and has not yet said so was noted."""
    now_ms: int
    unclean_epoch: LeaderEpoch = -1
    """The leader epoch of the last unclean election; -1 if there was none."""


@slotted
class ProduceReceived:
    """A client's batch, already checked by itself (record/validation.py)."""

    request: Request
    batch: Batch
    acks: int
    now_ms: int
    admitted: bool = False
    """Whether `Partition.produce_error` was called in this step and found no error."""


@slotted
class FollowerFetchReceived:
    """A follower asks for what comes next, and thereby tells how far it has come."""

    request: Request
    replica: BrokerId
    offset: Offset
    leader_epoch: LeaderEpoch | None
    last_fetched_epoch: LeaderEpoch | None
    log_start_offset: Offset
    broker_epoch: BrokerEpoch | None
    now_ms: int


@slotted
class ConsumerFetchReceived:
    """A consumer asks for committed records."""

    request: Request
    offset: Offset
    leader_epoch: LeaderEpoch | None
    last_fetched_epoch: LeaderEpoch | None
    read_committed: bool
    any_replica: bool
    """True when the client knows that followers may serve it too (KIP-392)."""


@slotted
class EpochEndRequested:
    """OffsetForLeaderEpoch: where does this epoch end in your log?"""

    request: Request
    leader_epoch: LeaderEpoch | None
    epoch: LeaderEpoch | None


@slotted
class OffsetsRequested:
    """ListOffsets: where does your log start and end?"""

    request: Request
    leader_epoch: LeaderEpoch | None
    from_client: bool
    read_committed: bool


@slotted
class DeleteRecordsRequested:
    """A client asks to drop what lies before `offset`; None means up to the HW."""

    request: Request
    offset: Offset | None


@slotted
class FetchAnswered:
    """The leader's reply to this follower's fetch.

    `leader_epoch` and `offset` are those of the request: a reply to a question that this
    replica would no longer ask is void. The node has one fetch of a replica under way at a
    time and passes each reply once.
    """

    leader_epoch: LeaderEpoch
    offset: Offset
    error: ErrorCode
    batches: Sequence[Batch]
    high_watermark: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None
    now_ms: int


@slotted
class EpochEndAnswered:
    """The leader's reply to OffsetForLeaderEpoch; asked by historical policies only."""

    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch
    error: ErrorCode
    end: EpochEnd | None
    now_ms: int


@slotted
class OffsetsAnswered:
    """The leader's log start and end, asked after an OFFSET_OUT_OF_RANGE."""

    leader_epoch: LeaderEpoch
    error: ErrorCode
    log_start_offset: Offset
    log_end_offset: Offset
    now_ms: int


@slotted
class IsrChangeAnswered:
    """The controller's reply to ProposeIsr; the first two fields repeat the proposal."""

    proposed_isr: frozenset[BrokerId]
    proposed_at: int
    error: ErrorCode
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Sequence[BrokerId]
    now_ms: int


@slotted
class RecordsFlushed:
    """Everything below `offset` is on stable storage.

    Never the completion of a flush that began before the log was last cut: the node asks
    the log how far it is durable (storage's flush generation).
    """

    offset: Offset
    now_ms: int


@slotted
class RetentionReached:
    """Old segments of this replica are due to go: everything before `offset`."""

    offset: Offset


@slotted
class LogEndMoved:
    """The log could only be cut at a batch boundary, and ends earlier than asked."""

    offset: Offset


@slotted
class DamageFound:
    """From `offset` on this replica lacks records that it once held; a leader has them."""

    offset: Offset


@slotted
class RepairNeeded:
    """Records from `start` to `end` (exclusive) are damaged here: fetch these and no others.

    If both are the same, fetch nothing for now: the log is whole only below `start`.
    """

    start: Offset
    end: Offset


@slotted
class RepairEnded:
    """The damaged records are replaced: fetch from the log end again."""


@slotted
class BrokersChanged:
    """Some broker was fenced or unfenced, so another high watermark may be due."""

    now_ms: int


@slotted
class LogFailed:
    """The disk under this replica refused; nothing more may be promised."""


@slotted
class Ticked:
    """Time to look for followers that have fallen behind."""

    now_ms: int


Event: TypeAlias = (
    PartitionChanged
    | ProduceReceived
    | FollowerFetchReceived
    | ConsumerFetchReceived
    | EpochEndRequested
    | OffsetsRequested
    | DeleteRecordsRequested
    | FetchAnswered
    | EpochEndAnswered
    | OffsetsAnswered
    | IsrChangeAnswered
    | RecordsFlushed
    | RetentionReached
    | LogEndMoved
    | DamageFound
    | RepairNeeded
    | RepairEnded
    | BrokersChanged
    | LogFailed
    | Ticked
)
