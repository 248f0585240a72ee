"""Finding records in a log: by offset, by timestamp, and the aborted among them.

Answers by offset are regions of whole batches in one segment. Answers by timestamp open a
single batch, the only place where a broker looks at records to serve a request (apart from
compaction).
"""

from typing import NamedTuple

from tidelog.core.lineage.transaction_index import AbortedTransaction, aborted_transactions
from tidelog.core.record.decoder import OPENED_BYTES_MAX, OPENED_RECORDS_MAX, decode
from tidelog.core.record.record_batch import CorruptRecord, parse
from tidelog.core.storage.disk import Disk, Region
from tidelog.core.storage.segment.batch_scan import BatchSpan
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import LeaderEpoch, Offset


class TimestampAndOffset(NamedTuple):
    """What ListOffsets answers for a timestamp."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


def read_region_at(
    segments: Segments, offset: Offset, max_bytes: int, upto: Offset, log_end_offset: Offset
) -> Region:
    """Batches from the one that holds `offset`, none that reaches `upto` or beyond."""
    active = segments.active
    for segment in (active,) if offset >= active.base_offset else segments.from_offset(offset):
        start = segment.locate(offset)
        # Compaction may have emptied the rest of a segment: then the next one goes on.
        if start < segment.size:
            whole = upto >= (segments.end_of(segment) or log_end_offset)
            end = segment.size if whole else segment.locate(upto)
            return segment.read(start, max(start, end), max_bytes)
    return Region(active.path, active.size, 0)


def offset_for_timestamp(
    disk: Disk, segments: Segments, timestamp: int, log_start_offset: Offset
) -> TimestampAndOffset | None:
    """The first record at or after the log start with that timestamp or a later one."""
    for segment in segments.from_timestamp(timestamp, log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        from_offset = max(segment.time_index.floor(timestamp), log_start_offset)
        for span in segment.spans(segment.locate(from_offset)):
            if span.max_timestamp >= timestamp:
                found = _first_record(disk, segment, span, timestamp, log_start_offset)
                if found is not None:
                    return found
    return None


def offset_of_max_timestamp(
    disk: Disk, segments: Segments, log_start_offset: Offset
) -> TimestampAndOffset | None:
    """The first record that has the largest timestamp of all."""
    largest = segments.max_timestamp
    if largest < 0:
        return None
    found = offset_for_timestamp(disk, segments, largest, log_start_offset)
    if found is not None:
        return found
    # Compaction left only the header of the batch that reaches it, and indexes go by headers.
    spans = (span for segment in segments.from_offset(log_start_offset) for span in segment.spans())
    largest = max((span.max_timestamp for span in spans if span.records), default=-1)
    return offset_for_timestamp(disk, segments, largest, log_start_offset) if largest >= 0 else None


def _first_record(
    disk: Disk, segment: Segment, span: BatchSpan, timestamp: int, log_start_offset: Offset
) -> TimestampAndOffset | None:
    batch = parse(disk.read(segment.path, span.position, span.size))
    try:
        few = batch.count <= OPENED_RECORDS_MAX
        records = decode(batch, OPENED_BYTES_MAX) if few else None
    except CorruptRecord:
        # A producer packed nonsense, and nobody opened it before.
        records = None
    if records is None:  # only the header speaks
        first = max(batch.base_offset, log_start_offset)
        return TimestampAndOffset(batch.max_timestamp, first, batch.leader_epoch)
    for record in records:
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return TimestampAndOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def aborted_between(
    segments: Segments, offset: Offset, upper_bound: Offset
) -> list[AbortedTransaction]:
    """Aborted transactions that touch a read from `offset` up to `upper_bound`."""
    entries = (entry for segment in segments.from_offset(offset) for entry in segment.aborted())
    return aborted_transactions(entries, offset, upper_bound)
