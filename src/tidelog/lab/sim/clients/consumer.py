"""Consumers: they read continuously and report every record they receive to the oracle.

Each consumer reads one partition, from its leader or from any replica. Some send the leader epoch
of the last record that they read. The broker then reports the offset at which the records that
the consumer read diverge from the log.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    EARLIEST,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
)
from tidelog.core.record.record_batch import CorruptRecord, batches
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.oracle.shadow import Entry, entry_of

MAX_WAIT_MS = 300
TIMEOUT_MS = 700
BACKOFF_MS = 80
FETCH_MAX_BYTES = 4_000

Consumed = Callable[[TopicPartition, Offset, Entry], None]
Corrupt = Callable[[TopicPartition, BrokerId, int, str], None]
"""Called with the partition, the broker, the time of the request, and what is wrong."""


class SimConsumer(SimClient):
    """A consumer of one partition."""

    read_committed = False

    def __init__(
        self,
        site: Site,
        address: Address,
        partition: TopicPartition,
        *,
        from_followers: bool,
        sends_epoch: bool,
        consumed: Consumed,
        corrupt: Corrupt,
    ) -> None:
        super().__init__(site, address, f"consumer/{address}")
        self.read = 0
        self.position: Offset = 0
        self._epoch: LeaderEpoch | None = None
        self.partition = partition
        self._from_followers = from_followers
        self._sends_epoch = sends_epoch
        self._consumed = consumed
        self._corrupt = corrupt
        self._target: BrokerId = 0
        self._requested_ms = 0

    def poll(self) -> None:
        """Fetch the next records."""
        part = FetchPartition(
            self.partition,
            None,
            self.position,
            FETCH_MAX_BYTES,
            last_fetched_epoch=self._epoch if self._sends_epoch else None,
        )
        request = Fetch(
            None,
            None,
            MAX_WAIT_MS,
            1,
            FETCH_MAX_BYTES,
            [part],
            read_committed=self.read_committed,
        )
        self._send_request(self._choose(), request)

    def _choose(self) -> BrokerId | None:
        if self._from_followers:
            return self._random.choice(sorted(self._site.brokers))
        return self._find_leader(self.partition)

    def _send_request(self, broker: BrokerId | None, request: object) -> None:
        correlation = self._correlation = self._correlation + 1
        if broker is None:
            self._world.after(BACKOFF_MS, self._late, correlation)
            return
        self._target = broker
        self._requested_ms = self._world.now_ms
        self._send(broker, request)
        self._world.after(TIMEOUT_MS, self._late, correlation)

    def _late(self, correlation: int) -> None:
        if correlation == self._correlation:
            self.poll()

    def refused(self, correlation: int) -> None:
        if correlation == self._correlation:
            self._back_off()

    def _back_off(self) -> None:
        self._correlation += 1
        self._world.after(BACKOFF_MS, self._late, self._correlation)

    def answered(self, correlation: int, response: object) -> None:
        if correlation != self._correlation:
            return
        if isinstance(response, ListOffsetsResponse):
            self._reset(response)
            return
        assert isinstance(response, FetchResponse)
        if response.error is not ErrorCode.NONE or not response.partitions:
            self._back_off()
            return
        part = response.partitions[0]
        if part.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_start()
        elif part.error is not ErrorCode.NONE:
            self._back_off()
        elif part.diverging is not None:
            self.position = min(self.position, part.diverging.end_offset)
            self._epoch = None
            self._back_off()
        else:
            self._receive(part)

    def _receive(self, part: FetchPartitionResponse) -> None:
        assert part.records is None or isinstance(part.records, bytes)
        try:
            self._read_batches(part.records or b"", part)
        except CorruptRecord as error:
            self._corrupt(self.partition, self._target, self._requested_ms, error.reason)
            self._back_off()
            return
        self._correlation += 1
        self._world.after(1, self._late, self._correlation)

    def _read_batches(self, records: bytes, _part: FetchPartitionResponse) -> None:
        """Report all records; raise CorruptRecord at a batch with a wrong checksum or offset."""
        for batch in batches(records):
            if not batch.crc_ok():
                raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset}")
            if batch.base_offset > self.position:
                raise CorruptRecord(f"offset {batch.base_offset} instead of {self.position}")
            entry = entry_of(batch)
            for offset in range(max(self.position, batch.base_offset), batch.last_offset + 1):
                self._consumed(self.partition, offset, entry)
                self.read += 1
                self.position = offset + 1
            self._epoch = batch.leader_epoch

    def _find_start(self) -> None:
        part = ListOffsetsPartition(self.partition, None, EARLIEST)
        leader = self._find_leader(self.partition)
        self._send_request(leader, ListOffsets(None, [part]))

    def _reset(self, response: ListOffsetsResponse) -> None:
        offset = response.partitions[0].offset
        if offset is not None:
            self.position = offset
            self._epoch = None
        self._back_off()
