"""Read a whole partition: from the cluster when all writes have ended, or from a broker's disk."""

from collections.abc import Iterator

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.replicas import StoredBatch
from tidelog.apps.verify.checker.transactions.txn_log import TxnLog
from tidelog.apps.verify.journals import ReadBatch
from tidelog.apps.verify.record_value import ABSENT, STRANGER, VALUE_SIZE, read_id
from tidelog.core.record.compression import Codec
from tidelog.core.record.decoder import decode, decode_marker
from tidelog.core.record.record_batch import (
    HEADER_SIZE,
    CorruptRecord,
    RecordBatch,
    batches,
)
from tidelog.core.record.varint import read_varint
from tidelog.core.storage import layout
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import TopicPartition
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, fetch_partition
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_offset
from tidelog.shell.os_disk import OsDisk

FETCH_BYTES = 4 << 20
_BEFORE_VALUE = b"\x01\xc8\x01"
"""As varints: no key (-1), and a value of VALUE_SIZE (100) bytes."""


def read_log(cluster: Cluster, topic: str, partition: int, tag: bytes, found: Findings) -> FinalLog:
    """Read the log of a partition from its start to its end.

    Invalid batches are added to `found`, and their records count as absent.
    """
    log = FinalLog(partition, list_offset(cluster, topic, partition, EARLIEST).offset)
    for batch in _served_batches(cluster, topic, log, READ_COMMITTED, found):
        log.add_batch(_row(batch), value_ids(batch, tag, partition, found))
    return log


def read_txn_log(
    cluster: Cluster, topic: str, partition: int, tag: bytes, found: Findings
) -> TxnLog:
    """Read a log as `read_log` does, also aborted and open transactions, with their markers."""
    log = TxnLog(partition, list_offset(cluster, topic, partition, EARLIEST).offset)
    for batch in _served_batches(cluster, topic, log, READ_UNCOMMITTED, found):
        marker = decode_marker(batch) if batch.is_control and batch.crc_ok() else None
        if marker is not None:
            log.add_marker(_row(batch), batch.producer_id, committed=not marker.is_abort)
            continue
        values = value_ids(batch, tag, partition, found)
        log.add(_row(batch), values, batch.producer_id, transactional=batch.is_transactional)
    return log


def _served_batches(
    cluster: Cluster, topic: str, log: FinalLog, isolation: int, found: Findings
) -> Iterator[RecordBatch]:
    """Yield the batches from the end of `log` to that of the partition; the caller adds them."""
    key = TopicPartition(topic, log.partition)
    end = list_offset(cluster, *key, LATEST).offset
    while log.end < end:
        before = log.end
        fetched = fetch_partition(cluster, key, log.end, FETCH_BYTES, isolation)
        for batch in batches(fetched.records):
            if batch.base_offset >= log.end:
                yield batch
        if log.end == before:
            found.add("corrupt", f"{key}: nothing to read at offset {before}")
            return


def _row(batch: RecordBatch) -> ReadBatch:
    return ReadBatch(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)


def value_ids(batch: RecordBatch, tag: bytes, partition: int, found: Findings) -> list[int]:
    """Return one value id for each offset of the batch."""
    count = batch.last_offset - batch.base_offset + 1
    try:
        if not batch.crc_ok():
            raise CorruptRecord("checksum differs")
        if count == batch.count and batch.codec == Codec.NONE and not batch.is_control:
            quick = _quick_values(batch, tag, partition)
            if quick is not None:
                return quick
        values = [ABSENT] * count
        for record in decode(batch):
            if record.control is None:
                at = record.offset - batch.base_offset
                values[at] = read_id(record.value, tag, partition)
    except CorruptRecord as error:
        where = f"partition {partition}, batch at offset {batch.base_offset}"
        found.add("corrupt", f"{where}: {error.reason}")
        return [ABSENT] * count
    return values


def _quick_values(batch: RecordBatch, tag: bytes, partition: int) -> list[int] | None:
    """Return the value ids of a batch that has only records of this run; None for other batches.

    This is many times faster than decoding: a record ends with its value and a zero byte, the
    number of headers.
    """
    data = bytes(batch.view()[HEADER_SIZE:])
    position = 0
    values = []
    for _ in range(batch.count):
        try:
            length, position = read_varint(data, position)
        except CorruptRecord:
            return None
        position += length
        end = position - 1
        value = read_id(data[end - VALUE_SIZE : end], tag, partition)
        before = data[end - VALUE_SIZE - len(_BEFORE_VALUE) : end - VALUE_SIZE]
        if position > len(data) or data[end] or before != _BEFORE_VALUE or value == STRANGER:
            return None
        values.append(value)
    return values if position == len(data) else None


def stored_batches(log_dir: str, partition: TopicPartition) -> Iterator[StoredBatch]:
    """Yield all batches of all segments in order; the first invalid one ends its segment."""
    disk = OsDisk(log_dir)
    folder = layout.partition_dir(partition)
    try:
        if not disk.is_dir(folder):
            return
        names = (layout.parse_file(name) for name in disk.list_dir(folder))
        segments = sorted(n for n in names if n and n.kind == layout.LOG and not n.suffix)
        for segment in segments:
            path = f"{folder}/{segment}"
            yield from _segment(disk, path, segment.base_offset)
    finally:
        disk.close()


def _segment(disk: OsDisk, path: str, base_offset: int) -> Iterator[StoredBatch]:
    try:
        for batch in whole_batches(disk, path, 0, disk.size(path), check_crc=True):
            yield StoredBatch(_row(batch), bytes(batch.view()))
    except InvalidBatch as error:
        # This row replaces the rest of the segment: bytes after an invalid batch are not trusted.
        yield StoredBatch(ReadBatch(base_offset, base_offset, -1, 0), error.data[:100], False)
