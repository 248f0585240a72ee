"""Everything a controller can ask of its host, and the answers it gives."""

from typing import TypeAlias

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
    """Carry this out and answer with TransactionAnswered under the same tag.

    Never retry it on your own: an unclear outcome is answered as OutcomeUnknown.
    """

    tag: int
    guards: tuple[Guard, ...]
    ops: tuple[Operation, ...]


@slotted
class HeartbeatAnswer:
    """`fenced` is what the store says now; the broker acts on its own image, not on this."""

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
    """To creating and deleting topics, adding partitions, altering configuration,
    unregistering a broker.

    A topic that was created, or could be, is told with its size.
    """

    error: ErrorCode
    message: str = ""
    topic_id: TopicId = b""
    partitions: int = -1
    replication_factor: int = -1


@slotted
class PartitionErrorsAnswer:
    """To elections and reassignments: an error for the request, or one for each partition."""

    error: ErrorCode
    results: dict[PartitionKey, ErrorCode] = field(default_factory=dict)


@slotted
class ReassignmentsAnswer:
    """The partitions that are being moved."""

    error: ErrorCode
    partitions: tuple[PartitionRegistration, ...] = ()


@slotted
class ProducerIdsAnswer:
    """Ids from `first` on, `count` of them, which nobody else was or will be given."""

    error: ErrorCode
    first: int = -1
    count: int = 0


Response: TypeAlias = (
    HeartbeatAnswer
    | AlterPartitionAnswer
    | TopicAnswer
    | PartitionErrorsAnswer
    | ReassignmentsAnswer
    | ProducerIdsAnswer
)


@slotted
class Answer:
    """The answer to a request, with the token that the request came with."""

    request: RequestToken
    response: Response


@slotted
class TookOffice:
    """This broker is the controller now, under this controller epoch."""

    controller_epoch: int


@slotted
class Resigned:
    """It is not any more; unanswered requests were answered NOT_CONTROLLER before this."""

    reason: str


@slotted
class Elected:
    """A committed change of leader: to be counted and told."""

    key: PartitionKey
    leader: BrokerId
    leader_epoch: LeaderEpoch
    old_leader: BrokerId | None
    isr: tuple[BrokerId, ...]


@slotted
class ElectedUncleanly:
    """A committed election that may have lost records: to be counted and shown."""

    key: PartitionKey
    election: UncleanElection


ControllerEffect: TypeAlias = (
    StoreTransaction | Answer | TookOffice | Resigned | Elected | ElectedUncleanly
)
