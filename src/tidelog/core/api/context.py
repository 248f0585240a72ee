"""The input of a request handler: the broker, the client, and the request's version and time."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.core.api.access_control import BrokerAuthorizer
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.node.node import Node
from tidelog.core.principal import ANONYMOUS, Principal
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.types import BrokerId, TopicId

if TYPE_CHECKING:
    from tidelog.core.api.charge import Charge

KEPT_MS = 1000


class DepartedBrokers:
    """The live brokers, and those that left a moment ago, which Metadata still lists.

    New leaders are in the response at once, but a client should not see both changes together: when
    a broker disappears from the list, librdkafka closes its connection, and for a second does not
    serve the partitions that have just moved to another leader. So responses list a dead broker for
    one more second; Kafka lists it until its session ends.
    """

    __slots__ = ("_alive", "_departed")

    def __init__(self) -> None:
        self._alive: dict[BrokerId, BrokerRegistration] = {}
        self._departed: dict[BrokerId, tuple[BrokerRegistration, int]] = {}

    def note(self, image: ClusterImage, now_ms: int) -> None:
        """Update the lists after a change of the image."""
        alive = {known.id: known for known in image.brokers.values() if not known.fenced}
        for broker, known in self._alive.items():
            if broker not in alive:
                self._departed[broker] = (known, now_ms)
        for broker in alive:
            self._departed.pop(broker, None)
        self._alive = alive

    def lately(self, now_ms: int) -> list[BrokerRegistration]:
        """The registrations of brokers that left within the last second."""
        for broker, (_, left_ms) in list(self._departed.items()):
            if now_ms - left_ms >= KEPT_MS:
                del self._departed[broker]
        return [known for known, _ in self._departed.values()]


Struct: TypeAlias = dict[str, Any]
"""A message or a part of it, by Kafka's field names."""

Handling: TypeAlias = Generator[list[object], list[Any], Struct]
"""A running handler: it yields lists of requests to the node, gets their responses in the same
order, and returns the response to the client."""

PAUSE: Final[list[object]] = []
"""Yielded by a handler that has used its turn: other requests are served first."""


class Broker(NamedTuple):
    """The parts of a broker that handlers use."""

    node: Node
    settings: BrokerSettings
    cluster_id: str
    new_topic_id: Callable[[], TopicId]
    """Returns a random id; the shell supplies it."""
    start_index: Callable[[], int]
    """Returns the broker at which placement of replicas starts; random too."""
    departed: DepartedBrokers
    disk_space: Callable[[str], tuple[int, int]] = lambda _: (-1, -1)
    """Returns the total and free bytes of a log directory's disk; -1 if unknown."""
    authorizer: BrokerAuthorizer | None = None
    """Decides what principals may do; None: every principal may do everything."""


class BrokerContext:
    """The context of one request."""

    __slots__ = (
        "broker",
        "charge",
        "client_host",
        "client_id",
        "client_software",
        "listener",
        "now_ms",
        "principal",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        version: int,
        client_id: str | None,
        listener: str,
        now_ms: int,
        client_host: str = "",
        client_software: str = "",
        principal: Principal = ANONYMOUS,
        charge: "Charge | None" = None,
    ) -> None:
        self.broker = broker
        self.version = version
        self.client_id = client_id
        self.listener = listener
        self.now_ms = now_ms
        self.client_host = client_host
        self.client_software = client_software
        """Name and version of the client library, if it sent them in ApiVersions (KIP-511)."""
        self.principal = principal
        """Whom the request is authorised as."""
        self.charge = charge
        """What the request counts towards quotas; None without quotas."""

    @property
    def no_transactions(self) -> ErrorCode:
        """The error that makes this client stop using transactions at once.

        librdkafka retries all errors but a few, UNSUPPORTED_VERSION included. Its bindings send
        their own name, with librdkafka's in the version.
        """
        if "rdkafka" in self.client_software:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.UNSUPPORTED_VERSION

    @property
    def node(self) -> Node:
        return self.broker.node

    @property
    def settings(self) -> BrokerSettings:
        return self.broker.settings

    @property
    def cluster_id(self) -> str:
        return self.broker.cluster_id

    def new_topic_id(self) -> TopicId:
        return self.broker.new_topic_id()

    def start_index(self) -> int:
        return self.broker.start_index()


Handler: TypeAlias = Callable[[BrokerContext, Struct], Handling | Struct]
