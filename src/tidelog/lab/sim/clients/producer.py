"""Producers: plain ones that may write twice or lose, and idempotent ones that may not.

Each batch is sent until it is acknowledged, refused for good, or too old; what acks=all
acknowledged goes to the oracle. An idempotent producer keeps up to five batches in flight
for a partition, numbers them, and resends the same bytes; when it has to give a batch up,
the numbers after it would have a gap, so it goes on under a new producer id.

Always true: every batch ends, so once faults stop, nothing is pending for long.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition, ProduceResponse
from tidelog.core.record.encoder import NO_PRODUCER, encode_batch, encode_value
from tidelog.core.record.encoder import Producer as Writer
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.replication.events import ACKS_ALL, ACKS_NONE
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.sim.clients.metadata import find_leader
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Process, Site

REQUEST_TIMEOUT_MS = 800
"""How long a leader waits for replicas; the client waits a bit longer."""
BACKOFF_MS = 60
"""Before the first retry; doubled with each, up to:"""
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

Acknowledged = Callable[[TopicPartition, Offset, int], None]
"""Told the partition, the base offset and the checksum of what acks=all acknowledged."""


@dataclass(slots=True, eq=False)
class PendingBatch:
    """A batch on its way."""

    values: list[bytes]
    expires_ms: int
    data: bytes = b""
    crc: int = 0
    in_flight: bool = False
    backoff_ms: int = BACKOFF_MS


@dataclass(slots=True, eq=False)
class Lane:
    """What one producer has for one partition, in order."""

    partition: TopicPartition
    producer_id: int = -1
    sequence: int = 0
    queue: list[PendingBatch] = field(default_factory=list)


class SimProducer:
    """One producer with one acks level."""

    def __init__(
        self,
        site: Site,
        address: Address,
        *,
        acks: int,
        idempotent: bool,
        acknowledged: Acknowledged,
    ) -> None:
        self.acks = acks
        self.idempotent = idempotent
        self.acked = 0
        self.given_up = 0
        self._site = site
        self._world = site.world
        self._address = address
        self._acknowledged = acknowledged
        self._random = site.world.random(f"producer/{address}")
        self._lanes: dict[TopicPartition, Lane] = {}
        self._sent: dict[int, tuple[Lane, PendingBatch]] = {}
        self._correlation = 0
        self._written = 0
        self._ids = address * 1000
        site.clients[address] = self

    @property
    def pending(self) -> int:
        """Batches whose end is still open."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    def produce(self, partition: TopicPartition, count: int) -> None:
        """Write a batch of so many records."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition)
            if self.idempotent:
                lane.producer_id = self._new_id()
        values = []
        for _ in range(count):
            self._written += 1
            values.append(b"%d.%d" % (self._address, self._written))
        batch = PendingBatch(values, self._world.now_ms + DELIVERY_TIMEOUT_MS)
        lane.queue.append(batch)
        self._pump(lane)

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def _encode(self, lane: Lane, batch: PendingBatch) -> None:
        """Give it its sequence number and its bytes; batches are first sent in order."""
        writer = NO_PRODUCER
        if self.idempotent:
            writer = Writer(lane.producer_id, 0, lane.sequence)
            lane.sequence += len(batch.values)
        if len(batch.values) == 1:
            batch.data = bytes(encode_value(batch.values[0], self._world.now_ms, writer))
        else:
            now = self._world.now_ms
            records = [Record(None, value, now) for value in batch.values]
            batch.data = bytes(encode_batch(records, producer=writer))
        batch.crc = parse(batch.data).crc

    # -- sending ---------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        self._drop_expired(lane)
        room = IN_FLIGHT_MAX if self.idempotent else 1
        for batch in lane.queue[:room]:
            if not batch.in_flight:
                self._send(lane, batch)

    def _drop_expired(self, lane: Lane) -> None:
        """What waited so long that it was never sent."""
        now = self._world.now_ms
        kept = [batch for batch in lane.queue if batch.in_flight or now < batch.expires_ms]
        if len(kept) < len(lane.queue):
            self.given_up += len(lane.queue) - len(kept)
            lane.queue = kept
            if self.idempotent:
                self._start_over(lane)

    def _send(self, lane: Lane, batch: PendingBatch) -> None:
        batch.in_flight = True
        if not batch.data:
            self._encode(lane, batch)
        leader = find_leader(self._site, self._random, lane.partition)
        if leader is None:
            self._retry_later(lane, batch)
            return
        correlation = self._correlation = self._correlation + 1
        self._sent[correlation] = lane, batch
        target = self._site.brokers[leader]
        network = self._site.network
        network.send(self._address, leader, self._arrive, target, correlation, lane, batch.data)
        if self.acks == ACKS_NONE:
            del self._sent[correlation]
            self._end(lane, batch)
        else:
            wait = REQUEST_TIMEOUT_MS + 100
            self._world.after(wait, self._failed, correlation, ErrorCode.REQUEST_TIMED_OUT)

    def _arrive(self, target: Process, correlation: int, lane: Lane, data: bytes) -> None:
        """The broker stamps the buffer it gets, so each delivery has its own."""
        part = ProducePartition(lane.partition, bytearray(data))
        request = Produce(self.acks, REQUEST_TIMEOUT_MS, [part])
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
        lane, batch = found
        if self.acks == ACKS_ALL and answer.base_offset is not None:
            self._acknowledged(lane.partition, answer.base_offset, batch.crc)
        self.acked += 1
        self._end(lane, batch)

    def refused(self, correlation: int) -> None:
        self._failed(correlation, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _failed(self, correlation: int, error: ErrorCode) -> None:
        found = self._sent.pop(correlation, None)
        if found is None:
            return
        lane, batch = found
        if error in _FINAL or self._world.now_ms >= batch.expires_ms:
            self._give_up(lane, batch)
        else:
            self._retry_later(lane, batch)

    def _retry_later(self, lane: Lane, batch: PendingBatch) -> None:
        self._world.after(batch.backoff_ms, self._retry, lane, batch)
        batch.backoff_ms = min(2 * batch.backoff_ms, BACKOFF_MAX_MS)

    def _retry(self, lane: Lane, batch: PendingBatch) -> None:
        if batch not in lane.queue or not batch.in_flight:
            return
        if self._world.now_ms >= batch.expires_ms:
            self._give_up(lane, batch)
        else:
            self._send(lane, batch)

    def _give_up(self, lane: Lane, batch: PendingBatch) -> None:
        if batch not in lane.queue:
            return  # another sending of it was answered
        self.given_up += 1
        lane.queue.remove(batch)
        if self.idempotent:
            self._start_over(lane)
        self._pump(lane)

    def _start_over(self, lane: Lane) -> None:
        """Number everything that is left anew, under another id."""
        lane.producer_id = self._new_id()
        lane.sequence = 0
        for batch in lane.queue:
            batch.data = b""
            batch.in_flight = False
        stale = [c for c, (where, _) in self._sent.items() if where is lane]
        for correlation in stale:
            del self._sent[correlation]

    def _end(self, lane: Lane, batch: PendingBatch) -> None:
        if batch in lane.queue:
            lane.queue.remove(batch)
        self._pump(lane)
