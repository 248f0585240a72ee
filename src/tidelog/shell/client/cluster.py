"""The cluster as a client sees it: brokers, leaders, and a connection to each broker.

Metadata may be out of date. A request that fails for that reason (not the leader, fenced, no
connection) is sent again after a refresh, until the time is up. Invariant: no attempt begins
after `timeout_s`.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.core.api_table import METADATA
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchPartition,
    NoSuchTopic,
    NotReady,
    Unresolved,
)
from tidelog.shell.client.cluster_metadata import (
    NO_LEADER,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    read_metadata,
)
from tidelog.shell.client.connection import CLIENT_ID, TIMEOUT_S, KafkaConnection
from tidelog.shell.client.retry import Retry
from tidelog.shell.client.security import ClientSecurity

T = TypeVar("T")
DEFAULT_PORT = 9092
SHARES_MAX = 4


class Cluster:
    """The brokers found through `bootstrap` ("host:port,host:port"). Connects when needed."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
        security: ClientSecurity | None = None,
    ) -> None:
        texts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self.bootstrap = [parse_address(text) for text in texts if text.strip()]
        if not self.bootstrap:
            raise ValueError("bootstrap address is missing; give host:port")
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.security = security
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._suspects: set[tuple[str, int]] = set()
        """Addresses that did not respond to the last request."""
        self._metadata: ClusterMetadata | None = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def close_ended(self) -> None:
        """Close idle connections that brokers have closed, so that requests use new ones."""
        for connection in self._connections.values():
            connection.close_if_ended()

    # -- connections ------------------------------------------------------------------------

    def any_broker(self) -> KafkaConnection:
        """Return a connection to a reachable broker.

        Tries connected brokers, then the bootstrap list, then the brokers in the metadata; brokers
        that failed in the last call are tried last. Raises the error of the first address if all
        fail.
        """
        first: CannotConnect | None = None
        for host, port in self._places():
            try:
                return self._connect(host, port, advertised=False)
            except CannotConnect as error:
                self._suspects.add((host, port))
                first = first or error
        self._suspects.clear()
        assert first is not None
        raise first

    def _places(self) -> list[tuple[str, int]]:
        """All known addresses, the best first."""
        connected = [place for place, one in self._connections.items() if not one.closed]
        known = self._metadata.brokers.values() if self._metadata else ()
        advertised = [(broker.host, broker.port) for broker in known]
        places = list(dict.fromkeys([*connected, *self.bootstrap, *advertised]))
        return sorted(places, key=lambda place: place in self._suspects)

    def ask_any(self, ask: Callable[[KafkaConnection], T]) -> T:
        """Send a request to any broker; to another broker if that one disconnects or times out.

        The request must be safe to repeat.
        """
        retry = Retry(self.timeout_s)
        while True:
            broker = self.any_broker()
            place = next(at for at, one in self._connections.items() if one is broker)
            try:
                answer = ask(broker)
            except Unresolved as error:
                untried = [each for each in self._places() if each not in self._suspects]
                self._suspects.add(place)
                if untried in ([], [place]):
                    retry.wait(error)
            else:
                self._suspects.discard(place)
                return answer

    def broker(self, broker_id: BrokerId) -> KafkaConnection:
        """Return the connection to a broker, at its advertised address."""
        found = self.metadata.brokers.get(broker_id)
        if found is None:
            found = self.refresh([]).brokers.get(broker_id)
        if found is None:
            raise CannotConnect(
                f"broker {broker_id}", "the cluster's metadata does not list this broker"
            )
        return self._connect(found.host, found.port, advertised=True)

    def own_connection(self, broker_id: BrokerId) -> KafkaConnection:
        """Open a connection that is not shared; the caller closes it."""
        shared = self.broker(broker_id)
        found = self.metadata.brokers[broker_id]
        return self.open_connection(found.host, found.port, shared.timeout_s)

    def open_connection(self, host: str, port: int, timeout_s: float) -> KafkaConnection:
        """Open a connection to an advertised address, for the caller alone."""
        return KafkaConnection(
            host, port, self.client_id, timeout_s, advertised=True, security=self.security
        )

    def controller(self) -> KafkaConnection:
        """Return the connection to the controller."""
        controller = self.metadata.controller_id
        if controller < 0:
            controller = self.refresh([]).controller_id
        if controller < 0:
            raise NotReady("the cluster has no controller", ErrorCode.NOT_CONTROLLER)
        return self.broker(controller)

    def _connect(self, host: str, port: int, *, advertised: bool) -> KafkaConnection:
        connection = self._connections.get((host, port))
        if connection is None or connection.closed:
            advertised = advertised and (host, port) not in self.bootstrap
            connection = KafkaConnection(
                host,
                port,
                self.client_id,
                self.timeout_s,
                advertised=advertised,
                security=self.security,
            )
            self._connections[host, port] = connection
        return connection

    # -- metadata ---------------------------------------------------------------------------

    @property
    def metadata(self) -> ClusterMetadata:
        """The last metadata response; requested on first use."""
        return self._metadata or self.refresh()

    def refresh(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """Request metadata of some topics, or (None) of all. Creates no topic."""
        request = {
            "topics": None if topics is None else [{"name": topic} for topic in topics],
            "allow_auto_topic_creation": False,
        }
        # One broker must not use up the time: each gets its share.
        share_s = max(self.timeout_s / len(self._places()), self.timeout_s / SHARES_MAX)

        def ask(broker: KafkaConnection) -> ClusterMetadata:
            return read_metadata(broker.call(METADATA, request, timeout_s=share_s))

        fresh = self.ask_any(ask)
        if topics is not None and self._metadata is not None:
            kept = {
                name: topic for name, topic in self._metadata.topics.items() if name not in topics
            }
            fresh = fresh._replace(topics={**kept, **fresh.topics})
        self._metadata = fresh
        return fresh

    def topic(self, name: str) -> TopicMetadata:
        """Return a topic's metadata, requested if unknown. Raises NoSuchTopic."""
        found = self.metadata.topics.get(name)
        if found is None or found.error:
            found = self.refresh([name]).topics.get(name)
        if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(f"topic {name!r}", name)
        if found.error and found.error != ErrorCode.LEADER_NOT_AVAILABLE:
            raise BrokerError(f"request for the metadata of topic {name}", found.error)
        return found

    def partition(self, topic: str, partition: int) -> PartitionMetadata:
        """Return a partition's metadata, requested if unknown. Raises NoSuchTopic."""
        found = self.topic(topic).partitions.get(partition)
        if found is None:
            self.refresh([topic])
            found = self.topic(topic).partitions.get(partition)
        if found is None:
            raise NoSuchPartition(topic, partition)
        return found

    def leader(self, topic: str, partition: int, retry: Retry | None = None) -> PartitionMetadata:
        """Wait until a partition has a leader. Raises BrokerError when the time is up."""
        retry = retry or Retry(self.timeout_s)
        found = self.partition(topic, partition)
        while found.leader == NO_LEADER:
            name = TopicPartition(topic, partition)
            retry.wait(NotReady(f"{name} has no leader", ErrorCode.LEADER_NOT_AVAILABLE))
            self.refresh([topic])
            found = self.partition(topic, partition)
        return found

    # -- requests to leaders ----------------------------------------------------------------

    def ask_leader(
        self,
        topic: str,
        partition: int,
        ask: Callable[[KafkaConnection, PartitionMetadata], T],
        timeout_s: float | None = None,
    ) -> T:
        """Send a request to the leader, and again if the leader changes, until the time is up.

        `ask` sends the request and raises BrokerError for an error code. The request must be safe
        to repeat.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        retry = Retry(timeout_s, refresh=lambda: self.refresh([topic]))

        def attempt() -> T:
            found = self.leader(topic, partition, retry)
            return ask(self.broker(found.leader), found)

        return retry.call(attempt)

    def ask_controller(self, ask: Callable[[KafkaConnection], T]) -> T:
        """Send a request to the controller, and again if the controller changes.

        A request that was sent and has no response is not repeated.
        """
        retry = Retry(
            self.timeout_s, retriable=_is_controller_change, refresh=lambda: self.refresh([])
        )
        return retry.call(lambda: ask(self.controller()))


def _is_controller_change(error: ClientError) -> bool:
    if isinstance(error, BrokerError):
        return error.code == ErrorCode.NOT_CONTROLLER
    return isinstance(error, CannotConnect)


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host`, `host:port`, `[::1]:port` or a bare IPv6 address. Raises ValueError."""
    text = text.strip()
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address; write [::1]:9092")
        port = rest[1:]
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host or not (port == "" or (port.isdecimal() and 0 < int(port) <= 65535)):
        raise ValueError(f"{text!r} is not an address; write host:port, such as localhost:9092")
    return host, int(port) if port else DEFAULT_PORT
