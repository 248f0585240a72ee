"""Requests and responses of clients and brokers, without their encoding.

They have Kafka's names, and None where the wire has -1 for "unknown". Requests to the controller
(AlterPartition, BrokerHeartbeat, ...) are in core/controller.

`records` in a fetch response is a Region of the leader's disk, so that the host can let the kernel
copy the bytes; the receiver of the response gets bytes. The classes are mutable and slotted for
speed; a message is never changed after it was sent.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.principal import Principal
from tidelog.core.record.crc32c import Buffer
from tidelog.core.slotted import field, slotted
from tidelog.core.storage.disk import Region
from tidelog.core.types import (
    BrokerEpoch,
    BrokerId,
    EpochEnd,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog.core.record.work_budget import WorkBudget

LATEST = -1
"""A ListOffsets timestamp: the end offset that the client may read up to."""
EARLIEST = -2
MAX_TIMESTAMP = -3
HIGH_WATERMARK = -1
"""A DeleteRecords offset: delete everything that is committed."""

SESSIONLESS = -1
"""A fetch session epoch: a full fetch outside any session; with a session id, it closes that
session."""
NEW_SESSION = 0
"""A fetch session epoch: a full fetch that asks for a session."""
SESSION_EPOCH_MAX = 2**31 - 1
"""The largest fetch session epoch; the next one is 1."""

UNRESOLVED = "?"
"""Prefix of the name of a topic whose id is unknown on this broker; legal names never have it."""


@slotted
class ProducePartition:
    """The records for one partition, in a buffer that the broker may modify."""

    topic_partition: TopicPartition
    records: bytearray | memoryview
    topic_id: TopicId | None = None


@slotted
class Produce:
    """A request to append records; `acks` decides when the response is sent."""

    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]
    version: int = 13
    """The version of the request: old ones may not use every codec."""
    internal_topics_allowed: bool = False
    """Whether it may write to internal topics."""
    transactional_id: str | None = None
    """The producer's transactional id; its transactional batches are verified under it."""
    budget: "WorkBudget | None" = None
    """What its batches may still cost; set for the first one that the broker opens. Some of them
    may wait for a transaction coordinator, while other requests are served."""


@slotted
class ProducePartitionResponse:
    """The offset of the records of one partition, or the error."""

    topic_partition: TopicPartition
    error: ErrorCode
    base_offset: Offset | None = None
    log_append_time_ms: int | None = None
    log_start_offset: Offset | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """The rejected records: index in the batch and reason (KIP-467)."""
    error_message: str | None = None


@slotted
class ProduceResponse:
    """One result for each partition of the request, in the same order."""

    partitions: list[ProducePartitionResponse]


@slotted
class FetchPartition:
    """The position from which to read one partition, and the epochs that the reader knows."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    offset: Offset
    max_bytes: int
    leader_epoch: LeaderEpoch | None = None
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: Offset = -1
    """The follower's log start offset; -1 from a consumer."""


class Reader(Protocol):
    """The principal that fetches. Equal readers may read the same topics."""

    @property
    def principal(self) -> Principal:
        """Who fetches."""
        ...

    def may_read(self, topic: str) -> bool:
        """Whether this reader may read a topic."""
        ...


class FetchAllowance(Protocol):
    """The byte rate that the quota of a consumer still allows."""

    def allows(self, size: int, now_ms: int) -> bool:
        """Count a response of this size; or return False, and count nothing: the response must
        be empty."""
        ...


@slotted
class Fetch:
    """A request for the next records. `replica` is None for a consumer."""

    replica: BrokerId | None
    broker_epoch: BrokerEpoch | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: list[FetchPartition]
    session_id: int = 0
    session_epoch: int = SESSIONLESS
    forgotten: list[TopicPartition] = field(default_factory=list)
    read_committed: bool = False
    any_replica: bool = True
    """Whether followers may serve it; False for old clients (before KIP-392)."""
    rack_id: str = ""
    """The reader's rack, or empty."""
    reader: Reader | None = None
    """Decides which topics the consumer may read; None: all of them."""
    allowance: FetchAllowance | None = None
    """The quota of the consumer; None without one."""


@slotted
class FetchPartitionResponse:
    """The next records of one partition, or the error."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    error: ErrorCode
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None
    records: Region | Buffer | None
    """None if there are no records."""
    aborted: list[AbortedTransaction] | None = None
    """Transactions that a read-committed reader must skip."""
    preferred_read_replica: BrokerId | None = None
    """A nearer replica that the reader should use instead; then there are no records."""


@slotted
class FetchResponse:
    """The results of a fetch; in a session only partitions with changes."""

    error: ErrorCode
    session_id: int
    partitions: list[FetchPartitionResponse]


@slotted
class EpochPartition:
    """A question for the end offset of `epoch`."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch | None
    """The current leader epoch that the client or follower knows."""
    epoch: LeaderEpoch | None


@slotted
class OffsetForLeaderEpoch:
    """A request for the end offsets of leader epochs. `replica` is None for a consumer."""

    replica: BrokerId | None
    partitions: list[EpochPartition]


@slotted
class EpochPartitionResponse:
    """The end of the epoch; None if it is unknown."""

    topic_partition: TopicPartition
    error: ErrorCode
    end: EpochEnd | None


@slotted
class OffsetForLeaderEpochResponse:
    """One result for each partition of the request, in the same order."""

    partitions: list[EpochPartitionResponse]


@slotted
class ListOffsetsPartition:
    """A search for an offset: `timestamp` is a time, LATEST, EARLIEST or MAX_TIMESTAMP."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch | None
    timestamp: int


@slotted
class ListOffsets:
    """A request for offsets by timestamp. `replica` is None for a client."""

    replica: BrokerId | None
    partitions: list[ListOffsetsPartition]
    read_committed: bool = False


@slotted
class ListOffsetsPartitionResponse:
    """The offset found; None if no record is that new, or on error."""

    topic_partition: TopicPartition
    error: ErrorCode
    offset: Offset | None = None
    timestamp: int | None = None
    leader_epoch: LeaderEpoch | None = None


@slotted
class ListOffsetsResponse:
    """One result for each partition of the request, in the same order. If the searches by timestamp
    are expensive, the last partitions are missing and have to be requested again."""

    partitions: list[ListOffsetsPartitionResponse]


@slotted
class DeleteRecordsPartition:
    """Delete the records before `offset`, or before the high watermark."""

    topic_partition: TopicPartition
    offset: Offset


@slotted
class DeleteRecords:
    """A request to delete records; the response is sent once every live replica has deleted them,
    or after `timeout_ms`."""

    timeout_ms: int
    partitions: list[DeleteRecordsPartition]


@slotted
class DeleteRecordsPartitionResponse:
    """The low watermark: the smallest log start offset of the live replicas; or the error."""

    topic_partition: TopicPartition
    error: ErrorCode
    low_watermark: Offset | None = None


@slotted
class DeleteRecordsResponse:
    """One result for each partition of the request, in the same order."""

    partitions: list[DeleteRecordsPartitionResponse]


@slotted
class TxnMarker:
    """The outcome of one producer's transaction, for partitions that one broker leads."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0
    """From 2 on the marker's epoch must be higher than the one of the producer's records."""


@slotted
class WriteTxnMarkers:
    """A coordinator's request to end transactions on the partitions of a leader."""

    markers: tuple[TxnMarker, ...]


@slotted
class WriteTxnMarkersResponse:
    """The result of each partition, for each marker of the request in its order. NONE: the marker
    is on all in-sync replicas."""

    markers: tuple[tuple[int, dict[TopicPartition, ErrorCode]], ...]
    """(producer id, results)."""


@slotted
class TxnPartitions:
    """Partitions to add to one transaction, or to look for in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: tuple[TopicPartition, ...]


@slotted
class AddPartitionsToTxn:
    """A partition leader's request to a transaction coordinator (version 4 and 5): it verifies or
    adds its partitions before it appends a transaction's first batch."""

    transactions: tuple[TxnPartitions, ...]


@slotted
class AddPartitionsToTxnResponse:
    """One result for each transaction of the request, in its order."""

    results: tuple[dict[TopicPartition, ErrorCode], ...]


@slotted
class InitProducerId:
    """A request for the id of an idempotent producer."""


@slotted
class InitProducerIdResponse:
    """A producer id that is given only once; its epoch is 0."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


@slotted
class Forwarded:
    """A client's request to the controller, forwarded by the broker that received it.

    It is never forwarded again: two brokers that each consider the other one the controller would
    send it back and forth.
    """

    request: object


BrokerRequest: TypeAlias = (
    Produce
    | Fetch
    | OffsetForLeaderEpoch
    | ListOffsets
    | DeleteRecords
    | WriteTxnMarkers
    | InitProducerId
    | AddPartitionsToTxn
)


TopicNames: TypeAlias = Mapping[TopicId, str]
"""Names by topic id. Produce and Fetch name topics by id from version 13 on, the broker by name."""


def unresolved(topic_id: TopicId) -> str:
    """A placeholder name for an unknown topic id: not a valid topic name, and different for each
    id, so that two unknown topics of one request stay distinct."""
    return UNRESOLVED + topic_id.hex()
