"""The levels with few rows: one for each file, index entry, checkpoint line or scanned stretch."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tidelog.apps.audit.checking import FOLDER, LOG_DIR, STRETCH
from tidelog.apps.audit.folders.partition_folder import read_folder
from tidelog.apps.audit.scan.stretch_scan import scan_stretch
from tidelog.apps.audit.source.planning import Unit
from tidelog.apps.log_files.index_files import read_index_file
from tidelog.apps.log_files.read_only_file import CannotRead, Vanished, read_whole
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError

Row = dict[str, Any]
_FILES = {
    "index": (layout.OFFSET_INDEX, layout.TIME_INDEX),
    "snapshot": (layout.SNAPSHOT,),
    "transaction": (layout.TXN_INDEX,),
}


def small_rows(units: list[Unit], schema: pa.Schema, level: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a small level, one Arrow batch for each folder.

    Unreadable files give no rows; the audit reports why.
    """
    for unit in units:
        if unit.stretch is None:
            rows = list(_rows(unit, level))
            if rows:
                columns = [
                    pa.array([row.get(field.name) for row in rows], field.type) for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows(unit: Unit, level: str) -> Iterator[Row]:
    place: Row = {"replica": unit.replica, "log_dir": unit.log_dir}
    if unit.partition is not None:
        place |= {"topic": unit.partition.topic, "partition": unit.partition.partition}
    if level == "checkpoint":
        yield from _checkpoints(unit, place)
    elif unit.partition is not None:
        with suppress(CannotRead, CheckpointError, OSError):
            if level == "file":
                yield from _listed(unit, place)
            elif level == "epoch":
                yield from _epochs(unit, place)
            else:
                yield from _entries(unit, place, level)


def _checkpoints(unit: Unit, place: Row) -> Iterator[Row]:
    if unit.facts is None:
        return
    for what, offsets in unit.facts.offsets.items():
        for folder, offset in offsets.items():
            topic, _, partition = folder.rpartition("-")
            yield place | {
                "topic": topic,
                "partition": int(partition),
                "checkpoint": what,
                "offset": offset,
            }


def _listed(unit: Unit, place: Row) -> Iterator[Row]:
    for name in sorted(os.listdir(unit.folder)):
        with suppress(FileNotFoundError):
            status = os.stat(os.path.join(unit.folder, name))
            parsed = layout.parse_file(name)
            yield place | {
                "file": name,
                "kind": parsed.kind.lstrip(".") if parsed else None,
                "base_offset": parsed.base_offset if parsed else None,
                "suffix": parsed.suffix.lstrip(".") or None if parsed else None,
                "size": status.st_size,
                "modified": int(status.st_mtime * 1_000_000),
            }


def _epochs(unit: Unit, place: Row) -> Iterator[Row]:
    path = os.path.join(unit.folder, layout.LEADER_EPOCHS)
    for entry in checkpoint.parse_epochs(path, read_whole(path)):
        yield place | {"leader_epoch": entry.epoch, "start_offset": entry.start_offset}


def _entries(unit: Unit, place: Row, level: str) -> Iterator[Row]:
    for name in sorted(os.listdir(unit.folder)):
        parsed = layout.parse_file(name)
        if parsed is None or parsed.suffix or parsed.kind not in _FILES[level]:
            continue
        with suppress(Vanished):
            found = read_index_file(
                os.path.join(unit.folder, name), parsed.kind, parsed.base_offset
            )
            for number, row in enumerate(found.rows):
                yield place | {"file": name, "entry": number, **_converted(row)}


def _converted(row: Row) -> Row:
    """Convert timestamps from milliseconds to microseconds, the unit of the Arrow columns."""
    times = ("timestamp", "last_timestamp")
    return {
        name: value * 1000 if name in times and value is not None else value
        for name, value in row.items()
    }


def scan_rows(units: list[Unit], schema: pa.Schema, deep: bool) -> Iterator[pa.RecordBatch]:
    """Yield one Arrow batch with one row per unit, to hold only one stretch in memory."""
    for unit in units:
        rows = {name: [value] for name, value in _scan_row(unit, deep).items()}
        arrays = [pa.array(rows[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _scan_row(unit: Unit, deep: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "replica": unit.replica,
        "log_dir": unit.log_dir,
        "topic": unit.partition.topic if unit.partition else None,
        "partition": unit.partition.partition if unit.partition else None,
        "kind": LOG_DIR,
        "segment": None,
        "position": None,
        "windows": [],
        "producers": [],
    }
    if unit.facts is not None:
        return row | {"summary": unit.facts.to_json()}
    if unit.stretch is None:
        return row | {"kind": FOLDER, "summary": read_folder(unit.folder).to_json()}
    found = scan_stretch(unit.stretch, deep)
    return row | {
        "kind": STRETCH,
        "segment": unit.stretch.path,
        "position": unit.stretch.start,
        "summary": found.summary.to_json(),
        "windows": [
            {"window": window, "digest": digest, "batches": batches}
            for window, digest, batches in found.windows
        ],
        "producers": [span._asdict() for span in found.producers],
    }
