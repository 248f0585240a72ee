"""Read the files of a segment besides its log: `.index`, `.timeindex`, `.txnindex`, `.snapshot`.

Each reader returns the entries as rows, and problems with their byte positions. The entries of an
offset index are compared with the segment, if it exists.
"""

import os
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from tidelog.apps.log_files.read_only_file import ReadOnlyFile, read_whole
from tidelog.core.lineage.producer_state import CorruptSnapshot, ProducerState
from tidelog.core.lineage.transaction_index import CorruptTransactionIndex, decode_transactions
from tidelog.core.record.record_batch import HEADER, HEADER_SIZE
from tidelog.core.storage import layout
from tidelog.core.storage.segment.indexes import OffsetIndex, TimeIndex

Row = dict[str, Any]


class Problem(NamedTuple):
    """A problem, and its byte position in the file."""

    position: int
    reason: str


class IndexFile(NamedTuple):
    """The contents of one file."""

    kind: str
    columns: tuple[str, ...]
    rows: list[Row]
    problems: list[Problem]
    note: str = ""


def read_index_file(path: str, kind: str, base_offset: int) -> IndexFile:
    """Read a file by its kind, one of those in `layout`. Raises CannotRead."""
    return _READERS[kind](path, read_whole(path), base_offset)


def _offset_index(path: str, data: bytes, base_offset: int) -> IndexFile:
    entries, spare, problems = _entries(data, OffsetIndex.entry, keep=0)
    rows: list[Row] = []
    for number, (relative, position) in enumerate(entries):
        at = number * OffsetIndex.entry.size
        if rows and (rows[-1]["position"] >= position or entries[number - 1][0] >= relative):
            problems.append(Problem(at, "entries are not increasing"))
        rows.append({"offset": base_offset + relative, "position": position})
    problems += _compare_with_log(path, rows)
    return IndexFile(layout.OFFSET_INDEX, ("offset", "position"), rows, problems, spare)


def _compare_with_log(path: str, rows: list[Row]) -> list[Problem]:
    """Check that each entry has the last offset of the batch at its position."""
    log = path[: path.rindex(layout.OFFSET_INDEX)] + layout.LOG
    if not rows or not os.path.exists(log):
        return []
    problems = []
    with ReadOnlyFile(log) as file:
        for number, row in enumerate(rows):
            header = file.read(row["position"], HEADER_SIZE)
            if len(header) < HEADER_SIZE:
                reason = f"no batch at byte {row['position']} of the segment"
            else:
                fields = HEADER.unpack(header)
                last_offset = fields[0] + fields[6]
                if last_offset == row["offset"]:
                    continue
                reason = f"the batch there ends with offset {last_offset}, not {row['offset']}"
            problems.append(Problem(number * OffsetIndex.entry.size, reason))
    return problems


def _time_index(_path: str, data: bytes, base_offset: int) -> IndexFile:
    entries, spare, problems = _entries(data, TimeIndex.entry, keep=1)
    rows: list[Row] = []
    for number, (timestamp, relative) in enumerate(entries):
        if rows and (rows[-1]["timestamp"] >= timestamp or entries[number - 1][1] >= relative):
            problems.append(Problem(number * TimeIndex.entry.size, "entries are not increasing"))
        rows.append({"timestamp": timestamp, "offset": base_offset + relative})
    return IndexFile(layout.TIME_INDEX, ("timestamp", "offset"), rows, problems, spare)


def _entries(
    data: bytes, entry: Struct, keep: int
) -> tuple[list[tuple[int, int]], str, list[Problem]]:
    """Return the entries before the reserved zeros at the end, a note on these, and problems.

    `keep`: how many leading entries count even if they are zero.
    """
    whole = len(data) - len(data) % entry.size
    problems = []
    if whole < len(data):
        reason = f"{len(data) - whole} bytes are not a whole entry"
        problems.append(Problem(whole, reason))
    pairs: list[tuple[int, int]] = list(entry.iter_unpack(data[:whole]))
    used = len(pairs)
    while used > keep and pairs[used - 1] == (0, 0):
        used -= 1
    spare = len(pairs) - used
    note = f"{spare * entry.size} bytes reserved after the entries" if spare else ""
    return pairs[:used], note, problems


def _txn_index(_path: str, data: bytes, _base_offset: int) -> IndexFile:
    columns = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    try:
        rows = [entry._asdict() for entry in decode_transactions(data)]
    except CorruptTransactionIndex as error:
        return IndexFile(layout.TXN_INDEX, columns, [], [Problem(0, str(error))])
    return IndexFile(layout.TXN_INDEX, columns, rows, [])


def _snapshot(_path: str, data: bytes, base_offset: int) -> IndexFile:
    columns = (
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "current_txn_first_offset",
        "first_sequence",
        "last_sequence",
        "last_offset",
        "last_timestamp",
    )
    state = ProducerState()
    try:
        state.load_snapshot(data, base_offset)
    except CorruptSnapshot as error:
        return IndexFile(layout.SNAPSHOT, columns, [], [Problem(0, str(error))])
    rows: list[Row] = []
    for producer_id, entry in state.producers.items():
        last = entry.batches[-1] if entry.batches else None
        values = (
            producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            state.open_transactions.get(producer_id),
            last and last.first_sequence,
            last and last.last_sequence,
            last and last.last_offset,
            entry.last_timestamp,
        )
        rows.append(dict(zip(columns, values, strict=True)))
    return IndexFile(layout.SNAPSHOT, columns, rows, [])


_READERS: dict[str, Callable[[str, bytes, int], IndexFile]] = {
    layout.OFFSET_INDEX: _offset_index,
    layout.TIME_INDEX: _time_index,
    layout.TXN_INDEX: _txn_index,
    layout.SNAPSHOT: _snapshot,
}
