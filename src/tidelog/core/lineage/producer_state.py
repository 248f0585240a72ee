"""What a replica remembers of the producers that wrote to its log.

It makes retries harmless: a batch sent twice is written once, a batch that would leave a
gap is refused. It also knows which transactions are open, which bounds what readers of
committed data may see. Every replica keeps it, for any of them may lead next, so leaders,
followers and recovery all feed it through `update`; only a leader asks `validate` first.

The state is a function of the log below `end_offset`, but for one thing: snapshots hold
only the last batch of each producer, so what is rebuilt from one remembers fewer retries
than what it was taken from. An unknown producer may begin at any sequence number: its
state may have expired, and refusing would lose data.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import MAX_SEQUENCE, RecordBatch
from tidelog.core.slotted import field, slotted
from tidelog.core.types import Offset

BATCHES_KEPT = 5
"""Also the most batches an idempotent client has in flight."""
EXPIRATION_MS = 86_400_000

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_FROM = 6
_ABSENT = -1


class CorruptSnapshot(Exception):
    """The bytes of a `.snapshot` that can't be right; an older one is tried."""


class AppendedBatch(NamedTuple):
    """A batch in the log, as far as a retry of it must be recognised."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class Duplicate(NamedTuple):
    """The batch is in the log already: the answer is the one it got the first time."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


class EndedTransaction(NamedTuple):
    """A transaction whose marker may not be replicated yet."""

    first_offset: Offset
    marker_offset: Offset


@slotted
class ProducerEntry:
    """One producer."""

    epoch: int
    coordinator_epoch: int = _ABSENT
    last_timestamp: int = _ABSENT
    batches: list[AppendedBatch] = field(default_factory=list)
    """The last few of this epoch, oldest first; empty when only a marker was seen."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _ABSENT

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            self.epoch, self.coordinator_epoch, self.last_timestamp, self.batches.copy()
        )


@slotted
class ProducerState:
    """All producers of one log."""

    end_offset: Offset = 0
    """Batches below are accounted for; rebuilding goes on from here."""
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    open_transactions: dict[int, Offset] = field(default_factory=dict)
    """First offset of each producer's open transaction, in rising order."""
    ended: list[EndedTransaction] = field(default_factory=list)
    """Transactions whose marker may lie above the high watermark."""

    def validate(self, batch: RecordBatch) -> Duplicate | ErrorCode:
        """May a leader append this batch? ErrorCode.NONE says yes."""
        if batch.producer_id < 0:
            return ErrorCode.NONE
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            return ErrorCode.NONE
        if batch.is_control:
            return _marker_error(entry, batch)
        if batch.producer_epoch == entry.epoch:
            if batch.base_sequence != (entry.last_sequence + 1) & MAX_SEQUENCE:
                duplicate = _find_duplicate(entry, batch)
                return duplicate or ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif batch.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        elif batch.base_sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not batch.is_transactional and batch.producer_id in self.open_transactions:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def update(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Account for a batch that is in the log now. The result belongs into the index of
        aborted transactions of the segment that holds the batch."""
        self.end_offset = batch.next_offset
        if batch.producer_id < 0:
            return None
        if batch.is_control:
            return self._end_transaction(batch)
        entry = self._entry(batch)
        if len(entry.batches) == BATCHES_KEPT:
            del entry.batches[0]
        entry.batches.append(
            AppendedBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                batch.max_timestamp,
            )
        )
        entry.last_timestamp = batch.max_timestamp
        if batch.is_transactional:
            self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
        return None

    def _entry(self, batch: RecordBatch) -> ProducerEntry:
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            entry = self.producers[batch.producer_id] = ProducerEntry(batch.producer_epoch)
        elif entry.epoch != batch.producer_epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        return entry

    def _end_transaction(self, batch: RecordBatch) -> AbortedTransaction | None:
        marker = decode_marker(batch)
        if marker is None:
            return None
        entry = self._entry(batch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = batch.max_timestamp
        first_offset = self.open_transactions.pop(batch.producer_id, None)
        if first_offset is None:
            return None
        self.ended.append(EndedTransaction(first_offset, batch.last_offset))
        if not marker.is_abort:
            return None
        stable = next(iter(self.open_transactions.values()), batch.next_offset)
        return AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """Where the first transaction begins whose end is not known to be replicated."""
        firsts = [t.first_offset for t in self.ended if t.marker_offset >= high_watermark]
        firsts += islice(self.open_transactions.values(), 1)
        return min(firsts, default=None)

    def forget_ended(self, high_watermark: Offset) -> None:
        """Transactions whose markers are replicated hold nobody back any more."""
        self.ended = [t for t in self.ended if t.marker_offset >= high_watermark]

    def expire(self, wall_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers whose newest record is this old, but none in a transaction."""
        for producer_id, entry in list(self.producers.items()):
            silent = wall_ms - entry.last_timestamp >= expiration_ms
            if silent and producer_id not in self.open_transactions:
                del self.producers[producer_id]

    def truncate_to(self, end: Offset) -> bool:
        """The log ends at `end` now. True if the state still describes it. False if it was
        emptied, and is to be rebuilt: load a snapshot, then update with what lies above it."""
        if end >= self.end_offset:
            return True
        intact = not self.producers
        self.restart_at(end if intact else 0)
        return intact

    def restart_at(self, offset: Offset) -> None:
        """The log is empty and begins at `offset`."""
        self.end_offset = offset
        self.producers.clear()
        self.open_transactions.clear()
        self.ended.clear()

    def copy(self) -> "ProducerState":
        producers = {producer_id: entry.copy() for producer_id, entry in self.producers.items()}
        return ProducerState(
            self.end_offset, producers, self.open_transactions.copy(), self.ended.copy()
        )

    def encode_snapshot(self) -> bytes:
        """The bytes of `<end_offset>.snapshot`."""
        body = bytearray()
        for producer_id, entry in self.producers.items():
            last = entry.batches[-1] if entry.batches else None
            body += _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence if last else _ABSENT,
                last.last_offset if last else _ABSENT,
                last.offset_delta if last else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                self.open_transactions.get(producer_id, _ABSENT),
            )
        count = len(self.producers)
        header = _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, 0, count)
        crc = crc32c(body, crc32c(header[_CRC_FROM:]))
        return _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc, count) + body

    def load_snapshot(self, data: bytes, end_offset: Offset) -> None:
        """Become what a snapshot says; `end_offset` is in its name. Raises CorruptSnapshot,
        and is then unchanged."""
        entries = _snapshot_entries(data)
        self.restart_at(end_offset)
        opened = []
        for producer_id, *fields, first_offset in entries:
            self.producers[producer_id] = _producer_entry(*fields)
            if first_offset >= 0:
                opened.append((first_offset, producer_id))
        for first_offset, producer_id in sorted(opened):
            self.open_transactions[producer_id] = first_offset


def _snapshot_entries(data: bytes) -> Iterator[tuple[int, ...]]:
    if len(data) < _SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise CorruptSnapshot("checksum differs")
    body = memoryview(data)[_SNAPSHOT_HEADER.size :]
    if len(body) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{count} producers in {len(body)} bytes")
    return _SNAPSHOT_ENTRY.iter_unpack(body)


def _producer_entry(
    epoch: int,
    last_sequence: int,
    last_offset: Offset,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
) -> ProducerEntry:
    entry = ProducerEntry(epoch, coordinator_epoch, timestamp)
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & MAX_SEQUENCE
        entry.batches.append(
            AppendedBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp)
        )
    return entry


def _find_duplicate(entry: ProducerEntry, batch: RecordBatch) -> Duplicate | None:
    wanted = (batch.base_sequence, batch.last_sequence)
    for known in reversed(entry.batches):
        if known[:2] == wanted:
            return Duplicate(known.base_offset, known.last_offset, known.timestamp)
    return None


def _marker_error(entry: ProducerEntry, batch: RecordBatch) -> ErrorCode:
    marker = decode_marker(batch)
    if marker is None:
        return ErrorCode.INVALID_RECORD
    if batch.producer_epoch < entry.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < entry.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.NONE
