"""Decode chunks of a log into Arrow RecordBatches.

Rows of several chunks are collected into one RecordBatch until it is full, so that small chunks do
not make small RecordBatches. The kernel decodes; where numba is missing, core's decoder does, many
times slower.

Invariant: rows are in offset order. Every record of a selected batch whose offset is in the
requested range becomes a row, or CorruptRecord is raised.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from tidelog.apps.spark import columns
from tidelog.apps.spark.decoding.batch_headers import OFFSET_MAX, Selected
from tidelog.apps.spark.worker import NUMBA, chosen_engine
from tidelog.core.record.decoder import LogRecord, TimestampType, decode
from tidelog.core.record.record import Header
from tidelog.core.record.record_batch import parse
from tidelog.core.types import Offset

ROWS = 16 * 1024
DATA_BYTES = 8 * 1024 * 1024
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Decoder(Protocol):
    """Decodes the records of one partition into RecordBatches."""

    def decode(
        self, selected: Selected, start: Offset = 0, end: Offset = OFFSET_MAX
    ) -> Iterator[Any]:
        """Yield the RecordBatches that became full. Raises CorruptRecord."""

    def flush(self) -> Iterator[Any]:
        """Yield the rows that are not returned yet."""


def new_decoder(
    schema: Any,
    topic: str,
    partition: int,
    *,
    rows: int = ROWS,
    data_bytes: int = DATA_BYTES,
    keep: bool = False,
    engine: str | None = None,
) -> Decoder:
    """Return a decoder for the columns of `schema`.

    `rows` and `data_bytes` limit a RecordBatch; a single record may be larger. Unless `keep` is
    set, a RecordBatch is valid only until the next one is requested.
    """
    if chosen_engine(engine) == NUMBA:
        # Imported when needed: compiling takes a while, and numba may be missing.
        from tidelog.apps.spark.decoding.kernel_decoder import KernelDecoder

        return KernelDecoder(schema, topic, partition, rows, data_bytes, keep)
    return _CoreDecoder(schema, topic, partition, rows, data_bytes)


class _CoreDecoder:
    """Decodes records with core's decoder."""

    def __init__(self, schema: Any, topic: str, partition: int, rows: int, data_bytes: int) -> None:
        self._schema = schema
        self._rows = rows
        self._data_bytes = data_bytes
        self._constants = columns.constant_columns(schema, topic, partition, rows)
        self._records: list[LogRecord] = []
        self._size = 0

    def decode(
        self, selected: Selected, start: Offset = 0, end: Offset = OFFSET_MAX
    ) -> Iterator[Any]:
        for position in selected.headers.position[selected.chosen].tolist():
            for record in decode(parse(selected.records, position)):
                if not start <= record.offset < end:
                    continue
                size = self._size_of(record)
                full = len(self._records) == self._rows or self._size + size > self._data_bytes
                if self._records and full:
                    yield self._take()
                self._records.append(record)
                self._size += size

    def flush(self) -> Iterator[Any]:
        if self._records:
            yield self._take()

    def _size_of(self, record: LogRecord) -> int:
        names = self._schema.names
        size = len(record.key or b"") if columns.KEY in names else 0
        size += len(record.value or b"") if columns.VALUE in names else 0
        if columns.HEADERS in names:
            size += sum(len(each.key_bytes()) + len(each.value or b"") for each in record.headers)
        return size

    def _take(self) -> Any:
        records, self._records, self._size = self._records, [], 0
        arrays = []
        for field in self._schema:
            constant = self._constants.get(field.name)
            if constant is not None:
                arrays.append(constant.slice(0, len(records)))
            else:
                values = [_VALUES[field.name](record) for record in records]
                arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(record: LogRecord) -> list[tuple[str, bytes | None]] | None:
    return [(_text(header), header.value) for header in record.headers] or None


def _text(header: Header) -> str:
    return header.key_bytes().decode(errors="replace")


_VALUES: dict[str, Any] = {
    columns.KEY: lambda record: record.key,
    columns.VALUE: lambda record: record.value,
    columns.OFFSET: lambda record: record.offset,
    columns.TIMESTAMP: lambda record: max(min(record.timestamp * 1000, _INT64_MAX), _INT64_MIN),
    columns.TIMESTAMP_TYPE: lambda record: int(
        record.timestamp_type is TimestampType.LOG_APPEND_TIME
    ),
    columns.LEADER_EPOCH: lambda record: record.leader_epoch,
    columns.HEADERS: _headers,
}
"""How to compute each column from a record."""
