"""A cluster with a hand-made transaction coordinator: tests decide its answers."""

from collections.abc import Callable
from typing import Any

from node_cluster import ORDERS, Cluster

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.effects import Respond
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    TxnMarker,
    TxnPartitions,
    WriteTxnMarkers,
)
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.types import BrokerId, TopicPartition

ID = "payments"
PID = 7
ADDING, VERIFYING = 12, 11
"""Produce versions of transaction versions 2 and 1."""


class Coordinator:
    """The broker that leads `__transaction_state`, with answers made by the test."""

    def __init__(
        self, cluster: Cluster, broker: BrokerId = 3, replicas: tuple[BrokerId, ...] = ()
    ) -> None:
        self.cluster = cluster
        self.broker = broker
        self.asked: list[TxnPartitions] = []
        self.requests: list[AddPartitionsToTxn] = []
        self.answers: dict[str, ErrorCode] = {}
        """By transactional id; the default is NONE."""
        self.held: list[Callable[[], None]] | None = None
        """The responses that wait for `release`, if they are held."""
        cluster.create_topic(TRANSACTIONS_TOPIC, replicas or (broker,), b"s" * 16)
        for node in cluster.nodes:
            self.install(node)

    def install(self, broker: BrokerId) -> None:
        """Let a broker answer by this coordinator."""
        node = self.cluster.nodes[broker]

        def serve(peer: Any, correlation: int, request: AddPartitionsToTxn) -> None:
            def respond() -> None:
                answer = self.answer(request)
                self.cluster._carry_out(broker, node, Respond(peer, correlation, answer))

            self.requests.append(request)
            self.asked += request.transactions
            self._send(respond)

        def ask_local(request: AddPartitionsToTxn, answered: Callable[[Any], None]) -> None:
            self.requests.append(request)
            self.asked += request.transactions
            self._send(lambda: answered(self.answer(request)))

        node._services[AddPartitionsToTxn] = serve
        node._verification.ask_local = ask_local

    def _send(self, respond: Callable[[], None]) -> None:
        if self.held is None:
            respond()
        else:
            self.held.append(respond)

    def answer(self, request: AddPartitionsToTxn) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            tuple(
                dict.fromkeys(
                    asked.partitions, self.answers.get(asked.transactional_id, ErrorCode.NONE)
                )
                for asked in request.transactions
            )
        )

    def hold(self) -> None:
        """Hold back responses from now on."""
        self.held = []

    def release(self) -> None:
        """Send the responses that were held."""
        held, self.held = self.held or [], None
        for respond in held:
            respond()


def started(brokers: tuple[BrokerId, ...] = (1, 2, 3), **settings: Any) -> tuple[Cluster, BrokerId]:
    """Start a cluster with a topic `orders`; return it and the leader."""
    cluster = Cluster(brokers=brokers, settings=settings)
    cluster.start()
    cluster.create_topic(replicas=brokers)
    leader = cluster.leader()
    assert leader is not None
    return cluster, leader


def batch(
    sequence: int,
    *values: bytes,
    of: int = PID,
    epoch: int = 0,
    transactional: bool = True,
    attributes: int = 0,
) -> bytearray:
    """A producer's batch, of one record for each value."""
    records = [Record(None, value, 0) for value in values or (b"v",)]
    flags = attributes | (TRANSACTIONAL if transactional else 0)
    return encode_batch(records, attributes=flags, producer=Producer(of, epoch, sequence))


def request(
    *batches: bytearray,
    version: int = ADDING,
    transactional_id: str | None = ID,
    acks: int = -1,
    names: tuple[TopicPartition, ...] = (ORDERS,),
) -> Produce:
    """A Produce request with one batch for each partition."""
    partitions = [ProducePartition(n, b) for n, b in zip(names, batches, strict=True)]
    return Produce(acks, 30_000, partitions, version, transactional_id=transactional_id)


def write(
    cluster: Cluster, leader: BrokerId, records: bytearray, **settings: Any
) -> ProducePartitionResponse:
    """Produce one batch and return the result."""
    [answer] = cluster.call(leader, request(records, **settings)).partitions
    assert isinstance(answer, ProducePartitionResponse)
    return answer


def marker(
    *,
    committed: bool = True,
    of: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
    names: tuple[TopicPartition, ...] = (ORDERS,),
) -> TxnMarker:
    """A marker for these partitions."""
    return TxnMarker(of, epoch, committed, coordinator_epoch, names, version)


def end(cluster: Cluster, leader: BrokerId, **settings: Any) -> ErrorCode:
    """Write one marker and return its result."""
    response = cluster.call(leader, WriteTxnMarkers((marker(**settings),)))
    [(_, results)] = response.markers
    error: ErrorCode = results[ORDERS]
    return error


def read(
    cluster: Cluster, broker: BrokerId, offset: int = 0, *, wait_ms: int = 0, committed: bool = True
) -> FetchPartitionResponse:
    """Fetch from `orders` as a consumer."""
    asked = FetchPartition(ORDERS, None, offset, 1 << 20)
    settings = {"read_committed": committed}
    fetch = Fetch(None, None, wait_ms, 1, 1 << 20, [asked], **settings)  # type: ignore[arg-type]
    response: FetchPartitionResponse = cluster.call(broker, fetch).partitions[0]
    return response
