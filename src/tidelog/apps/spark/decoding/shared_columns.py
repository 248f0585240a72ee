"""Columns that are made in the same way with and without numba."""

from typing import Any

import pyarrow as pa

from tidelog.apps.spark import columns


def as_text(names: Any, odd: bool) -> Any:
    """Names of headers as strings; bytes that are no UTF-8 are replaced, as in Java."""
    if odd:
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())
    return names.view(pa.string())


def constant_columns(schema: Any, topic: str, partition: int, rows: int) -> dict[str, Any]:
    """What is the same in every row, made once; only what is asked for."""
    made: dict[str, Any] = {}
    if columns.TOPIC in schema.names:
        made[columns.TOPIC] = pa.repeat(pa.scalar(topic, pa.string()), rows)
    if columns.PARTITION in schema.names:
        made[columns.PARTITION] = pa.repeat(pa.scalar(partition, pa.int32()), rows)
    return made
