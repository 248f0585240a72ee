"""Read offset, timestamp and presence of a key of each record, and skip the rest.

Every length is checked against the bytes that are there, headers included, as in
`record/decoder.py`; but no record is made, which takes a third of the time. Records and
headers are charged to the request's budget: a megabyte may hold millions of either.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.opening.work_budget import RECORD_STEPS, WorkBudget
from tidelog.core.record.record_batch import HEADER_SIZE, CorruptRecord, RecordBatch
from tidelog.core.record.varint import INT64_BITS, read_varint
from tidelog.core.types import Offset


class ScannedRecord(NamedTuple):
    """Where and when a record is, and whether it has a key."""

    offset: Offset
    timestamp: int
    has_key: bool


def scan(
    batch: RecordBatch, unpacked: Callable[[], Buffer], budget: WorkBudget
) -> Iterator[ScannedRecord]:
    """The records of a batch, in order. Raises CorruptRecord."""
    if batch.count < 0:
        raise CorruptRecord(f"{batch.count} records")
    if batch.count == 0 and batch.size == HEADER_SIZE:
        return  # compaction removed all records
    budget.charge_steps(RECORD_STEPS * batch.count)
    data = bytes(unpacked())
    is_append_time, base_timestamp = batch.is_log_append_time, batch.base_timestamp
    position, next_offset = 0, batch.base_offset
    for _ in range(batch.count):
        length, position = read_varint(data, position)
        end = position + length
        if not position < end <= len(data):
            raise CorruptRecord(f"record of {length} bytes, {len(data) - position} bytes present")
        delta, position = read_varint(data, position + 1, INT64_BITS)
        offset_delta, position = read_varint(data, position)
        offset = batch.base_offset + offset_delta
        if not next_offset <= offset <= batch.last_offset:
            raise CorruptRecord(f"offset {offset} out of place")
        next_offset = offset + 1
        key_size, position = _skip_bytes(data, position, end)
        _, position = _skip_bytes(data, position, end)
        headers, position = read_varint(data, position)
        if headers:
            position = _skip_headers(data, position, end, headers, budget)
        if position != end:
            raise CorruptRecord(f"record ends {end - position} bytes off its length")
        timestamp = batch.max_timestamp if is_append_time else base_timestamp + delta
        yield ScannedRecord(offset, timestamp, key_size >= 0)
    if position != len(data):
        raise CorruptRecord(f"{len(data) - position} bytes after the last record")


def _skip_headers(data: Buffer, position: int, end: int, count: int, budget: WorkBudget) -> int:
    # A header takes two bytes at least.
    if not 0 < count <= (end - position) // 2:
        raise CorruptRecord(f"{count} headers in {end - position} bytes")
    budget.charge_steps(count)
    for _ in range(count):
        size, position = _skip_bytes(data, position, end)
        if size < 0:
            raise CorruptRecord("header without a key")
        _, position = _skip_bytes(data, position, end)
    return position


def _skip_bytes(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """The length, -1 for null, and the position after the bytes."""
    size, position = read_varint(data, position)
    if size == -1:
        return size, position
    if not 0 <= size <= end - position:
        raise CorruptRecord(f"{size} bytes promised, {end - position} bytes left in the record")
    return size, position + size
