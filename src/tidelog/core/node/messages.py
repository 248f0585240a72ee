"""What clients and brokers say to each other, apart from how it looks on the wire.

Kafka's requests and responses under Kafka's names, with None where the wire says -1 for
"not known". What goes to the controller (AlterPartition, BrokerHeartbeat, ...) is in
core/controller.

`records` in a fetch answer is a Region of the answering broker's disk, so that the host can
let the kernel move the bytes; the one who receives the answer finds bytes there. They are
mutable slotted classes for speed; nobody changes one after it was sent.
"""

from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
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

LATEST = -1
"""A ListOffsets timestamp: the end of what the asker may read."""
EARLIEST = -2
MAX_TIMESTAMP = -3
HIGH_WATERMARK = -1
"""A DeleteRecords offset: everything committed."""

SESSIONLESS = -1
"""A fetch session epoch: a full fetch outside any session; with an id, it closes that one."""
NEW_SESSION = 0
"""A fetch session epoch: a full fetch that asks for a session."""
SESSION_EPOCH_MAX = 2**31 - 1
"""The largest fetch session epoch; the next one is 1."""

UNRESOLVED = "?"
"""The name of a topic begins so that was named by an id which nobody here knows; no legal name
does."""


@slotted
class ProducePartition:
    """The records for one partition, in a buffer that the broker may patch."""

    topic_partition: TopicPartition
    records: bytearray | memoryview
    topic_id: TopicId | None = None


@slotted
class Produce:
    """Append these; `acks` says when to answer."""

    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]
    version: int = 13
    """Of the request on the wire: old ones may not carry every codec."""
    internal_topics_allowed: bool = False
    """Whether this may write into the topics that the brokers keep for themselves."""


@slotted
class ProducePartitionResponse:
    """Where the records went, or why not."""

    topic_partition: TopicPartition
    error: ErrorCode
    base_offset: Offset | None = None
    log_append_time_ms: int | None = None
    log_start_offset: Offset | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """Which records were refused: their index in the batch, and why (KIP-467)."""
    error_message: str | None = None


@slotted
class ProduceResponse:
    """One answer for each partition asked, in the same order."""

    partitions: list[ProducePartitionResponse]


@slotted
class FetchPartition:
    """From where one partition is to be read, and what the reader believes."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    offset: Offset
    max_bytes: int
    leader_epoch: LeaderEpoch | None = None
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: Offset = -1
    """A follower's own; -1 from a consumer."""


@slotted
class Fetch:
    """Give me what comes next. `replica` is None for a consumer."""

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
    """False for clients that know nothing of reading from followers (before KIP-392)."""
    rack_id: str = ""
    """Where the reader is, if it says so."""


@slotted
class FetchPartitionResponse:
    """What comes next, or why there is nothing."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    error: ErrorCode
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None
    records: Region | Buffer | None
    """None when there are none."""
    aborted: list[AbortedTransaction] | None = None
    """What a read-committed reader has to skip."""
    preferred_read_replica: BrokerId | None = None
    """Who is nearer to the reader and should be asked instead; there are no records then."""


@slotted
class FetchResponse:
    """In a session only the partitions that have something to say."""

    error: ErrorCode
    session_id: int
    partitions: list[FetchPartitionResponse]


@slotted
class EpochPartition:
    """Where does `epoch` end?"""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch | None
    """What the asker believes to be the current one."""
    epoch: LeaderEpoch | None


@slotted
class OffsetForLeaderEpoch:
    """`replica` is None for a consumer."""

    replica: BrokerId | None
    partitions: list[EpochPartition]


@slotted
class EpochPartitionResponse:
    """`end` is None when nothing can be said."""

    topic_partition: TopicPartition
    error: ErrorCode
    end: EpochEnd | None


@slotted
class OffsetForLeaderEpochResponse:
    """One answer for each partition asked, in the same order."""

    partitions: list[EpochPartitionResponse]


@slotted
class ListOffsetsPartition:
    """`timestamp` is a time, LATEST, EARLIEST or MAX_TIMESTAMP."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch | None
    timestamp: int


@slotted
class ListOffsets:
    """`replica` is None for a client."""

    replica: BrokerId | None
    partitions: list[ListOffsetsPartition]
    read_committed: bool = False


@slotted
class ListOffsetsPartitionResponse:
    """`offset` is None when no record is that young, or on error."""

    topic_partition: TopicPartition
    error: ErrorCode
    offset: Offset | None = None
    timestamp: int | None = None
    leader_epoch: LeaderEpoch | None = None


@slotted
class ListOffsetsResponse:
    """One answer for each partition asked, in the same order. If it takes much to find records
    by their timestamps, the last partitions are left out, and to be asked for again."""

    partitions: list[ListOffsetsPartitionResponse]


@slotted
class DeleteRecordsPartition:
    """Drop what lies before `offset`, or before the high watermark."""

    topic_partition: TopicPartition
    offset: Offset


@slotted
class DeleteRecords:
    """Answered once every live replica has done it, or after `timeout_ms`."""

    timeout_ms: int
    partitions: list[DeleteRecordsPartition]


@slotted
class DeleteRecordsPartitionResponse:
    """`low_watermark`: the smallest log start of the live replicas."""

    topic_partition: TopicPartition
    error: ErrorCode
    low_watermark: Offset | None = None


@slotted
class DeleteRecordsResponse:
    """One answer for each partition asked, in the same order."""

    partitions: list[DeleteRecordsPartitionResponse]


@slotted
class InitProducerId:
    """A producer id for an idempotent producer."""


@slotted
class InitProducerIdResponse:
    """The id, which no other producer has; its epoch is 0."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


@slotted
class Forwarded:
    """A client's request to the controller, brought by the broker that it reached.

    It is answered as if the client had asked itself, and never forwarded again: two
    brokers that take each other for the controller would send it to and fro.
    """

    request: object


BrokerRequest: TypeAlias = (
    Produce | Fetch | OffsetForLeaderEpoch | ListOffsets | DeleteRecords | InitProducerId
)
BrokerResponse: TypeAlias = (
    ProduceResponse
    | FetchResponse
    | OffsetForLeaderEpochResponse
    | ListOffsetsResponse
    | DeleteRecordsResponse
    | InitProducerIdResponse
)
