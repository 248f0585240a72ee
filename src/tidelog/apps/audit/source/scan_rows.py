"""Level `scan`, for the audit: one row for each log directory, folder and stretch."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidelog.apps.audit.folders.partition_folder import read_folder
from tidelog.apps.audit.judgement import FOLDER, LOG_DIR, STRETCH
from tidelog.apps.audit.scan.stretch_scan import scan_stretch
from tidelog.apps.audit.source.planning import Unit


def scan_rows(units: list[Unit], schema: pa.Schema, deep: bool) -> Iterator[pa.RecordBatch]:
    """Yield one Arrow batch with one row per unit, to hold only one stretch in memory."""
    for unit in units:
        rows = {name: [value] for name, value in _row(unit, deep).items()}
        arrays = [pa.array(rows[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row(unit: Unit, deep: bool) -> dict[str, Any]:
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
