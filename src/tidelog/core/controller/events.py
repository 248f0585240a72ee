"""Everything that can happen to a controller.

Requests carry `request`, a token that the host chooses and that comes back in the answer.
Nothing here is random or timed: topic ids, start indexes and the clock come in.
"""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.controller.metadata.cluster_image import ImageDelta
from tidelog.core.controller.metadata.metadata_store import Revision, SessionId, TxnAnswer
from tidelog.core.controller.metadata.registrations import LeaderRecovery, PartitionKey
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId

RequestToken: TypeAlias = Any
"""Identifies a request for its host; hashable, and different for each request under way."""


@slotted
class SessionOpened:
    """This broker has a store session and has registered under this epoch with it."""

    session: SessionId
    broker_epoch: BrokerEpoch


@slotted
class SessionLost:
    """The session ended, or its deadline is so near that it must be taken for ended."""


@slotted
class StoreChanged:
    """The shared image has just taken in these changes."""

    delta: ImageDelta


@slotted
class TransactionAnswered:
    """What became of a StoreTransaction."""

    tag: int
    answer: TxnAnswer


@slotted
class Ticked:
    """Time passed. Send it several times in a session time-out."""

    now_ms: int


@slotted
class BrokerDied:
    """Proof, not suspicion, that this incarnation's process is gone (its lock is free)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch


@slotted
class HeartbeatReceived:
    """A broker is alive, and has applied metadata up to a revision."""

    request: RequestToken
    broker: BrokerId
    broker_epoch: BrokerEpoch
    applied_revision: Revision
    now_ms: int
    want_fence: bool = False
    want_shut_down: bool = False


class IsrMember(NamedTuple):
    """A proposed ISR member under the epoch its leader knows (−1: not known)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch = -1


@slotted(frozen=True)
class IsrProposal:
    """What a leader wants one partition's ISR to become."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED


@slotted
class AlterPartitionReceived:
    """A leader proposes ISR changes; at most one proposal for each partition."""

    request: RequestToken
    broker: BrokerId
    broker_epoch: BrokerEpoch
    proposals: tuple[IsrProposal, ...]


class LogState(NamedTuple):
    """How far one replica's log reaches; a later state holds more records.

    `cut` is true when recovery found less than the log once held. `as_of` is the partition's
    leader epoch that the broker had applied when it reported.
    """

    leader_epoch: LeaderEpoch
    """Of the last record."""
    log_end_offset: Offset
    cut: bool = False
    as_of: LeaderEpoch = -1


UNKNOWN_LOG = LogState(-1, -1)


@slotted
class LogReportsReceived:
    """A broker reports the state of its logs.

    `lost`: logs that should be on its disk and are not. `found`: logs that it once reported
    as lost. `damaged`: logs that hold less than they once did. `logs`: how far the logs of
    leaderless partitions reach. The broker stays fenced until `lost` and `damaged` are stored.
    `refused`: the leader epochs of partitions whose leader lacks committed records that this
    broker has (core/replication/follower.py).
    """

    request: RequestToken
    broker: BrokerId
    broker_epoch: BrokerEpoch
    lost: tuple[PartitionKey, ...] = ()
    found: tuple[PartitionKey, ...] = ()
    damaged: tuple[PartitionKey, ...] = ()
    logs: dict[PartitionKey, LogState] = field(default_factory=dict)
    refused: dict[PartitionKey, LeaderEpoch] = field(default_factory=dict)


@slotted
class CreateTopicReceived:
    """Make a topic. With an `assignment` (replicas by partition) the counts are not used."""

    request: RequestToken
    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int
    configs: dict[str, str] = field(default_factory=dict)
    assignment: tuple[tuple[BrokerId, ...], ...] = ()
    start_index: int = 0
    validate_only: bool = False
    """Answer as if, and change nothing."""


@slotted
class DeleteTopicReceived:
    """Delete a topic, its partitions and its configuration.

    With an id only if it is that very topic: one of the same name may have been made since.
    An empty name is that of the topic with the id.
    """

    request: RequestToken
    name: str
    topic_id: TopicId | None = None


@slotted
class CreatePartitionsReceived:
    """Raise a topic's partition count; `assignment`, if there is one, covers the new ones."""

    request: RequestToken
    name: str
    partitions: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None
    start_index: int = 0
    validate_only: bool = False


@slotted
class AlterConfigReceived:
    """Set (or, with None, unset) values of a topic's configuration; without a topic, of a
    broker's; without either, of all brokers.

    Lists are lengthened and shortened from what they are when the change is made.
    """

    request: RequestToken
    topic: str | None
    changes: dict[str, str | None]
    broker: BrokerId | None = None
    validate_only: bool = False
    appended: dict[str, str] = field(default_factory=dict)
    subtracted: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    """The changes are all that is to be set: whatever they do not name is unset."""


class ElectionType(Enum):
    """Which leader is looked for; ONLINE is the controller's own."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@slotted
class UnregisterBrokerReceived:
    """Remove a broker's registration: it will not return, or registers again when restarted."""

    request: RequestToken
    broker: BrokerId


@slotted
class ElectLeadersReceived:
    """An administrator asks for elections, in all partitions if none is named."""

    request: RequestToken
    election: ElectionType
    keys: tuple[PartitionKey, ...] | None = None


@slotted
class AlterReassignmentsReceived:
    """Move partitions to these replicas; None takes an ongoing move back."""

    request: RequestToken
    targets: dict[PartitionKey, tuple[BrokerId, ...] | None]


@slotted
class ListReassignmentsReceived:
    """Which partitions are being moved?"""

    request: RequestToken


@slotted
class AllocateProducerIdsReceived:
    """A broker wants a block of producer ids to give to its clients."""

    request: RequestToken
    broker: BrokerId
    broker_epoch: BrokerEpoch


Request: TypeAlias = (
    HeartbeatReceived
    | AlterPartitionReceived
    | LogReportsReceived
    | CreateTopicReceived
    | DeleteTopicReceived
    | CreatePartitionsReceived
    | AlterConfigReceived
    | UnregisterBrokerReceived
    | ElectLeadersReceived
    | AlterReassignmentsReceived
    | ListReassignmentsReceived
    | AllocateProducerIdsReceived
)

ControllerEvent: TypeAlias = (
    SessionOpened | SessionLost | StoreChanged | TransactionAnswered | Ticked | BrokerDied | Request
)
