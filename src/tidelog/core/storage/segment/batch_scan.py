"""Iteration over the batches of a file.

`spans` and its faster variants read headers only and check only sizes; readers use them.
`whole_batches` reads all bytes and reports where and why they are not a valid batch; recovery,
verification and compaction use it. `batch_behind` finds the next sound batch after a damaged one.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.core.record.record_batch import (
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.types import LeaderEpoch, Offset

_CHUNK = 8192
_WHOLE_CHUNK = 1_048_576
_PREFIX = Struct(">qi")
_MAGIC_AT = 16
_ENDS = Struct(">qi11xi")
"""Base offset, length, last offset delta (record/record_batch.py)."""
_EPOCHS = Struct(">qii7xi")
"""Base offset, length, leader epoch, last offset delta."""


class BatchSpan(NamedTuple):
    """Position, size and offsets of a batch, from its header."""

    position: int
    size: int
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp: int
    records: int = 1
    """The record count; 0 if compaction left only the header."""


def spans(disk: Disk, path: str, position: int, end: int) -> Iterator[BatchSpan]:
    """Yield the batches from `position` to `end`. Raises DiskError for an invalid size."""
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _chunk(disk, path, position, end), position, 0
        fields = HEADER.unpack_from(chunk, at)
        base_offset, size = fields[0], fields[1] + PREFIX_SIZE
        last_offset = base_offset + fields[6]
        if size < HEADER_SIZE or position + size > end:
            raise DiskError(f"invalid batch size {size} at byte {position}", path)
        yield BatchSpan(position, size, base_offset, last_offset, fields[2], fields[8], fields[12])
        position += size


def walk(disk: Disk, path: str, position: int, end: int) -> Iterator[tuple[int, int, Offset]]:
    """Like `spans`, but yield only position, size and last offset, in half the time: every read
    that is not at the log end uses it."""
    chunk, chunk_at = b"", position
    unpack_from = _ENDS.unpack_from
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _chunk(disk, path, position, end), position, 0
        base_offset, length, last_offset_delta = unpack_from(chunk, at)
        size = length + PREFIX_SIZE
        if size < HEADER_SIZE or position + size > end:
            raise DiskError(f"invalid batch size {size} at byte {position}", path)
        yield position, size, base_offset + last_offset_delta
        position += size


def walk_epochs(
    disk: Disk, path: str, position: int, end: int
) -> Iterator[tuple[int, Offset, Offset, LeaderEpoch]]:
    """Like `walk`, but yield position, base offset, last offset and leader epoch."""
    chunk, chunk_at = b"", position
    unpack_from = _EPOCHS.unpack_from
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _chunk(disk, path, position, end), position, 0
        base_offset, length, leader_epoch, last_offset_delta = unpack_from(chunk, at)
        size = length + PREFIX_SIZE
        if size < HEADER_SIZE or position + size > end:
            raise DiskError(f"invalid batch size {size} at byte {position}", path)
        yield position, base_offset, base_offset + last_offset_delta, leader_epoch
        position += size


def _chunk(disk: Disk, path: str, position: int, end: int) -> bytes:
    chunk = disk.read(path, position, min(_CHUNK, end - position))
    if len(chunk) < HEADER_SIZE:
        raise DiskError(
            f"{len(chunk)} bytes at byte {position} are too few for a batch header", path
        )
    return chunk


class InvalidBatch(Exception):
    """The bytes at `position` are not a complete valid batch."""

    def __init__(self, position: int, reason: str, data: bytes = b"", *, whole: bool) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.whole = whole
        """The file has as many bytes as the batch should have, so no write was interrupted."""
        self.data = data
        """The bytes at that position, as far as they were read."""


def whole_batches(
    disk: Disk, path: str, position: int, end: int, *, check_crc: bool
) -> Iterator[RecordBatch]:
    """Yield batches with their bytes. Raises InvalidBatch at the first invalid one."""
    chunk, at = b"", 0
    while position < end:
        ahead = min(_WHOLE_CHUNK, end - position)
        if len(chunk) - at < HEADER_SIZE:
            chunk, at = disk.read(path, position, ahead), 0
        if len(chunk) - at >= PREFIX_SIZE:
            size = _PREFIX.unpack_from(chunk, at)[1] + PREFIX_SIZE
            if len(chunk) - at < size <= end - position:
                chunk, at = disk.read(path, position, max(size, ahead)), 0
        try:
            batch = parse(chunk, at)
        except CorruptRecord as error:
            whole = HEADER_SIZE <= _claimed_size(chunk, at) <= end - position
            raise InvalidBatch(position, error.reason, chunk[at:], whole=whole) from None
        if check_crc and not batch.crc_ok():
            raise InvalidBatch(position, "checksum differs", chunk[at:], whole=True)
        yield batch
        at += batch.size
        position += batch.size


def _claimed_size(chunk: bytes, at: int) -> int:
    return _PREFIX.unpack_from(chunk, at)[1] + PREFIX_SIZE if len(chunk) - at >= PREFIX_SIZE else 0


def batch_behind(
    disk: Disk, path: str, position: int, end: int, offset: Offset
) -> tuple[int, Offset] | None:
    """Return position and base offset of the next sound batch after a damaged one.

    `offset` is the damaged batch's base offset. Its length is tried first; if no batch follows
    there, one may start at every later byte. A record may contain a whole batch, so the
    bytes after a batch found this way must look like a batch too. No checksum covers a batch's own
    offset: one that is too high shows by the next sound batch.
    """
    try:
        claimed = position + _claimed_size(disk.read(path, position, PREFIX_SIZE), 0)
        if claimed >= position + HEADER_SIZE:
            batch = _sound_at(disk, path, claimed, end)
            if batch is not None and _is_between(disk, path, offset, batch, claimed, end):
                return claimed, batch.base_offset
        for start in _candidates(disk, path, position + 1, end, offset):
            batch = _sound_at(disk, path, start, end)
            if batch is not None and _is_between(disk, path, offset, batch, start, end):
                following = start + batch.size
                head = disk.read(path, following, HEADER_SIZE)
                if following == end or (len(head) == HEADER_SIZE and head[_MAGIC_AT] == MAGIC):
                    return start, batch.base_offset
    except DiskError:
        pass
    return None


def _is_between(
    disk: Disk, path: str, offset: Offset, batch: RecordBatch, position: int, end: int
) -> bool:
    """Whether the batch at `position` starts after `offset` and ends before the next batch."""
    if batch.base_offset <= offset:
        return False
    later = _sound_at(disk, path, position + batch.size, end)
    return later is None or not offset < later.base_offset < batch.next_offset


def _candidates(disk: Disk, path: str, position: int, end: int, offset: Offset) -> Iterator[int]:
    """Yield positions with the magic byte of a batch and the upper bytes of a fitting offset."""
    high = offset >> 32
    heads = b"|".join(re.escape(part.to_bytes(4)) for part in (high, high + 1))
    pattern = re.compile(b"(?=(?:%b).{12}\\x%02x)" % (heads, MAGIC), re.DOTALL)
    while position + HEADER_SIZE <= end:
        chunk = disk.read(path, position, min(_WHOLE_CHUNK, end - position))
        if len(chunk) < HEADER_SIZE:
            return
        for match in pattern.finditer(chunk):
            yield position + match.start()
        position += len(chunk) - _MAGIC_AT


def _sound_at(disk: Disk, path: str, position: int, end: int) -> RecordBatch | None:
    """Return the batch at `position` if it is complete and its checksum is right."""
    size = _claimed_size(disk.read(path, position, PREFIX_SIZE), 0)
    if not HEADER_SIZE <= size <= end - position:
        return None
    try:
        batch = parse(disk.read(path, position, size))
    except CorruptRecord:
        return None
    return batch if batch.crc_ok() else None
