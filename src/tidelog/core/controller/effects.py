"""The effects of a controller: store transactions, responses, and events to record."""

from typing import TypeAlias

from tidelog.core.authorization.acl import Acl
from tidelog.core.controller.events import RequestToken
from tidelog.core.controller.metadata.metadata_store import Guard, Operation, Revision
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    UncleanElection,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerId, LeaderEpoch, TopicId


@slotted
class StoreTransaction:
    """A transaction for the store; the host answers with TransactionAnswered and the same tag.

    The host does not retry it: if the outcome is unclear, it answers with OutcomeUnknown.
    """

    tag: int
    guards: tuple[Guard, ...]
    ops: tuple[Operation, ...]


@slotted
class HeartbeatAnswer:
    """The response to a heartbeat. The broker acts by its own image, not by `fenced`."""

    error: ErrorCode
    caught_up: bool = False
    fenced: bool = True
    should_shut_down: bool = False


@slotted
class AlterPartitionResult:
    """One partition's outcome, with its registration where Kafka sends one.

    The leader adopts it once its image has reached `revision`: only then does it know
    every configuration that the controller decided by.
    """

    error: ErrorCode
    partition: PartitionRegistration | None = None
    revision: Revision = 0


@slotted
class AlterPartitionAnswer:
    """An error for the whole request, or a result for each proposal."""

    error: ErrorCode
    results: dict[PartitionKey, AlterPartitionResult] = field(default_factory=dict)


@slotted
class TopicAnswer:
    """The response to creating and deleting topics, adding partitions, altering configuration
    and unregistering a broker.

    For a topic that was created, or could be (`validate_only`), it includes the size.
    """

    error: ErrorCode
    message: str = ""
    topic_id: TopicId = b""
    partitions: int = -1
    replication_factor: int = -1


@slotted
class AclsDeleted:
    """The deleted ACLs, for each filter of the request."""

    deleted: tuple[tuple[Acl, ...], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@slotted
class PartitionErrorsAnswer:
    """An error for the whole request, or one for each partition."""

    error: ErrorCode
    results: dict[PartitionKey, ErrorCode] = field(default_factory=dict)


@slotted
class ReassignmentsAnswer:
    """The partitions that are being moved."""

    error: ErrorCode
    partitions: tuple[PartitionRegistration, ...] = ()


@slotted
class ProducerIdsAnswer:
    """A block of producer ids that no other broker gets."""

    error: ErrorCode
    first: int = -1
    count: int = 0


Response: TypeAlias = (
    HeartbeatAnswer
    | AlterPartitionAnswer
    | TopicAnswer
    | AclsDeleted
    | PartitionErrorsAnswer
    | ReassignmentsAnswer
    | ProducerIdsAnswer
)


@slotted
class Answer:
    """The response to a request, with the request's token."""

    request: RequestToken
    response: Response


@slotted
class BecameController:
    """This broker became the controller, with this controller epoch."""

    controller_epoch: int


@slotted
class Resigned:
    """This broker is no longer the controller; open requests got NOT_CONTROLLER before."""

    reason: str


@slotted
class Elected:
    """A committed change of leader, for metrics and the log."""

    key: PartitionKey
    leader: BrokerId
    leader_epoch: LeaderEpoch
    old_leader: BrokerId | None
    isr: tuple[BrokerId, ...]


@slotted
class ElectedUncleanly:
    """A committed election that may have lost records, for metrics and the log."""

    key: PartitionKey
    election: UncleanElection


ControllerEffect: TypeAlias = (
    StoreTransaction | Answer | BecameController | Resigned | Elected | ElectedUncleanly
)
