"""Encode the record names of a story as batches, and decode them.

A record's value is its name (`m1`), so a log alone shows which record is at which offset.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import TransactionMarker
from tidelog.core.record.decoder import LogRecord, decode, read_committed
from tidelog.core.record.encoder import NO_PRODUCER, Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CorruptRecord, batches, parse
from tidelog.core.storage.disk import Region
from tidelog.core.storage.log import Log
from tidelog.core.types import Offset
from tidelog.lab.spec.snapshot import LogEntry

RUN_MIN = 6
"""Runs of at least this many records are written as `m1..m9@0`."""


def encode_names(
    names: Sequence[str], now_ms: int, attributes: int = 0, producer: Producer = NO_PRODUCER
) -> bytearray:
    """Return one batch with these records."""
    records = [Record(None, name.encode(), now_ms) for name in names]
    return encode_batch(records, attributes=attributes, producer=producer)


@lru_cache(maxsize=256)
def decode_names(buffer: bytes) -> tuple[LogEntry, ...]:
    """Return the records in a sequence of whole batches.

    Stories read logs far more often than they change them, and logs grow by one batch. So
    both the results for logs and those for batches are cached.
    """
    return tuple(chain.from_iterable(_decode_batch(bytes(b.view())) for b in batches(buffer)))


@lru_cache(maxsize=4096)
def _decode_batch(buffer: bytes) -> tuple[LogEntry, ...]:
    batch = parse(buffer)
    return tuple(
        LogEntry(
            record.offset,
            record.leader_epoch,
            marker_name(record, batch.producer_id) or (record.value or b"").decode(),
        )
        for record in decode(batch)
    )


def marker_name(record: LogRecord, producer_id: int) -> str:
    """Return `commit(7)` for the marker of producer 7, and nothing for other records."""
    if not isinstance(record.control, TransactionMarker):
        return ""
    return f"{'abort' if record.control.is_abort else 'commit'}({producer_id})"


def decode_data(
    buffer: bytes, aborted: Iterable[AbortedTransaction]
) -> tuple[list[LogEntry], Offset]:
    """Return the records that a consumer hands to its application: no markers and nothing of these
    aborted transactions; and the offset of the next fetch."""
    every = list(batches(buffer))
    skipped = [(each.producer_id, each.first_offset) for each in aborted]
    data = [bytes(batch.view()) for batch in read_committed(every, skipped)]
    found = list(chain.from_iterable(map(_decode_batch, data)))
    return found, every[-1].next_offset if every else 0


def read_log(log: Log) -> tuple[LogEntry, ...]:
    """Return a replica's records from its log start on, without damaged batches.

    It reads the segment files directly: a read through the log would let the broker detect
    the damage.
    """
    found = (
        entry
        for segment in log.segments
        for entry in _sound_names(log.read_bytes(Region(segment.path, 0, segment.size)))
    )
    return tuple(e for e in found if log.log_start_offset <= e.offset < log.log_end_offset)


@lru_cache(maxsize=256)
def _sound_names(buffer: bytes) -> tuple[LogEntry, ...]:
    """Return the records in batches with a valid checksum."""
    found: list[LogEntry] = []
    try:
        for batch in batches(buffer):
            found += _decode_batch(bytes(batch.view())) if batch.crc_ok() else ()
    except CorruptRecord:
        pass
    return tuple(found)


def format_log(entries: Iterable[LogEntry]) -> str:
    """Return `m1@0 m2@0`; a long run of consecutive names becomes `m1..m9@0`."""
    words: list[str] = []
    run: list[LogEntry] = []
    for entry in [*entries, None]:
        if run and (entry is None or not _continues(run[-1], entry)):
            words += _format_run(run)
            run = []
        if entry is not None:
            run.append(entry)
    return " ".join(words)


def _format_run(run: Sequence[LogEntry]) -> list[str]:
    if len(run) < RUN_MIN:
        return [f"{entry.id}@{entry.epoch}" for entry in run]
    return [f"{run[0].id}..{run[-1].id}@{run[-1].epoch}"]


def _continues(before: LogEntry, after: LogEntry) -> bool:
    name, number = _numbered(str(before.id))
    same_epoch = before.epoch == after.epoch and before.offset + 1 == after.offset
    return same_epoch and number is not None and (name, number + 1) == _numbered(str(after.id))


def _numbered(name: str) -> tuple[str, int | None]:
    """Split `m12` into m and 12; a name with leading zeros, such as `m01`, has no number."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits and (digits == "0" or digits[0] != "0") else None
