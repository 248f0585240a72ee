"""Read the log of a partition from the disk of a stopped broker, batch by batch."""

from collections.abc import Iterator

from tidelog.apps.verify.checker.replicas import StoredBatch
from tidelog.apps.verify.history.rows import ReadBatch
from tidelog.core.storage import layout
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import TopicPartition
from tidelog.shell.os_disk import OsDisk


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
            row = (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)
            yield StoredBatch(ReadBatch(*row), bytes(batch.view()))
    except InvalidBatch as error:
        # This row replaces the rest of the segment: bytes after an invalid batch are not trusted.
        yield StoredBatch(ReadBatch(base_offset, base_offset, -1, 0), error.data[:100], False)
