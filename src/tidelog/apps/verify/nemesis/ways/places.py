"""Find the places to damage in a partition's folder: its segments and their batches.

In a short log, one segment may be the first, an older and the active one at the same time.
"""

from collections.abc import Callable
from pathlib import Path

from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, parse
from tidelog.core.storage import layout

Way = Callable[[Path], None]
"""A way to damage files, given the partition's folder."""
FIRST, OLDER, ACTIVE = "first", "older", "active"


def segments(folder: Path) -> list[Path]:
    """Return the `.log` files, oldest first."""
    return sorted(folder.glob(f"*{layout.LOG}"))


def segment(folder: Path, which: str) -> Path:
    """Return the segment at that place in the log; the active one is the last with records."""
    found = segments(folder)
    if which == FIRST:
        return found[0]
    if which == OLDER:
        return found[(len(found) - 1) // 2]
    return next((file for file in reversed(found) if records(file)), found[-1])


def records(file: Path) -> bytes:
    """Return the bytes of a segment, without the reserved space after the last record."""
    return file.read_bytes().rstrip(b"\0")


def batches(file: Path) -> list[RecordBatch]:
    """Return the batches of a segment, up to the first bytes that are not a batch."""
    data, found, at = file.read_bytes(), [], 0
    while at < len(data):
        try:
            batch = parse(data, at)
        except CorruptRecord:
            break
        found.append(batch)
        at += batch.size
    return found


def base_offset(file: Path) -> int:
    """Return the base offset in the name of a segment."""
    return int(file.stem)
