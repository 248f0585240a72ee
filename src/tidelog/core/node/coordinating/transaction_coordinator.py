"""The transaction coordinator: transactional ids on `__transaction_state`, and their markers."""

from collections.abc import Callable
from typing import Any, get_args

from tidelog.core.controller.metadata.features import TRANSACTION_VERSION
from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.coordinator_runtime import CoordinatorRuntime, HostedShard
from tidelog.core.node.coordinating.marker_sender import MarkerSender
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    TxnPartitions,
)
from tidelog.core.transactions import messages as on
from tidelog.core.transactions.messages import refused
from tidelog.core.transactions.shard import (
    AllocateProducerId,
    SendMarkers,
    TransactionShard,
)
from tidelog.core.transactions.transaction import EPOCH_BUMPS, ProducerIdentity
from tidelog.core.types import LeaderEpoch, TopicPartition

Results = dict[TopicPartition, ErrorCode]


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    """The transactional ids that this broker coordinates."""

    topic = TRANSACTIONS_TOPIC

    def __init__(self, host: CoordinatorHost) -> None:
        super().__init__(host, host.config.request_timeout_ms)
        self._config = host.config.transactions
        self._allocate_producer_id = host.allocate_producer_id
        self.markers = MarkerSender(host, self._markers_written)

    def handlers(self) -> dict[type, RequestHandler]:
        of_one_id = dict.fromkeys(get_args(on.TransactionRequest), self._serve)
        return {**of_one_id, on.ListTransactions: self._list}

    def make_shard(self, _leader_epoch: LeaderEpoch) -> TransactionShard:
        return TransactionShard(
            self._config,
            self._turn.now_ms,
            self._turn.wall,
            self._transaction_version,
            self._turn.counters.transactions.end,
        )

    def _transaction_version(self) -> int:
        return self._image.features.get(TRANSACTION_VERSION, 0)

    def refused(self, request: Any, error: ErrorCode) -> object:
        return refused(request, error)

    # -- requests --------------------------------------------------------------------------

    def _serve(self, peer: Peer, correlation: int, request: on.TransactionRequest) -> None:
        self.serve(request.transactional_id, peer, correlation, request)

    def _list(self, peer: Peer, correlation: int, request: on.ListTransactions) -> None:
        """List the transactional ids of this broker."""
        shards = self.all_shards()
        if isinstance(shards, ErrorCode):
            response = on.ListTransactionsResponse(shards)
        else:
            now_ms = self._turn.now_ms
            found = tuple(
                each for shard in shards for each in shard.list_transactions(request, now_ms)
            )
            response = on.ListTransactionsResponse(ErrorCode.NONE, found)
        self._turn.emit(Respond(peer, correlation, response))

    def add_partitions_to_txn(
        self,
        request: AddPartitionsToTxn,
        respond: Callable[[AddPartitionsToTxnResponse], None],
    ) -> None:
        """Serve the request of a partition leader: each transaction by its own shard.

        A partition that this broker's metadata lacks is not added: the topic is new, and a marker
        to an unknown partition counts as written, so the transaction would never end there.
        """
        wanted = request.transactions
        results: list[Results | None] = [None] * len(wanted)

        def answered_at(number: int, each: TxnPartitions, response: Any) -> None:
            results[number] = results_of(each, response)
            done = [result for result in results if result is not None]
            if len(done) == len(wanted):
                respond(AddPartitionsToTxnResponse(tuple(done)))

        def serve(number: int, each: TxnPartitions) -> None:
            def answered(response: Any) -> None:
                answered_at(number, each, response)

            self.serve_locally(each.transactional_id, request_of(each), answered)

        if not wanted:
            respond(AddPartitionsToTxnResponse(()))
        for number, each in enumerate(wanted):
            if each.verify_only or all(map(self._is_known, each.partitions)):
                serve(number, each)
            else:
                behind = on.AddPartitionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                answered_at(number, each, behind)

    def _is_known(self, name: TopicPartition) -> bool:
        return self._image.partition(*name) is not None

    # -- effects ---------------------------------------------------------------------------

    def carry_out(self, hosted: HostedShard[TransactionShard], effect: Any) -> None:
        if isinstance(effect, SendMarkers):
            self.markers.send(hosted, effect)
        elif isinstance(effect, AllocateProducerId):
            self._allocate_producer_id(
                lambda error, new_id: self._allocated(hosted, effect.token, error, new_id)
            )
        else:
            super().carry_out(hosted, effect)

    def _allocated(
        self,
        hosted: HostedShard[TransactionShard],
        token: int,
        error: ErrorCode,
        producer_id: int,
    ) -> None:
        if self.shards.get(hosted.replica.topic_partition.partition) is hosted:
            hosted.shard.producer_id_allocated(token, error, producer_id, self._turn.now_ms)
            self._active[hosted] = None

    def _markers_written(
        self,
        hosted: HostedShard[TransactionShard],
        transactional_id: str,
        done: frozenset[TopicPartition],
    ) -> None:
        if self.shards.get(hosted.replica.topic_partition.partition) is hosted:
            hosted.shard.markers_written(transactional_id, done, self._turn.now_ms)
            self._active[hosted] = None

    # -- progress --------------------------------------------------------------------------

    def unload(self, replica: HostedReplica) -> None:
        hosted = self.shards.get(replica.topic_partition.partition)
        super().unload(replica)
        if hosted is not None and hosted.replica is replica:
            self.markers.forget(hosted)

    @property
    def is_active(self) -> bool:
        return super().is_active or self.markers.is_active

    def pump(self) -> None:
        super().pump()
        self.markers.flush()

    def tick(self) -> None:
        super().tick()
        self.markers.tick()

    def next_ms(self) -> int | None:
        soonest, retry_ms = super().next_ms(), self.markers.next_ms()
        if soonest is None or (retry_ms is not None and retry_ms < soonest):
            return retry_ms
        return soonest


def request_of(each: TxnPartitions) -> on.AddPartitions | on.VerifyPartitions:
    """Return the request of a partition leader about one transaction for its shard."""
    producer = ProducerIdentity(each.producer_id, each.producer_epoch)
    partitions = frozenset(each.partitions)
    if each.verify_only:
        return on.VerifyPartitions(each.transactional_id, producer, partitions)
    return on.AddPartitions(each.transactional_id, producer, partitions, EPOCH_BUMPS)


def results_of(
    each: TxnPartitions, response: on.AddPartitionsResponse | on.VerifyPartitionsResponse
) -> Results:
    """Return the result of each partition."""
    error = response.error_code
    missing: frozenset[TopicPartition] = getattr(response, "missing", frozenset())
    return {
        name: ErrorCode.TRANSACTION_ABORTABLE if name in missing else error
        for name in each.partitions
    }
