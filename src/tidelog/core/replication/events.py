"""The events that a replica of a partition handles.

The name of an event is a noun and a past participle. The effects that a replica returns are in
effects.py. Events are mutable slotted classes for speed (creating a frozen one takes six times as
long), but no code changes an event after it is created.

`request` is an opaque token that the response carries back to the sender.
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
"""The log start in a fetch of a repair, which reports no progress: the fetched records are not in
the follower's log yet (follower.py)."""


class Batch(Protocol):
    """The fields of a record batch that replication reads; see record.RecordBatch."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    producer_id: int

    def assign(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set the batch's base offset and leader epoch."""


@slotted
class PartitionChanged:
    """The controller registered this leader, ISR and replica set in the metadata store."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: Sequence[BrokerId]
    replicas: Sequence[BrokerId]
    recovering: bool
    """Whether this leader was elected uncleanly and has not yet confirmed its recovery."""
    now_ms: int
    unclean_epoch: LeaderEpoch = -1
    """The leader epoch of the last unclean election; -1 if there was none."""


@slotted
class ProduceReceived:
    """A client's batch, whose header and checksum are valid (record/validation.py)."""

    request: Request
    batch: Batch
    acks: int
    now_ms: int
    admitted: bool = False
    """Whether `Partition.produce_error` was called in this step and found no error."""
    verified: bool = False
    """Whether a transactional batch may begin a transaction here: its coordinator has agreed."""
    transaction_version: int = 0
    """Of a transaction marker: from 2 on its epoch must be higher than the producer's."""


@slotted
class FollowerFetchReceived:
    """A follower fetches records; the fetch offset is its log end offset."""

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
    """A consumer fetches committed records."""

    request: Request
    offset: Offset
    leader_epoch: LeaderEpoch | None
    last_fetched_epoch: LeaderEpoch | None
    read_committed: bool
    any_replica: bool
    """Whether the client supports fetching from followers (KIP-392)."""


@slotted
class EpochEndRequested:
    """OffsetForLeaderEpoch: a replica requests the end of an epoch in this log."""

    request: Request
    leader_epoch: LeaderEpoch | None
    epoch: LeaderEpoch | None


@slotted
class OffsetsRequested:
    """ListOffsets: a client or replica requests the start and end of this log."""

    request: Request
    leader_epoch: LeaderEpoch | None
    from_client: bool
    read_committed: bool


@slotted
class DeleteRecordsRequested:
    """A client deletes the records before `offset`; None means up to the high watermark."""

    request: Request
    offset: Offset | None


@slotted
class FetchAnswered:
    """The leader's response to this follower's fetch.

    `leader_epoch` and `offset` are those of the request: a response to a request that this
    replica would no longer send is ignored. The node has one fetch of a replica in flight at a
    time and passes each response once.
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
    """The leader's response to OffsetForLeaderEpoch; only historical policies send it."""

    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch
    error: ErrorCode
    end: EpochEnd | None
    now_ms: int


@slotted
class OffsetsAnswered:
    """The leader's log start and end, requested after an OFFSET_OUT_OF_RANGE."""

    leader_epoch: LeaderEpoch
    error: ErrorCode
    log_start_offset: Offset
    log_end_offset: Offset
    now_ms: int


@slotted
class IsrChangeAnswered:
    """The controller's response to ProposeIsr; the first two fields repeat the proposal."""

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

    It never comes from a flush that began before the last truncation: the node reads the
    recovery point from the log (storage's flush generation).
    """

    offset: Offset
    now_ms: int


@slotted
class RetentionReached:
    """Retention allows this replica to delete everything before `offset`."""

    offset: Offset


@slotted
class LogEndMoved:
    """A truncation ended at a batch boundary, below the requested offset."""

    offset: Offset


@slotted
class DamageFound:
    """This replica lacks records from `offset` on that it once had; a leader has them."""

    offset: Offset


@slotted
class RepairNeeded:
    """Records from `start` to `end` (exclusive) are damaged: fetch only these.

    If both are equal, fetch nothing for now: the log is complete only below `start`.
    """

    start: Offset
    end: Offset


@slotted
class RepairEnded:
    """The damaged records are replaced: fetch from the log end again."""


@slotted
class BrokersChanged:
    """A broker was fenced or unfenced, so the high watermark may change."""

    now_ms: int


@slotted
class LogFailed:
    """A disk error: this replica is offline and confirms nothing more."""


@slotted
class Ticked:
    """A timer tick: check for followers that have fallen behind."""

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
