"""One attempt of one task in a transaction: its rows are invisible until the driver commits it.

With the first row the attempt fences earlier producers of its transactional id, and gets a producer
id and epoch that no other attempt has. Before rows go to a partition, the partition is added to the
transaction. `settle` returns when all rows are in the logs of all in-sync replicas; the transaction
stays open, and the attempt's message names it.

Invariants: the transaction holds all rows of the attempt, and nothing else. An attempt that fails
aborts its own transaction, and no other one.
"""

from typing import Any

import numpy as np

from tidelog.apps.spark.encoding.encoder import BatchEncoder
from tidelog.apps.spark.sink.delivery import Channel, Delivered, Delivery, TaskSender
from tidelog.apps.spark.sink.found_rows import Starts
from tidelog.apps.spark.sink.identity import Origin
from tidelog.apps.spark.sink.routing import Targets
from tidelog.apps.spark.sink.sink_errors import Fenced
from tidelog.apps.spark.sink.task_transaction import TaskTransaction, transactional_id
from tidelog.apps.spark.sink.write_options import SinkColumns, WriteOptions
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.shell.client.batch_sender import OUT_OF_ORDER, BatchSender, Outgoing, Produced
from tidelog.shell.client.client_errors import BrokerError, error_name
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.transactions import (
    ENDED,
    TransactionalProducer,
    TransactionCoordinators,
)

_ENDED = ENDED | {ErrorCode.TRANSACTION_ABORTABLE}


class TransactionalDelivery(Delivery):
    """Writes the rows of an attempt in a transaction of its own.

    `search`: an attempt without transactions may have written rows, before the option was set.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        options: WriteOptions,
        columns: SinkColumns,
        origin: Origin,
        *,
        search: bool,
        starts: Starts,
        coordinators: TransactionCoordinators,
        attempt: int,
    ) -> None:
        super().__init__(
            cluster, connections, options, columns, origin, search=search, starts=starts
        )
        self._coordinators = coordinators
        self._attempt = attempt
        self._producer: TransactionalProducer | None = None
        self._added: set[int] = set()
        """The targets whose partitions are in the transaction."""

    def transaction(self, delivered: Delivered) -> TaskTransaction | None:
        """Return the open transaction, after `settle`; None if no row was written."""
        if self._producer is None or self._channel is None:
            return None
        acknowledged = self._channel.sender.acknowledged
        key = max(acknowledged, key=lambda each: acknowledged[each].base_offset)
        return TaskTransaction(
            self._origin.task,
            self._attempt,
            self._producer.producer_id,
            self._producer.epoch,
            delivered.rows + delivered.found,
            key,
            max(acknowledged[key].base_offset, 0),
        )

    def abort(self) -> None:
        """Abort the transaction after an error. Raises ClientError."""
        if self._producer is not None:
            self._coordinators.fence(self._producer, self._options.transaction_ms)

    def _open_channel(self) -> Channel:
        options = self._options
        name = transactional_id(self._origin.query, self._origin.task, self._attempt)
        self._producer = self._coordinators.begin(name, options.transaction_ms)
        encoder = BatchEncoder(
            self._producer.producer_id,
            self._producer.epoch,
            {},
            codec=options.codec,
            batch_bytes=options.batch_bytes,
            transactional=True,
        )
        sender = TransactionSender(
            self._cluster, self._connections, options.delivery_s, options.batch_bytes, name
        )
        return Channel(encoder, sender)

    def _before_targets(self, targets: Targets) -> None:
        assert self._producer is not None, "the channel is open"
        new = set(np.unique(targets).tolist()) - self._added
        if not new:
            return
        try:
            self._coordinators.add_partitions(
                self._producer, [self._routing.targets[target] for target in sorted(new)]
            )
        except BrokerError as error:
            if error.code in _ENDED:
                raise Fenced(self._producer.transactional_id, error_name(error.code)) from error
            raise
        self._added |= new

    def _continue_at(self, target: int, sequence: int) -> None:
        """Do nothing: the rows found have another producer, and this one begins with 0."""


class TransactionSender(TaskSender):
    """Sends the batches of one attempt. No other attempt has its numbers."""

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        delivery_s: float,
        batch_bytes: int,
        transactional_id: str,
    ) -> None:
        super().__init__(cluster, connections, delivery_s, batch_bytes, transactional_id)
        self._name = transactional_id

    def accept(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        """Accept every acknowledgement: only this attempt can have written the batch."""

    def refusal(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> Exception:
        code: Any = produced.error
        if code in _ENDED:
            return Fenced(self._name, error_name(code))
        if code == ErrorCode.NONE or code in OUT_OF_ORDER:
            return BatchSender.refusal(self, key, batch, produced)
        return super().refusal(key, batch, produced)
