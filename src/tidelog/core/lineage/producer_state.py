"""Producer state: the last batches and the open transactions of each producer of a log.

With it a leader detects duplicates: a batch that is sent twice is written once, and a batch that
would leave a gap in the sequence numbers is rejected. Open transactions limit what read-committed
consumers may read. Every replica keeps the state, because any of them may lead next: leaders,
followers and recovery call `update` for each batch; only a leader calls `validate` before.

The state is a function of the log below `end_offset`, with two exceptions: snapshots have only the
last batch of each producer, so a state that is restored from one detects fewer duplicates; and
`verifications` are of this leader only. An unknown producer may start at any sequence number: its
state may have expired, and rejecting the batch would lose data.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.lineage.verification import (
    Verification,
    Verifications,
    begin_verification,
    expire_verifications,
    renew_verification,
)
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import MAX_SEQUENCE, RecordBatch
from tidelog.core.slotted import field, slotted
from tidelog.core.types import Offset

BATCHES_KEPT = 5
"""The batches remembered of each producer: as many as a client has in flight."""
EXPIRATION_MS = 86_400_000
STRICT_MARKERS = 2
"""From this transaction version on, a marker's epoch is higher than that of the records."""

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_FROM = 6
_ABSENT = -1


class CorruptSnapshot(Exception):
    """The bytes of a `.snapshot` file are invalid; recovery tries an older snapshot."""


class AppendedBatch(NamedTuple):
    """A batch in the log: the fields needed to detect a duplicate of it."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class Duplicate(NamedTuple):
    """The batch is already in the log; the producer gets the same response again."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


class EndedTransaction(NamedTuple):
    """A transaction whose marker may not be committed yet."""

    first_offset: Offset
    marker_offset: Offset


@slotted
class ProducerEntry:
    """The state of one producer."""

    epoch: int
    coordinator_epoch: int = _ABSENT
    last_timestamp: int = _ABSENT
    batches: list[AppendedBatch] = field(default_factory=list)
    """The last batches of this epoch, oldest first; empty if only a marker was written."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _ABSENT

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            self.epoch, self.coordinator_epoch, self.last_timestamp, self.batches.copy()
        )


@slotted
class ProducerState:
    """The state of all producers of one log."""

    end_offset: Offset = 0
    """The state includes all batches below this offset."""
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    open_transactions: dict[int, Offset] = field(default_factory=dict)
    """First offset of each producer's open transaction, in rising order."""
    ended: list[EndedTransaction] = field(default_factory=list)
    """Transactions whose marker may be above the high watermark, in the order of their markers."""
    verifications: Verifications = field(default_factory=dict)
    """Transactions that the coordinator was asked for, before their first batch."""

    def validate(
        self, batch: RecordBatch, *, verified: bool = False, transaction_version: int = 0
    ) -> Duplicate | ErrorCode:
        """Check whether a leader may append this batch; ErrorCode.NONE means yes.

        The checks are in the same order as in Kafka. `verified`: the coordinator has agreed that
        the batch may begin a transaction. `transaction_version` is that of a marker.
        """
        if batch.producer_id < 0:
            return ErrorCode.NONE
        entry, sequence = self.producers.get(batch.producer_id), batch.base_sequence
        if batch.is_control:
            return self._marker_error(entry, batch, transaction_version)
        in_order = True
        if entry is not None:
            if batch.producer_epoch == entry.epoch:
                if sequence >= 0 and sequence != (entry.last_sequence + 1) & MAX_SEQUENCE:
                    duplicate = _find_duplicate(entry, batch)
                    if duplicate is not None:
                        return duplicate
                    in_order = False
            elif batch.producer_epoch < entry.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            else:
                in_order = sequence <= 0
        transactional = batch.is_transactional
        if (
            transactional
            and not verified
            and not self.has_transaction(batch.producer_id, batch.producer_epoch)
        ):
            return ErrorCode.INVALID_TXN_STATE
        if not in_order or (self.verifications and self._is_blocked(entry, batch)):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not transactional and batch.producer_id in self.open_transactions:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def _is_blocked(self, entry: ProducerEntry | None, batch: RecordBatch) -> bool:
        """Whether a verification of this producer requires an earlier batch first."""
        found = self.verifications.get(batch.producer_id)
        return (
            found is not None
            and batch.base_sequence >= 0
            and found.blocks(batch.base_sequence, known=entry is not None and bool(entry.batches))
        )

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer has an open transaction with this epoch. If its open transaction has
        an older epoch, the producer has fenced itself: its new transaction has not begun here."""
        return (
            producer_id in self.open_transactions
            and self.producers[producer_id].epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds: bool, wall_ms: int
    ) -> Verification | ErrorCode:
        """Return the verification that a batch needs; NONE if its transaction is open here; or why
        the batch can't be appended."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.has_transaction(producer_id, producer_epoch):
            return ErrorCode.NONE
        asked = (producer_id, producer_epoch, sequence)
        return begin_verification(self.verifications, *asked, adds=adds, wall_ms=wall_ms)

    def renew_verification(self, producer_id: int, known: Verification) -> Verification:
        """Put back a verification before the coordinator is asked; return the one that counts."""
        return renew_verification(self.verifications, producer_id, known)

    def _marker_error(
        self, entry: ProducerEntry | None, batch: RecordBatch, transaction_version: int
    ) -> ErrorCode:
        """Check a marker. With transaction version 2 the coordinator raises the epoch before it
        writes markers; a marker with the producer's epoch is then late, or repeats the last one."""
        if entry is None:
            return ErrorCode.NONE
        marker = decode_marker(batch)
        if marker is None:
            return ErrorCode.INVALID_RECORD
        if batch.producer_epoch < entry.epoch or (
            transaction_version >= STRICT_MARKERS
            and batch.producer_epoch == entry.epoch
            and batch.producer_id in self.open_transactions
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def update(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Apply a batch that was appended. The result must be added to the index of aborted
        transactions of the batch's segment."""
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
            if self.verifications:
                self.verifications.pop(batch.producer_id, None)
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
        self.verifications.pop(batch.producer_id, None)
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
        """Return the start of the first transaction whose end is not committed; None if none is."""
        first = next(iter(self.open_transactions.values()), None)
        for transaction in self.ended:
            if transaction.marker_offset >= high_watermark and (
                first is None or transaction.first_offset < first
            ):
                first = transaction.first_offset
        return first

    def forget_ended(self, high_watermark: Offset) -> None:
        """Remove ended transactions whose markers are committed."""
        ended = self.ended
        committed = 0
        while committed < len(ended) and ended[committed].marker_offset < high_watermark:
            committed += 1
        del ended[:committed]

    def expire(self, wall_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Remove producers whose newest record is this old, except those in a transaction."""
        expire_verifications(self.verifications, wall_ms, expiration_ms)
        for producer_id, entry in list(self.producers.items()):
            silent = wall_ms - entry.last_timestamp >= expiration_ms
            if silent and producer_id not in self.open_transactions:
                del self.producers[producer_id]

    def truncate_to(self, end: Offset) -> bool:
        """Adapt to a truncated log. True if the state is still right. False if it was cleared and
        must be rebuilt: load a snapshot, then update with the batches above it."""
        if end >= self.end_offset:
            return True
        intact = not self.producers
        self.restart_at(end if intact else 0)
        return intact

    def restart_at(self, offset: Offset) -> None:
        """Clear the state: the log is empty and starts at `offset`."""
        self.end_offset = offset
        self.producers.clear()
        self.open_transactions.clear()
        self.ended.clear()
        self.verifications.clear()

    def copy(self) -> "ProducerState":
        producers = {producer_id: entry.copy() for producer_id, entry in self.producers.items()}
        return ProducerState(
            self.end_offset, producers, self.open_transactions.copy(), self.ended.copy()
        )

    def encode_snapshot(self) -> bytes:
        """Return the bytes of `<end_offset>.snapshot`."""
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
        """Replace the state with a snapshot's; `end_offset` is from its file name. Raises
        CorruptSnapshot and then changes nothing."""
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
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise CorruptSnapshot("checksum mismatch")
    body = memoryview(data)[_SNAPSHOT_HEADER.size :]
    if len(body) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{count} producers do not fit into {len(body)} bytes")
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
    if batch.base_sequence < 0:
        return None  # a coordinator's batch
    for known in reversed(entry.batches):
        if known[:2] == wanted:
            return Duplicate(known.base_offset, known.last_offset, known.timestamp)
    return None
