"""Encode rows into record batches, for each target partition on its own.

Invariant: the batches of a target depend only on its rows in their order, the producer and the
options, not on the pieces in which the rows came. So the same rows give the same bytes when a
task runs again, and a broker recognises them as duplicates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tidelog.apps.spark.encoding.row_columns import (
    Int64s,
    Rows,
    WrongRows,
    records_of,
    timestamps_ms,
)
from tidelog.apps.spark.engines import NUMBA, chosen_engine
from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import NO_LEADER_EPOCH, Producer, encode_record
from tidelog.core.record.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAX_SEQUENCE,
    PREFIX_SIZE,
    TRANSACTIONAL,
    UINT32,
)

__all__ = ["BatchEncoder", "EncodedBatch", "Rows", "WrongRows", "timestamps_ms"]

BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 100_000
NO_PRODUCER_ID = -1
_INT16_MAX = 2**15 - 1
_FIRST_BYTES = 32 * 1024

Memory: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One whole batch."""

    target: int
    base_sequence: int
    """-1 without a producer id."""
    count: int
    data: bytes


class OpenBatch:
    """A batch that is being filled. Its memory begins with room for the header, so that a batch
    without compression is closed in place."""

    def __init__(self, size_max: int, count_max: int) -> None:
        self.size_max = size_max
        self.count_max = count_max
        self.memory: Memory = np.empty(0, np.uint8)
        self.address = 0
        self.grow(min(_FIRST_BYTES, size_max))
        self.clear()

    def clear(self) -> None:
        """Begin the next batch."""
        self.used = HEADER_SIZE
        self.count = 0
        self.base_time = 0
        self.max_time = 0

    def grow(self, need: int) -> None:
        """Make room for `need` bytes and keep what was written."""
        larger = np.empty(max(need, 2 * len(self.memory), HEADER_SIZE), np.uint8)
        larger[: len(self.memory)] = self.memory
        self.memory = larger
        self.address = int(larger.__array_interface__["data"][0])

    def close(self, attributes: int, codec: Codec, level: int | None, producer: Producer) -> bytes:
        """Return the whole batch with its checksum; then it is empty again."""
        view: Any = memoryview(self.memory.data)[: self.used]
        if codec != Codec.NONE:
            packed = compress(codec, view[HEADER_SIZE:], level)
            batch = bytearray(HEADER_SIZE + len(packed))
            batch[HEADER_SIZE:] = packed
            view = memoryview(batch)
        HEADER.pack_into(
            view,
            0,
            0,
            len(view) - PREFIX_SIZE,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            attributes | codec,
            self.count - 1,
            self.base_time,
            self.max_time,
            *producer,
            self.count,
        )
        UINT32.pack_into(view, CRC_AT, crc32c(view[CRC_FROM:]))
        self.clear()
        return bytes(view)


class BatchEncoder:
    """Makes batches for any number of targets; a target is a small number that the caller chose."""

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        sequences: Mapping[int, int],
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
        transactional: bool = False,
        engine: str | None = None,
    ) -> None:
        """`sequences` are the next sequence numbers by target (default 0). A batch has at most
        `batch_bytes` before compression, unless one record alone has more."""
        self.sequences = dict(sequences)
        self._producer = (producer_id, producer_epoch)
        self._codec = codec
        self._level = level
        self._limits = (batch_bytes, batch_records)
        self._attributes = TRANSACTIONAL if transactional else 0
        self._engine = chosen_engine(engine)
        self._open: dict[int, OpenBatch] = {}

    def append(self, rows: Rows, targets: Any) -> Iterator[EncodedBatch]:
        """Yield the batches that became full. Raises WrongRows. Exhaust the iterator: it encodes
        the rows."""
        encoder = _row_encoder(rows, self._engine)
        for target, chosen in _by_target(np.asarray(targets)):
            batch = self._open.get(target)
            if batch is None:
                batch = self._open[target] = OpenBatch(*self._limits)
            first = encoder.append(batch, chosen, 0)
            while first < len(chosen):
                yield self._close(target, batch)
                first = encoder.append(batch, chosen, first)

    def finish(self) -> Iterator[EncodedBatch]:
        """Yield the batches that are not full, by target."""
        for target, batch in sorted(self._open.items()):
            if batch.count:
                yield self._close(target, batch)

    def _close(self, target: int, batch: OpenBatch) -> EncodedBatch:
        count = batch.count
        sequence = self.sequences.get(target, 0)
        self.sequences[target] = (sequence + count) & MAX_SEQUENCE
        if self._producer[0] == NO_PRODUCER_ID:
            sequence = -1
        stamp = Producer(*self._producer, sequence)
        data = batch.close(self._attributes, self._codec, self._level, stamp)
        return EncodedBatch(target, sequence, count, data)


def _row_encoder(rows: Rows, engine: str) -> Any:
    if engine == NUMBA:
        from tidelog.apps.spark.encoding.kernel_records import KernelRecords

        return KernelRecords(rows)
    return _CoreRecords(rows)


class _CoreRecords:
    """Encodes rows with core's encoder, where numba is missing."""

    def __init__(self, rows: Rows) -> None:
        self._records = records_of(rows)

    def append(self, batch: OpenBatch, rows: Int64s, first: int) -> int:
        """Append rows[first:] until the batch is full; return the index of the next row."""
        for number in range(first, len(rows)):
            record = self._records[rows[number]]
            base_time = batch.base_time if batch.count else record.timestamp
            encoded = bytearray()
            encode_record(encoded, record, record.timestamp - base_time, batch.count)
            end = batch.used + len(encoded)
            if batch.count and (batch.count == batch.count_max or end > batch.size_max):
                return number
            if end > len(batch.memory):
                batch.grow(end)
            batch.memory[batch.used : end] = np.frombuffer(encoded, np.uint8)
            latest = max(batch.max_time, record.timestamp) if batch.count else record.timestamp
            batch.base_time, batch.max_time = base_time, latest
            batch.used, batch.count = end, batch.count + 1
        return len(rows)


def _by_target(targets: Any) -> Iterator[tuple[int, Int64s]]:
    """Yield each target and its rows in their order, the smallest target first."""
    if not len(targets):
        return
    low, high = int(targets.min()), int(targets.max())
    if low == high:
        yield low, np.arange(len(targets), dtype=np.int64)
        return
    small = targets
    if low >= 0 and high <= _INT16_MAX:
        small = targets.astype(np.int16)  # numpy uses a radix sort for these
    order = np.argsort(small, kind="stable").astype(np.int64)
    edges = np.flatnonzero(np.diff(small[order])) + 1
    for rows in np.split(order, edges):
        yield int(targets[rows[0]]), np.ascontiguousarray(rows)
