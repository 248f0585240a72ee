"""A client that repeatedly writes a few keys of a compacted topic, and deletes some keys.

It neither retries nor waits for responses: the log shows which records were appended. The unique
timestamp of a record identifies it, because a tombstone has no value.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition, ProduceResponse
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.sim.clients.metadata import find_leader
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Process, Site

COMPACTED = TopicPartition("table", 0)
KEYS = 6
BATCH_MAX = 3
PAUSE_MAX_MS = 60
TIMEOUT_MS = 800


class SimKeyWriter:
    """Writes batches until `finish` is called."""

    def __init__(
        self, site: Site, address: Address, acknowledged: Callable[[Offset, int], None]
    ) -> None:
        self.acked = 0
        self._site = site
        self._world = site.world
        self._address = address
        self._acknowledged = acknowledged
        """Called with the offset and the timestamp of an acknowledged batch's first record."""
        self._random = site.world.random(f"key-writer/{address}")
        self._finishing = False
        self._written = 0
        self._alive: list[bytes] = []
        """Keys that were written once and not deleted yet."""
        self._sent: dict[int, int] = {}
        """The timestamp of the first record of each request, by correlation id."""
        site.clients[address] = self

    def finish(self) -> None:
        self._finishing = True

    def write(self) -> None:
        """Send the next batch to the leader, and schedule the one after it."""
        if self._finishing:
            return
        self._world.after(self._random.randint(1, PAUSE_MAX_MS), self.write)
        leader = find_leader(self._site, self._random, COMPACTED)
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
        target.request(self._address, 0, correlation, Produce(ACKS_ALL, TIMEOUT_MS, [part]))

    def answered(self, correlation: int, response: object) -> None:
        assert isinstance(response, ProduceResponse)
        answer = response.partitions[0]
        stamp = self._sent.pop(correlation, None)
        if stamp is not None and answer.error is ErrorCode.NONE and answer.base_offset is not None:
            self.acked += 1
            self._acknowledged(answer.base_offset, stamp)

    def refused(self, correlation: int) -> None:
        self._sent.pop(correlation, None)
