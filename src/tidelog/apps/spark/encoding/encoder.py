"""Encode rows, given as Arrow columns, into record batches for each target partition.

Invariants: the batches of a target depend only on its rows in their order, the producer and the
options, not on how the rows were divided into calls. So the same rows give the same bytes when a
task runs again, and a broker recognises them as duplicates. In accepted columns, a key or value is
binary with 32-bit offsets, and every header has a name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidelog.apps.spark.worker import NUMBA, chosen_engine
from tidelog.core.record.compression import Codec, compress
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import NO_LEADER_EPOCH, Producer, encode_record
from tidelog.core.record.record import Header, Record
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
from tidelog.shell.client.partitioner import partition_of_key

BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 100_000
NO_PRODUCER_ID = -1
_INT16_MAX = 2**15 - 1
_FIRST_BYTES = 32 * 1024

Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Memory: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


class WrongRows(ValueError):
    """Rows can't be written as records. The message is one line for users."""


class Rows(NamedTuple):
    """The columns of rows to write; a column is None if it is null in all rows."""

    key: Any
    value: Any
    headers: Any
    timestamp_ms: Int64s


class HeaderColumns(NamedTuple):
    """A list of headers for each row."""

    lists: Any
    names: Any
    contents: Any


def timestamps_ms(column: Any, count: int, default_ms: int) -> Int64s:
    """Return a timestamp column in milliseconds; `default_ms` if it is null or missing."""
    if column is None:
        return np.full(count, default_ms, np.int64)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
    nulls = micros.null_count
    values = micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    if nulls:
        values = np.where(micros.is_null().to_numpy(zero_copy_only=False), default_ms, values)
    return np.ascontiguousarray(values, np.int64)


def as_binary(column: Any, what: str) -> Any:
    """Return a binary column with 32-bit offsets. Raises WrongRows."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column.view(pa.binary()) if pa.types.is_string(kind) else column
    if not (
        pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
    ):
        raise WrongRows(f"column {what!r} is {kind}; cast it to binary or string")
    return column.cast(pa.binary())


def header_columns(column: Any) -> HeaderColumns:
    """Return the parts of an array<struct<key: string, value: binary>>. Raises WrongRows."""
    kind = column.type
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        raise WrongRows(f"column 'headers' is {kind}, not array<struct<key:string,value:binary>>")
    pairs = column.values
    if [field.name for field in kind.value_type] != ["key", "value"]:
        raise WrongRows("column 'headers' must have structs of two fields: key, value")
    names = as_binary(pairs.field(0), "headers.key")
    if pairs.null_count or names.null_count:
        raise WrongRows("a header is null or lacks its key; leave such headers out")
    return HeaderColumns(column, names, as_binary(pairs.field(1), "headers.value"))


def records_of(rows: Rows) -> list[Record]:
    """Return the rows as core's records. Raises WrongRows."""
    count = len(rows.timestamp_ms)
    keys = [None] * count if rows.key is None else as_binary(rows.key, "key").to_pylist()
    values = [None] * count if rows.value is None else as_binary(rows.value, "value").to_pylist()
    headers = _headers_of(rows.headers) if rows.headers is not None else [()] * count
    return [
        Record(*row) for row in zip(keys, values, rows.timestamp_ms.tolist(), headers, strict=True)
    ]


def _headers_of(column: Any) -> list[tuple[Header, ...]]:
    lists, names, contents = header_columns(column)
    pairs = list(map(Header.of, names.to_pylist(), contents.to_pylist()))
    ends = lists.offsets.to_pylist()
    valid = lists.is_valid().to_pylist()
    return [tuple(pairs[ends[n] : ends[n + 1]]) if valid[n] else () for n in range(len(lists))]


def partitions_of_keys(keys: Any, count: int, engine: str | None = None) -> Any:
    """Return the partition of each key among `count` partitions, as int32; -1 for a null key.

    Kafka's Java client chooses the same partition; see shell/client/partitioner.
    """
    keys = as_binary(keys, "key")
    if chosen_engine(engine) == NUMBA:
        from tidelog.apps.spark.encoding.record_kernel import hash_keys

        return hash_keys(keys, count)
    found = [-1 if key is None else partition_of_key(key, count) for key in keys.to_pylist()]
    return np.array(found, np.int32)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One whole batch."""

    target: int
    base_sequence: int
    """-1 if there is no producer id."""
    count: int
    data: bytes


class OpenBatch:
    """A batch that is being filled.

    Its memory begins with room for the header, so that a batch without compression is not copied.
    """

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

    def close(self, codec: Codec, producer: Producer, attributes: int = 0) -> bytes:
        """Return the whole batch with its checksum, and clear this object for the next batch.

        `attributes` are bits of record_batch.py.
        """
        view: Any = memoryview(self.memory.data)[: self.used]
        if codec != Codec.NONE:
            packed = compress(codec, view[HEADER_SIZE:])
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
            codec | attributes,
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
    """Encodes batches for many targets. A target is a small number that the caller chooses."""

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        sequences: Mapping[int, int],
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
        engine: str | None = None,
        transactional: bool = False,
    ) -> None:
        """`sequences` are the next sequence numbers by target; the default is 0.

        A batch has at most `batch_bytes` bytes before compression, unless one record alone has
        more.
        """
        self.sequences = dict(sequences)
        self._producer = (producer_id, producer_epoch)
        self._codec = codec
        self._attributes = TRANSACTIONAL if transactional else 0
        self._limits = (batch_bytes, batch_records)
        self._engine = chosen_engine(engine)
        self._open: dict[int, OpenBatch] = {}

    def append(self, rows: Rows, targets: Any) -> Iterator[EncodedBatch]:
        """Yield the batches that became full. Raises WrongRows.

        The iterator encodes the rows, so the caller must exhaust it.
        """
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
        data = batch.close(self._codec, stamp, self._attributes)
        return EncodedBatch(target, sequence, count, data)


def _row_encoder(rows: Rows, engine: str) -> Any:
    if engine == NUMBA:
        from tidelog.apps.spark.encoding.record_kernel import KernelRecords

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
