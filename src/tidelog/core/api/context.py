"""What a handler of a request knows: the broker, and who asks what."""

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.core.api.departed_brokers import DepartedBrokers
from tidelog.core.errors import ErrorCode
from tidelog.core.node.node import Node
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.types import TopicId

Struct: TypeAlias = dict[str, Any]
"""A message or a part of one, by Kafka's field names."""

Handling: TypeAlias = Generator[list[object], list[Any], Struct]
"""A handler at work: it yields requests to the node, is sent their answers in the same
order, and returns the response."""

PAUSE: Final[list[object]] = []
"""Yielded by a handler that has used up its turn: other requests are served first."""


class Broker(NamedTuple):
    """What stays the same from request to request."""

    node: Node
    settings: BrokerSettings
    cluster_id: str
    new_topic_id: Callable[[], TopicId]
    """Random, so it comes from the shell."""
    start_index: Callable[[], int]
    """Where to begin when replicas are spread; random too."""
    departed: DepartedBrokers
    disk_space: Callable[[], tuple[int, int]] = lambda: (-1, -1)
    """Bytes that the disk has in all, and that are free; -1 where nobody knows."""


class BrokerContext:
    """One request's surroundings."""

    __slots__ = (
        "broker",
        "client_host",
        "client_id",
        "client_software",
        "listener",
        "now_ms",
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
    ) -> None:
        self.broker = broker
        self.version = version
        self.client_id = client_id
        self.listener = listener
        self.now_ms = now_ms
        self.client_host = client_host
        self.client_software = client_software
        """The client library and its version, if it named itself in ApiVersions (KIP-511)."""

    @property
    def no_transactions(self) -> ErrorCode:
        """The code on which this client gives up transactions at once.

        librdkafka retries all but a few errors, and UNSUPPORTED_VERSION with them. Its bindings
        name themselves, with its name in their version.
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
