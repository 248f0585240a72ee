"""The events of a controller.

Requests carry `request`, a token that the host chooses and that the response repeats. The
controller uses no clock and no randomness: topic ids, start indexes and the time are in the events.
"""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.authorization.acl import Acl, AclFilter
from tidelog.core.controller.metadata.cluster_image import ImageDelta
from tidelog.core.controller.metadata.metadata_store import Revision, SessionId, TxnAnswer
from tidelog.core.controller.metadata.registrations import LeaderRecovery, PartitionKey
from tidelog.core.quotas.entity import QuotaAlteration
from tidelog.core.sasl.credential import ScramCredential
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
    """The session ended, or its deadline is so near that it must be treated as ended."""


@slotted
class StoreChanged:
    """These changes were applied to the shared image."""

    delta: ImageDelta


@slotted
class TransactionAnswered:
    """The store's response to a StoreTransaction."""

    tag: int
    answer: TxnAnswer


@slotted
class Ticked:
    """Time passed. The host sends this several times within a session time-out."""

    now_ms: int


@slotted
class BrokerDied:
    """Proof that the process of this incarnation has ended: its lock is free."""

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
    """A proposed ISR member, with the broker epoch that the leader knows (−1: unknown)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch = -1


@slotted(frozen=True)
class IsrProposal:
    """The ISR that a leader proposes for one partition."""

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
    """The end of one replica's log. Of two states the greater one holds more records.

    `cut` is true when recovery found less than the log once held. `as_of` is the partition's
    leader epoch that the broker had applied when it reported.
    """

    leader_epoch: LeaderEpoch
    """The leader epoch of the last record."""
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
    broker has (core/replication/follower.py). `offline`: logs in a directory that failed.
    """

    request: RequestToken
    broker: BrokerId
    broker_epoch: BrokerEpoch
    lost: tuple[PartitionKey, ...] = ()
    found: tuple[PartitionKey, ...] = ()
    damaged: tuple[PartitionKey, ...] = ()
    logs: dict[PartitionKey, LogState] = field(default_factory=dict)
    refused: dict[PartitionKey, LeaderEpoch] = field(default_factory=dict)
    offline: tuple[PartitionKey, ...] = ()


@slotted
class CreateTopicReceived:
    """Create a topic. With an `assignment` (replicas by partition) the counts are not used."""

    request: RequestToken
    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int
    configs: dict[str, str] = field(default_factory=dict)
    assignment: tuple[tuple[BrokerId, ...], ...] = ()
    start_index: int = 0
    validate_only: bool = False
    """Check and answer, but change nothing."""


@slotted
class DeleteTopicReceived:
    """Delete a topic, its partitions and its configuration.

    With an id, only if the topic has this id: another one of the same name may have been created
    since. With an empty name, the topic is found by its id.
    """

    request: RequestToken
    name: str
    topic_id: TopicId | None = None


@slotted
class CreatePartitionsReceived:
    """Raise a topic's partition count; `assignment`, if given, is for the new partitions."""

    request: RequestToken
    name: str
    partitions: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None
    start_index: int = 0
    validate_only: bool = False


@slotted
class AlterConfigReceived:
    """Set (or, with None, unset) configuration of a topic; without a topic, of a broker; without
    either, of all brokers.

    `appended` and `subtracted` apply to the value of a list at the time of the change.
    """

    request: RequestToken
    topic: str | None
    changes: dict[str, str | None]
    broker: BrokerId | None = None
    validate_only: bool = False
    appended: dict[str, str] = field(default_factory=dict)
    subtracted: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    """Unset everything that `changes` does not name."""


class ElectionType(Enum):
    """The kind of election; ONLINE is the controller's own."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@slotted
class UnregisterBrokerReceived:
    """Remove the registration of a broker. If it is restarted, it registers again."""

    request: RequestToken
    broker: BrokerId


class UpgradeType(Enum):
    """In which direction a feature level may change, by Kafka's codes."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@slotted
class UpdateFeaturesReceived:
    """Change the levels of features, all or none: name, new level, and direction of each."""

    request: RequestToken
    updates: tuple[tuple[str, int, UpgradeType], ...]
    validate_only: bool = False


@slotted
class CreateAclsReceived:
    """Store ACLs; those that exist stay as they are."""

    request: RequestToken
    acls: tuple[Acl, ...]


@slotted
class DeleteAclsReceived:
    """Delete the ACLs that a filter selects. An ACL that several filters select is in the results
    of each."""

    request: RequestToken
    filters: tuple[AclFilter, ...]


@slotted
class AlterQuotasReceived:
    """Change the quotas of entities; each entity at most once."""

    request: RequestToken
    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@slotted
class AlterScramReceived:
    """Store a user's credential for one mechanism; None deletes it."""

    request: RequestToken
    user: str
    mechanism: str
    credential: ScramCredential | None


@slotted
class ElectLeadersReceived:
    """Hold elections for an administrator; in all partitions if `keys` is None."""

    request: RequestToken
    election: ElectionType
    keys: tuple[PartitionKey, ...] | None = None


@slotted
class AlterReassignmentsReceived:
    """Move partitions to these replicas; None cancels a reassignment."""

    request: RequestToken
    targets: dict[PartitionKey, tuple[BrokerId, ...] | None]


@slotted
class ListReassignmentsReceived:
    """List the partitions that are being reassigned."""

    request: RequestToken


@slotted
class AllocateProducerIdsReceived:
    """Allocate a block of producer ids to a broker, for its clients."""

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
    | UpdateFeaturesReceived
    | CreateAclsReceived
    | DeleteAclsReceived
    | AlterQuotasReceived
    | AlterScramReceived
    | ElectLeadersReceived
    | AlterReassignmentsReceived
    | ListReassignmentsReceived
    | AllocateProducerIdsReceived
)

ControllerEvent: TypeAlias = (
    SessionOpened | SessionLost | StoreChanged | TransactionAnswered | Ticked | BrokerDied | Request
)
