"""Output of `tidelog inspect segment`, printed batch by batch, so that memory is bounded.

Invariant: the JSON is one object; `holds` is its last key, because it is known only at the end.
"""

import io
import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Protocol, TextIO

from tidelog.apps.log_files.index_files import IndexFile
from tidelog.apps.log_files.segment_file import Seen
from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType, TransactionMarker
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch

VALUE_CHARACTERS_MAX = 200
_CODECS = {int(codec): codec.name.lower() for codec in Codec}
_LAST_TIMESTAMP_MS = 253_402_300_799_999
"""The end of year 9999, where Python's calendar ends."""


class Tally:
    """Counts and problems of one file."""

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.problems: list[dict[str, Any]] = []

    def add(self, seen: Seen, more: Iterable[str] = ()) -> None:
        batch = seen.batch
        if batch is not None:
            self.batches += 1
            self.records += batch.count
            self.bytes += batch.size
            self.last_offset = batch.last_offset
            if self.first_offset is None:
                self.first_offset = batch.base_offset
        for reason in (*seen.problems, *more):
            self.problem(seen.position, reason, batch.base_offset if batch else None)

    def problem(self, position: int, reason: str, base_offset: int | None = None) -> None:
        where = {} if base_offset is None else {"base_offset": base_offset}
        self.problems.append({"position": position, **where, "reason": reason})

    def as_data(self) -> dict[str, Any]:
        return {
            "batch_count": self.batches,
            "record_count": self.records,
            "sound_bytes": self.bytes,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
        }


def records_of(batch: RecordBatch) -> tuple[list[LogRecord], list[str]]:
    """Return the records, and the reason if they can't be decoded."""
    try:
        return decode(batch), []
    except CorruptRecord as error:
        return [], [f"records: {error.reason}"]


class Printer(Protocol):
    """Prints one file after another."""

    def log(self, path: str, size: int, walk: Iterator[Seen], records: bool) -> Tally:
        """Print a segment while it is read."""
        ...

    def index(self, path: str, size: int, found: IndexFile) -> None: ...

    def end(self, holds: bool) -> None: ...


# -- text -----------------------------------------------------------------------------------

_COLUMNS = "{:>12} {:>10} {:>23} {:>7} {:>6} {:>14} {:>17} {:<7} {:<24} {}"
_HEADINGS = (
    "position",
    "size",
    "offsets",
    "records",
    "epoch",
    "producer",
    "sequence",
    "codec",
    "largest timestamp",
    "",
)


class TextPrinter:
    """Prints lines with fixed columns, without waiting for the last row."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _line(self, text: str) -> None:
        self._out.write(text.rstrip() + "\n")

    def log(self, path: str, size: int, walk: Iterator[Seen], records: bool) -> Tally:
        tally = Tally()
        self._line(f"{path}: {size} bytes")
        first = next(walk, None)
        if first is None:
            self._line("✓ no batches")
            return tally
        self._line(_COLUMNS.format(*_HEADINGS))
        for seen in chain([first], walk):
            inner, more = records_of(seen.batch) if records and seen.batch else ([], [])
            tally.add(seen, more)
            if seen.batch is not None:
                self._line(_batch_line(seen.position, seen.batch, seen.problems))
            for record in inner:
                self._line("    " + record_line(record))
            for reason in (*seen.problems, *more):
                self._line(f"✗ byte {seen.position}: {reason}")
        self._line(self._verdict(tally))
        return tally

    def _verdict(self, tally: Tally) -> str:
        counted = f"{_counted(tally.batches, 'batch', 'batches')}, "
        counted += _counted(tally.records, "record", "records")
        if tally.first_offset is not None:
            counted += f", offsets {tally.first_offset} to {tally.last_offset}"
        if not tally.problems:
            return f"✓ {counted}; every checksum is right"
        return f"✗ {counted}; {_counted(len(tally.problems), 'problem', 'problems')}"

    def index(self, path: str, size: int, found: IndexFile) -> None:
        self._line(f"{path}: {size} bytes")
        if found.rows:
            heads = [column.replace("_", " ") for column in found.columns]
            widths = [max(len(head), 14) for head in heads]
            cells = zip(heads, widths, strict=True)
            self._line("  ".join(f"{head:>{width}}" for head, width in cells))
            for row in found.rows:
                self._line(
                    "  ".join(
                        f"{_cell(column, row[column]):>{width}}"
                        for column, width in zip(found.columns, widths, strict=True)
                    )
                )
        for problem in found.problems:
            self._line(f"✗ byte {problem.position}: {problem.reason}")
        count = _counted(len(found.rows), "entry", "entries")
        note = f"; {found.note}" if found.note else ""
        self._line(f"{'✗' if found.problems else '✓'} {count}{note}")

    def end(self, holds: bool) -> None:
        """Print nothing: each file has its own summary."""


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _cell(column: str, value: int | None) -> str:
    if value is None:
        return "–"
    return moment(value) if column.endswith("timestamp") else str(value)


def _batch_line(position: int, batch: RecordBatch, problems: tuple[str, ...]) -> str:
    producer = f"{batch.producer_id}/{batch.producer_epoch}" if batch.has_producer else "–"
    sequence = "–" if batch.base_sequence < 0 else f"{batch.base_sequence}–{batch.last_sequence}"
    notes = [
        *(["transactional"] if batch.is_transactional else []),
        *(["control"] if batch.is_control else []),
        *(["log append time"] if batch.is_log_append_time else []),
        *(["tombstones expire"] if batch.has_delete_horizon else []),
        *(["damaged"] if problems else []),
    ]
    return _COLUMNS.format(
        position,
        batch.size,
        f"{batch.base_offset}–{batch.last_offset}",
        batch.count,
        batch.leader_epoch,
        producer,
        sequence,
        codec_name(batch.codec),
        moment(batch.max_timestamp),
        ", ".join(notes),
    )


def codec_name(codec: int) -> str:
    """Return the name of a compression codec."""
    return _CODECS.get(codec) or f"codec {codec}"


def moment(timestamp: int) -> str:
    """Format a timestamp in UTC; one outside the calendar stays a number."""
    if not 0 <= timestamp <= _LAST_TIMESTAMP_MS:
        return str(timestamp)
    at = datetime.fromtimestamp(timestamp // 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03d}Z"


def record_line(record: LogRecord) -> str:
    """Format a record in one line."""
    if record.control is not None:
        return f"offset {record.offset}  {moment(record.timestamp)}  {_control_text(record)}"
    headers = "".join(
        f"  {header.key.encode(errors='replace').decode()}={_shown(header.value)}"
        for header in record.headers
    )
    text = f"key {_shown(record.key)}  value {_shown(record.value)}{headers}"
    return f"offset {record.offset}  {moment(record.timestamp)}  {text}"


def _control_text(record: LogRecord) -> str:
    control = record.control
    assert control is not None
    known = control.type in ControlType.__members__.values()
    name = ControlType(control.type).name.lower() if known else f"control type {control.type}"
    if isinstance(control, TransactionMarker):
        return f"{name} marker of coordinator epoch {control.coordinator_epoch}"
    return name


def _shown(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = json.dumps(value.decode(), ensure_ascii=False) if _is_text(value) else repr(value)
    if len(text) > VALUE_CHARACTERS_MAX:
        return f"{text[:VALUE_CHARACTERS_MAX]}… ({len(value)} bytes)"
    return text


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- JSON -----------------------------------------------------------------------------------


class JsonPrinter:
    """Prints one JSON object incrementally."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._files = 0

    def _open_file(self, path: str, kind: str, size: int) -> None:
        self._out.write(",\n    {" if self._files else '{\n  "files": [\n    {')
        self._files += 1
        head = {"path": path, "kind": kind, "size": size}
        self._out.write(json.dumps(head)[1:-1])

    def log(self, path: str, size: int, walk: Iterator[Seen], records: bool) -> Tally:
        tally = Tally()
        self._open_file(path, "log", size)
        self._out.write(', "batches": [')
        for seen in walk:
            inner, more = records_of(seen.batch) if records and seen.batch else ([], [])
            comma = "," if tally.batches else ""
            tally.add(seen, more)
            if seen.batch is not None:
                data = batch_data(seen.position, seen.batch, (*seen.problems, *more))
                if records:
                    data["records"] = [record_data(record) for record in inner]
                self._out.write(f"{comma}\n      {json.dumps(data)}")
        self._out.write("],\n     " + json.dumps(tally.as_data())[1:-1])
        self._out.write(f', "problems": {json.dumps(tally.problems)}}}')
        return tally

    def index(self, path: str, size: int, found: IndexFile) -> None:
        self._open_file(path, found.kind.removeprefix("."), size)
        self._out.write(', "entries": [')
        for number, row in enumerate(found.rows):
            self._out.write(f"{',' if number else ''}\n      {json.dumps(row)}")
        problems = [problem._asdict() for problem in found.problems]
        self._out.write(f'],\n     "note": {json.dumps(found.note)},')
        self._out.write(f' "problems": {json.dumps(problems)}}}')

    def end(self, holds: bool) -> None:
        files = "" if self._files else '{\n  "files": ['
        self._out.write(f'{files}],\n  "holds": {json.dumps(holds)}\n}}\n')


def batch_data(position: int, batch: RecordBatch, problems: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a batch header."""
    horizon = batch.base_timestamp if batch.has_delete_horizon else None
    return {
        "position": position,
        "size": batch.size,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "codec": codec_name(batch.codec),
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "delete_horizon_ms": horizon,
        "crc": batch.crc,
        "crc_ok": "checksum differs" not in problems,
        "problems": list(problems),
    }


def record_data(record: LogRecord) -> dict[str, Any]:
    """Return the fields of a record; bytes that are not UTF-8 in base64."""
    data: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _as_json(record.key),
        "value": _as_json(record.value),
        "headers": [
            [header.key_bytes().decode(errors="replace"), _as_json(header.value)]
            for header in record.headers
        ],
    }
    if record.control is not None:
        data["control"] = _control_text(record)
    return data


def _as_json(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    return value.decode() if _is_text(value) else {"base64": b64encode(value).decode()}


def printer(form: str) -> Printer:
    """Return a printer to stdout for `text` or `json`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # ASCII terminals get `?` for a tick
    return JsonPrinter(sys.stdout) if form == "json" else TextPrinter(sys.stdout)
