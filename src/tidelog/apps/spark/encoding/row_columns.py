"""Where the bytes of rows are: the columns that a record is made of, as Arrow has them.

Always true of columns that were accepted: a key or value is binary with 32-bit offsets, and
no header is null or lacks its name.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class WrongRows(ValueError):
    """Rows that can be no records. The text is one line for people."""


class Rows(NamedTuple):
    """Rows to be written: a column each, or None where all rows have null."""

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
    """Milliseconds of a timestamp column; `default_ms` where it is null, or there is none."""
    if column is None:
        return np.full(count, default_ms, np.int64)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
    nulls = micros.null_count
    values = micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    if nulls:
        values = np.where(micros.is_null().to_numpy(zero_copy_only=False), default_ms, values)
    return np.ascontiguousarray(values, np.int64)


def as_binary(column: Any, what: str) -> Any:
    """A binary column with 32-bit offsets. Raises WrongRows."""
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
    """The parts of a column of type array<struct<key: string, value: binary>>. Raises WrongRows."""
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
