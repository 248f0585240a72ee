"""The Arrow columns that records are encoded from.

Invariant of accepted columns: a key or value is binary with 32-bit offsets, and no header is
null or lacks its name.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidelog.apps.spark.engines import NUMBA, chosen_engine
from tidelog.core.record.record import Header, Record
from tidelog.shell.client.partitioner import partition_of_key

Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class WrongRows(ValueError):
    """Rows can't be written as records. The text is one line for users."""


class Rows(NamedTuple):
    """Rows to write: a column each, or None if it is null in all rows."""

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
        raise WrongRows(f"column {what!r} is {kind}; make it binary or string first")
    return column.cast(pa.binary())


def header_columns(column: Any) -> HeaderColumns:
    """Return the parts of an array<struct<key: string, value: binary>>. Raises WrongRows."""
    kind = column.type
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        raise WrongRows(f"column 'headers' is {kind}, not array<struct<key:string,value:binary>>")
    pairs = column.values
    if [field.name for field in kind.value_type] != ["key", "value"]:
        raise WrongRows("the structs in column 'headers' have other fields than key and value")
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
    """Return the partition of each key among `count`, as 32-bit numbers; -1 for a null key.

    It is the partition that Kafka's Java client chooses, as in shell/client/partitioner.
    """
    keys = as_binary(keys, "key")
    if chosen_engine(engine) == NUMBA:
        from tidelog.apps.spark.encoding.kernel_records import hash_keys

        return hash_keys(keys, count)
    found = [-1 if key is None else partition_of_key(key, count) for key in keys.to_pylist()]
    return np.array(found, np.int32)
