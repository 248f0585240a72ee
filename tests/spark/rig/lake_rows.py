"""The rows of a lake, read with a plain Parquet reader, and the expected rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tidelog.core.record.record import Header, Record

DAY_MS = 86_400_000
START_MS = 1_763_000_000_000


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return every row under a folder.

    If a file was deleted because it was merged, list the folder again, as the docs advise.
    """
    for _ in range(50):
        try:
            return _listed(path)
        except FileNotFoundError:
            continue
    return _listed(path)


def _listed(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for topic in sorted(path.glob("topic=*")) or [path] * path.exists():
        table = ds.dataset(topic, format="parquet", partitioning="hive").to_table()
        if topic is not path:
            table = table.append_column("topic", [[topic.name.removeprefix("topic=")] * len(table)])
        rows += table.to_pylist()
    return rows


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return the topic, partition and offset of each row, sorted, with duplicates."""
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def orders(first: int, count: int, days: int = 1) -> list[Record]:
    """Return records of all kinds: with and without keys, with headers, a few days apart."""
    return [
        Record(
            None if number % 3 == 0 else b"k%d" % (number % 7),
            json.dumps({"id": number, "amount": number / 2}).encode(),
            START_MS + number * 7 + (number % days) * DAY_MS,
            (Header("n", b"%d" % number),) if number % 5 == 0 else (),
        )
        for number in range(first, first + count)
    ]


def as_row(topic: str, partition: int, offset: int, record: Record) -> dict[str, Any]:
    """Return the row that the lake should have for a record."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": record.key,
        "value": record.value,
        "timestamp": record.timestamp,
        "headers": [(header.key, header.value) for header in record.headers],
    }


def record_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a row of the lake."""
    wanted = {name: row[name] for name in ("topic", "partition", "offset", "key", "value")}
    return {
        **wanted,
        "timestamp": round(row["timestamp"].timestamp() * 1000),
        "headers": [(h["key"], h["value"]) for h in row["headers"] or []],
    }
