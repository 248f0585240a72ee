"""Clients that write: producers, a writer of keys, and a client that requests producer ids.

A plain producer may duplicate or lose records, an idempotent one may not. A producer sends each
batch until it is acknowledged, rejected with a final error, or expired. It reports batches that
were acknowledged with acks=all to the oracle. An idempotent producer keeps up to five batches of a
partition in flight, numbers them, and resends the same bytes. If it gives a batch up, the sequence
numbers would have a gap, so it continues under a new producer id.

Invariant: every batch ends, so no batch is pending for long after faults stop.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    InitProducerId,
    InitProducerIdResponse,
    Produce,
    ProducePartition,
    ProduceResponse,
)
from tidelog.core.record.encoder import NO_PRODUCER, encode_batch, encode_value
from tidelog.core.record.encoder import Producer as Writer
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.replication.events import ACKS_ALL, ACKS_NONE
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Process, Site

REQUEST_TIMEOUT_MS = 800
"""How long a leader waits for replicas; the client waits 100 ms longer."""
BACKOFF_MS = 60
"""The delay before the first retry. Each retry doubles it, up to `BACKOFF_MAX_MS`."""
BACKOFF_MAX_MS = 960
DELIVERY_TIMEOUT_MS = 6_000
IN_FLIGHT_MAX = 5

_FINAL = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TIMESTAMP,
    }
)

Acknowledged = Callable[[TopicPartition, Offset, int, int], None]
"""Called with the partition, base offset, checksum and acks of a batch that was acknowledged."""
AcknowledgedAlone = Callable[[TopicPartition, BrokerId], None]
"""Called with the partition and the leader if it acknowledged acks=1 without a session."""


@dataclass(slots=True, eq=False)
class PendingBatch:
    """A batch that is not acknowledged or given up yet."""

    values: list[bytes]
    expires_ms: int
    data: bytes = b""
    crc: int = 0
    in_flight: bool = False
    backoff_ms: int = BACKOFF_MS


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The pending batches of one producer for one partition, in order."""

    partition: TopicPartition
    producer_id: int = -1
    sequence: int = 0
    batches: list[PendingBatch] = field(default_factory=list)


class SimProducer(SimClient):
    """One producer with one acks level."""

    def __init__(
        self,
        site: Site,
        address: Address,
        *,
        acks: int,
        idempotent: bool,
        acknowledged: Acknowledged,
        acknowledged_alone: AcknowledgedAlone,
    ) -> None:
        super().__init__(site, address, f"producer/{address}")
        self.acks = acks
        self.idempotent = idempotent
        self.acked = 0
        self.given_up = 0
        self._acknowledged = acknowledged
        self._acknowledged_alone = acknowledged_alone
        self._at_fenced: dict[int, BrokerId] = {}
        """Requests that arrived at a leader whose session had ended."""
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._sent: dict[int, tuple[PartitionQueue, PendingBatch]] = {}
        self._written = 0
        self._ids = address * 1000

    @property
    def pending(self) -> int:
        """The number of batches that are neither acknowledged nor given up."""
        return sum(len(queue.batches) for queue in self._queues.values())

    def produce(self, partition: TopicPartition, count: int) -> None:
        """Write a batch of `count` records."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
            if self.idempotent:
                queue.producer_id = self._new_id()
        values = []
        for _ in range(count):
            self._written += 1
            values.append(b"%d.%d" % (self._address, self._written))
        batch = PendingBatch(values, self._world.now_ms + DELIVERY_TIMEOUT_MS)
        queue.batches.append(batch)
        self._send_waiting(queue)

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def _encode(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        """Assign the batch its sequence number and encode it; first sends happen in order."""
        writer = NO_PRODUCER
        if self.idempotent:
            writer = Writer(queue.producer_id, 0, queue.sequence)
            queue.sequence += len(batch.values)
        if len(batch.values) == 1:
            batch.data = bytes(encode_value(batch.values[0], self._world.now_ms, writer))
        else:
            now = self._world.now_ms
            records = [Record(None, value, now) for value in batch.values]
            batch.data = bytes(encode_batch(records, producer=writer))
        batch.crc = parse(batch.data).crc

    # -- sending ---------------------------------------------------------------------------

    def _send_waiting(self, queue: PartitionQueue) -> None:
        self._drop_expired(queue)
        room = IN_FLIGHT_MAX if self.idempotent else 1
        for batch in queue.batches[:room]:
            if not batch.in_flight:
                self._send_batch(queue, batch)

    def _drop_expired(self, queue: PartitionQueue) -> None:
        """Give up batches that expired before they were sent."""
        now = self._world.now_ms
        kept = [batch for batch in queue.batches if batch.in_flight or now < batch.expires_ms]
        if len(kept) < len(queue.batches):
            self.given_up += len(queue.batches) - len(kept)
            queue.batches = kept
            if self.idempotent:
                self._start_over(queue)

    def _send_batch(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        batch.in_flight = True
        if not batch.data:
            self._encode(queue, batch)
        leader = self._find_leader(queue.partition)
        if leader is None:
            self._retry_later(queue, batch)
            return
        correlation = self._correlation = self._correlation + 1
        self._sent[correlation] = queue, batch
        target = self._site.brokers[leader]
        network = self._site.network
        network.send(self._address, leader, self._arrive, target, correlation, queue, batch.data)
        if self.acks == ACKS_NONE:
            del self._sent[correlation]
            self._end(queue, batch)
        else:
            wait = REQUEST_TIMEOUT_MS + 100
            self._world.after(wait, self._failed, correlation, ErrorCode.REQUEST_TIMED_OUT)

    def _arrive(
        self, target: Process, correlation: int, queue: PartitionQueue, data: bytes
    ) -> None:
        """Deliver the request with its own copy of the batch: the broker modifies the buffer."""
        part = ProducePartition(queue.partition, bytearray(data))
        request = Produce(self.acks, REQUEST_TIMEOUT_MS, [part])
        if self._site.store.ended_session(target.id):
            self._at_fenced[correlation] = target.id
        target.request(self._address, 0, correlation, request)

    def answered(self, correlation: int, response: object) -> None:
        assert isinstance(response, ProduceResponse)
        answer = response.partitions[0]
        if answer.error is not ErrorCode.NONE:
            self._failed(correlation, answer.error)
            return
        found = self._sent.pop(correlation, None)
        if found is None:
            return
        queue, batch = found
        base = answer.base_offset
        if base is not None:
            self._acknowledged(queue.partition, base, batch.crc, self.acks)
        if (self.acks != ACKS_ALL or base is None) and correlation in self._at_fenced:
            self._acknowledged_alone(queue.partition, self._at_fenced[correlation])
        self.acked += 1
        self._end(queue, batch)

    def refused(self, correlation: int) -> None:
        self._failed(correlation, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _failed(self, correlation: int, error: ErrorCode) -> None:
        found = self._sent.pop(correlation, None)
        if found is None:
            return
        queue, batch = found
        if error in _FINAL or self._world.now_ms >= batch.expires_ms:
            self._give_up(queue, batch)
        else:
            self._retry_later(queue, batch)

    def _retry_later(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        self._world.after(batch.backoff_ms, self._retry, queue, batch)
        batch.backoff_ms = min(2 * batch.backoff_ms, BACKOFF_MAX_MS)

    def _retry(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        if batch not in queue.batches or not batch.in_flight:
            return
        if self._world.now_ms >= batch.expires_ms:
            self._give_up(queue, batch)
        else:
            self._send_batch(queue, batch)

    def _give_up(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        if batch not in queue.batches:
            return  # another attempt to send the batch succeeded
        self.given_up += 1
        queue.batches.remove(batch)
        if self.idempotent:
            self._start_over(queue)
        self._send_waiting(queue)

    def _start_over(self, queue: PartitionQueue) -> None:
        """Renumber all batches in the queue, under a new producer id."""
        queue.producer_id = self._new_id()
        queue.sequence = 0
        for batch in queue.batches:
            batch.data = b""
            batch.in_flight = False
        stale = [c for c, (where, _) in self._sent.items() if where is queue]
        for correlation in stale:
            del self._sent[correlation]

    def _end(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        if batch in queue.batches:
            queue.batches.remove(batch)
        self._send_waiting(queue)


# -- the writer of a compacted topic -----------------------------------------------------


COMPACTED = TopicPartition("table", 0)
KEYS = 6
BATCH_MAX = 3
PAUSE_MAX_MS = 60
WRITE_TIMEOUT_MS = 800


class SimKeyWriter(SimClient):
    """Repeatedly writes a few keys of a compacted topic, and deletes some, until `finish`.

    It neither retries nor waits for responses: the log shows which records were appended. The
    unique timestamp of a record identifies it, because a tombstone has no value.
    """

    def __init__(
        self, site: Site, address: Address, acknowledged: Callable[[Offset, int], None]
    ) -> None:
        super().__init__(site, address, f"key-writer/{address}")
        self.acked = 0
        self._acknowledged = acknowledged
        """Called with the offset and the timestamp of an acknowledged batch's first record."""
        self._finishing = False
        self._written = 0
        self._alive: list[bytes] = []
        """Keys that were written once and not deleted yet."""
        self._sent: dict[int, int] = {}
        """The timestamp of the first record of each request, by correlation id."""

    def finish(self) -> None:
        self._finishing = True

    def write(self) -> None:
        """Send the next batch to the leader, and schedule the one after it."""
        if self._finishing:
            return
        self._world.after(self._random.randint(1, PAUSE_MAX_MS), self.write)
        leader = self._find_leader(COMPACTED)
        if leader is None:
            return
        records = []
        correlation = self._written + 1
        self._sent[correlation] = self._written + 1
        for _ in range(self._random.randint(1, BATCH_MAX)):
            self._written += 1
            records.append(self._record())
        data = bytes(encode_batch(records))
        target = self._site.brokers[leader]
        self._site.network.send(self._address, leader, self._arrive, target, correlation, data)

    def _record(self) -> Record:
        """Return a record with a frequent key or a new key, or a tombstone for a new key."""
        draw = self._random
        value: bytes | None = b"%d" % self._written * 8
        kind = draw.random()
        if kind < 0.3:
            key = b"once-%d" % self._written
            self._alive.append(key)
        elif kind < 0.6 and self._alive:
            key, value = self._alive.pop(draw.randrange(len(self._alive))), None
        else:
            key = b"key-%d" % draw.randrange(KEYS)
        return Record(key, value, self._written)

    def _arrive(self, target: Process, correlation: int, data: bytes) -> None:
        """Deliver the request with its own copy of the batch: the broker modifies the buffer."""
        part = ProducePartition(COMPACTED, bytearray(data))
        target.request(self._address, 0, correlation, Produce(ACKS_ALL, WRITE_TIMEOUT_MS, [part]))

    def answered(self, correlation: int, response: object) -> None:
        assert isinstance(response, ProduceResponse)
        answer = response.partitions[0]
        stamp = self._sent.pop(correlation, None)
        if stamp is not None and answer.error is ErrorCode.NONE and answer.base_offset is not None:
            self.acked += 1
            self._acknowledged(answer.base_offset, stamp)

    def refused(self, correlation: int) -> None:
        self._sent.pop(correlation, None)


# -- producer ids ------------------------------------------------------------------------


ID_PAUSE_MS = 450


class SimIdRequester(SimClient):
    """Requests producer ids from any broker that is up; reports each id that was assigned twice.

    Idempotence relies on unique ids: with one id for two producers, brokers would treat records of
    one as retries of the other. So no id may be assigned twice, even if brokers crash or responses
    get lost.
    """

    def __init__(self, site: Site, address: Address, assigned_twice: Callable[[int], None]) -> None:
        super().__init__(site, address, f"newcomer/{address}")
        self.ids: dict[int, int] = {}
        """The correlation id of the request that received each producer id."""
        self._assigned_twice = assigned_twice

    def request_id(self) -> None:
        """Request a producer id, now and again after each pause."""
        broker = self._find_broker()
        if broker is not None:
            self._correlation += 1
            self._send(broker, InitProducerId())
        self._world.after(ID_PAUSE_MS, self.request_id)

    def answered(self, correlation: int, response: object) -> None:
        """Store the id. A response that the network duplicated does not count as a second use."""
        assert isinstance(response, InitProducerIdResponse)
        if response.error is not ErrorCode.NONE:
            return
        if self.ids.setdefault(response.producer_id, correlation) != correlation:
            self._assigned_twice(response.producer_id)
