"""All coordinators of a broker: they follow the leadership of their internal topics.

A coordinator's code is imported when this broker leads a partition of its topic, or receives one
of its requests: the code for groups takes a tenth of a broker's start to load, and a cluster
without groups never needs it.
"""

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.core.coordinator.lookup import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
    partition_for,
)
from tidelog.core.coordinator.shard import EndMarker, TransactionalProducer
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    TxnMarker,
)
from tidelog.core.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.core.node.coordinating.coordinator_runtime import CoordinatorRuntime, HostedShard


class Tenant(NamedTuple):
    """One kind of coordinator, before its code is imported."""

    type: CoordinatorType
    topic: str
    requests: str
    """The module that defines its request types."""
    make: "Callable[[CoordinatorHost], CoordinatorRuntime[Any]]"
    """Imports the coordinator and creates it."""


def _group_coordinator(host: CoordinatorHost) -> "CoordinatorRuntime[Any]":
    from tidelog.core.node.coordinating.group_coordinator import GroupCoordinator

    return GroupCoordinator(host)


def _transaction_coordinator(host: CoordinatorHost) -> "CoordinatorRuntime[Any]":
    from tidelog.core.node.coordinating.transaction_coordinator import TransactionCoordinator

    return TransactionCoordinator(host)


_PACKAGE = __name__.partition(".")[0]
"""The root package. A mutant is a copy of the package under another name."""
TENANTS = (
    Tenant(
        CoordinatorType.GROUP,
        OFFSETS_TOPIC,
        f"{_PACKAGE}.core.groups.messages",
        _group_coordinator,
    ),
    Tenant(
        CoordinatorType.TRANSACTION,
        TRANSACTIONS_TOPIC,
        f"{_PACKAGE}.core.transactions.messages",
        _transaction_coordinator,
    ),
)


class Coordinators:
    """Creates coordinators when they are needed; loads and unloads their shards."""

    def __init__(self, host: CoordinatorHost) -> None:
        self._host = host
        self._turn = host.turn
        self._image = host.image
        self._replicas = host.replicas
        self._gate = host.gate
        self._tenants = {tenant.topic: tenant for tenant in TENANTS}
        self._topics = {tenant.type: tenant.topic for tenant in TENANTS}
        self._runtimes: dict[str, CoordinatorRuntime[Any]] = {}
        self._serving = False
        """Whether shards are loaded: `gate.serving` as it was last seen."""

    def _runtime(self, topic: str) -> "CoordinatorRuntime[Any]":
        runtime = self._runtimes.get(topic)
        if runtime is None:
            runtime = self._runtimes[topic] = self._tenants[topic].make(self._host)
        return runtime

    def running(self, topic: str) -> "CoordinatorRuntime[Any] | None":
        """Return the coordinator of an internal topic; None if it was not needed yet."""
        return self._runtimes.get(topic)

    def shards(self, topic: str) -> "dict[int, HostedShard[Any]]":
        """Return the shards of an internal topic on this broker, by partition."""
        runtime = self._runtimes.get(topic)
        return {} if runtime is None else runtime.shards

    # -- requests --------------------------------------------------------------------------

    def handlers(self) -> dict[type, RequestHandler]:
        """Return the handlers of requests that need no coordinator on this broker."""
        return {
            FindCoordinator: self._find_coordinator,
            AddPartitionsToTxn: self._add_partitions_to_txn,
        }

    def handlers_of(self, request_type: type) -> dict[type, RequestHandler]:
        """Return all handlers of the coordinator that serves a type of request; none if there is
        no such coordinator."""
        for tenant in self._tenants.values():
            if tenant.requests == request_type.__module__:
                return self._runtime(tenant.topic).handlers()
        return {}

    def _add_partitions_to_txn(
        self, peer: Peer, correlation: int, request: AddPartitionsToTxn
    ) -> None:
        def respond(response: AddPartitionsToTxnResponse) -> None:
            self._turn.emit(Respond(peer, correlation, response))

        self.add_partitions_to_txn(request, respond)

    def add_partitions_to_txn(
        self,
        request: AddPartitionsToTxn,
        respond: Callable[[AddPartitionsToTxnResponse], None],
    ) -> None:
        """Add or verify a leader's partitions of transactions that this broker coordinates."""
        runtime: Any = self._runtime(TRANSACTIONS_TOPIC)
        runtime.add_partitions_to_txn(request, respond)

    def complete_transaction(
        self,
        topic_partition: TopicPartition,
        marker: TxnMarker,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Write a transaction's marker into a partition of an internal topic that this broker
        leads. `then` gets NONE when the marker is committed and the coordinator has applied it, or
        an error for a partition: while a coordinator loads its log, the transaction coordinator
        must send the marker again, as to a broker that does not lead."""
        runtime = self._runtimes.get(topic_partition.topic)
        if runtime is None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        producer = TransactionalProducer(marker.producer_id, marker.producer_epoch)
        end = EndMarker(
            producer, marker.committed, marker.coordinator_epoch, marker.transaction_version
        )
        runtime.complete_transaction(
            topic_partition.partition,
            end,
            lambda error: then(_MARKER_ERRORS.get(error, error)),
        )

    def _find_coordinator(self, peer: Peer, correlation: int, request: FindCoordinator) -> None:
        topic = self._topics[request.key_type]
        self._turn.emit(Respond(peer, correlation, self._coordinator_of(topic, request)))

    def _coordinator_of(self, topic: str, request: FindCoordinator) -> FindCoordinatorResponse:
        """Return the leader of the key's partition, at its address on the client's listener."""
        known = self._image.topics.get(topic)
        if known is None:
            return _not_available(f"{topic} is being created; retry later.")
        index = partition_for(request.key, known.partition_count)
        partition = self._image.partition(topic, index)
        if partition is not None and partition.leader is not None:
            leader = self._image.brokers.get(partition.leader)
            if leader is not None and not leader.fenced:
                endpoint = leader.endpoint(request.listener)
                if endpoint is None:
                    return _not_available(f"broker {leader.id} lacks the client's listener.")
                _, host, port = endpoint
                return FindCoordinatorResponse(ErrorCode.NONE, leader.id, host, port)
        return _not_available(f"{topic}-{index} has no leader; retry later.")

    # -- leadership ------------------------------------------------------------------------

    def image_advanced(self, deleted_topics: Set[str]) -> None:
        """Follow a new metadata image."""
        self._follow_leadership()
        if deleted_topics:
            for runtime in self._runtimes.values():
                runtime.topics_deleted(deleted_topics)

    def _follow_leadership(self) -> None:
        """Load a shard for each partition that this broker leads, and unload all others.

        A replica whose leadership changed loses its shard, even if this broker leads again: its
        appends were failed, so the shard does not know what is in the log.
        """
        changed = self._replicas.leadership_changed
        began = self._gate.serving and not self._serving
        self._serving = self._gate.serving
        if changed:
            self._replicas.leadership_changed = {}
            for replica in changed:
                runtime = self._runtimes.get(replica.topic_partition.topic)
                if runtime is not None:
                    runtime.unload(replica)
        if began:
            self._load(self._internal_replicas())
        elif changed and self._serving:
            self._load(changed)

    def _internal_replicas(self) -> list[HostedReplica]:
        hosted = self._replicas.hosted
        names = (
            TopicPartition(topic, index)
            for topic in self._tenants
            if topic in self._image.topics
            for index in range(self._image.topics[topic].partition_count)
        )
        return [hosted[name] for name in names if name in hosted]

    def _load(self, replicas: Iterable[HostedReplica]) -> None:
        for replica in replicas:
            name = replica.topic_partition
            if (
                name.topic in self._tenants
                and replica.partition.is_leader
                and self._replicas.hosted.get(name) is replica
            ):
                self._runtime(name.topic).load(replica)

    # -- progress --------------------------------------------------------------------------

    def pump(self) -> bool:
        """Make all progress that is possible now. Return whether there was any."""
        if self._replicas.leadership_changed or self._gate.serving is not self._serving:
            self._follow_leadership()
        progress = False
        for runtime in self._runtimes.values():
            if runtime.is_active:
                runtime.pump()
                progress = True
        return progress

    def tick(self) -> None:
        """Run the timers of all coordinators."""
        self._follow_leadership()
        for runtime in self._runtimes.values():
            runtime.tick()

    def next_ms(self) -> int | None:
        """Return when `tick` has something to do."""
        soonest = None
        for runtime in self._runtimes.values():
            due = runtime.next_ms()
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest


_MARKER_ERRORS = dict.fromkeys(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Errors of a coordinator that the sender of a marker does not know, and what it gets instead."""


def _not_available(why: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=why)
