"""The record batch: its 61-byte header, parsed in place; the records stay encoded.

The broker does not decode records. A produced batch is one slice of a request; the broker sets two
fields that the checksum does not cover (base offset, leader epoch) and writes the same bytes. So a
`RecordBatch` has the fields of the header and the buffer that they were read from.

Invariants of a parsed batch: all its bytes are in the buffer, its magic is 2, and
`last_offset >= base_offset`. Only `crc_ok` compares the checksum: followers and recovery call it,
reads of verified segments do not. After compaction `count` may be smaller than the range of
offsets, even 0.
"""

from collections.abc import Iterator
from struct import Struct

from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer, crc32c
from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
PREFIX_SIZE = 12
"""Size of base offset and batch length, which the batch length does not include."""
MAGIC = 2
CRC_FROM = 21
"""The checksum covers everything from the attributes to the end."""
MAX_SEQUENCE = 2**31 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_INT16 = Struct(">h")
_INT32 = Struct(">i")
UINT32 = Struct(">I")
_INT64 = Struct(">q")
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class CorruptRecord(Exception):
    """Invalid bytes in a batch or a record.

    `reason` says what is wrong. `error` is the error code for the producer that sent them: a client
    retries CORRUPT_MESSAGE, but not INVALID_RECORD. `unpacked_bytes` is the most that was
    decompressed before the error was found.
    """

    def __init__(
        self,
        reason: str,
        error: ErrorCode = ErrorCode.CORRUPT_MESSAGE,
        unpacked_bytes: int = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.unpacked_bytes = unpacked_bytes


@slotted
class RecordBatch:
    """The header of one batch, and the position of its bytes in a buffer."""

    buffer: Buffer
    position: int
    size: int
    """Size of the whole batch, including the prefix."""
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    """-1 if the producer is not idempotent; then epoch and sequence are -1 too."""
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def next_offset(self) -> Offset:
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may remove tombstones."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    def view(self) -> memoryview:
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def crc_ok(self) -> bool:
        at = self.position
        return crc32c(memoryview(self.buffer)[at + CRC_FROM : at + self.size]) == self.crc

    def assign(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set base offset and leader epoch in the buffer. The checksum stays valid."""
        buffer = self.buffer
        assert not isinstance(buffer, bytes), "a batch in immutable bytes can't be patched"
        _INT64.pack_into(buffer, self.position, base_offset)
        _INT32.pack_into(buffer, self.position + _LEADER_EPOCH_AT, leader_epoch)
        self.last_offset += base_offset - self.base_offset
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def stamp_log_append_time(self, now_ms: int) -> None:
        """Set `now_ms` as the timestamp of every record, in the buffer."""
        buffer = self.buffer
        assert not isinstance(buffer, bytes), "a batch in immutable bytes can't be patched"
        self.attributes |= LOG_APPEND_TIME
        self.max_timestamp = now_ms
        _INT16.pack_into(buffer, self.position + _ATTRIBUTES_AT, self.attributes)
        _INT64.pack_into(buffer, self.position + _MAX_TIMESTAMP_AT, now_ms)
        self.crc = crc32c(self.view()[CRC_FROM:])
        UINT32.pack_into(buffer, self.position + CRC_AT, self.crc)


def patch_packing(batch: bytearray, length: int, attributes: int) -> None:
    """Set length and attributes of a batch that was compressed again; not the checksum."""
    _INT32.pack_into(batch, _LENGTH_AT, length)
    _INT16.pack_into(batch, _ATTRIBUTES_AT, attributes)


def parse(buffer: Buffer, position: int = 0) -> RecordBatch:
    """Parse the header at `position`. Raises CorruptRecord unless a whole batch is there."""
    present = len(buffer) - position
    if present < HEADER_SIZE:
        raise CorruptRecord(
            f"{present} bytes are too few for a batch header", ErrorCode.INVALID_RECORD
        )
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = HEADER.unpack_from(buffer, position)
    if magic != MAGIC:
        raise CorruptRecord(f"unsupported magic {magic}", ErrorCode.INVALID_RECORD)
    size = length + PREFIX_SIZE
    if size < HEADER_SIZE:
        raise CorruptRecord(f"batch of {size} bytes is smaller than its header")
    if size > present:
        reason = f"batch of {size} bytes, but only {present} bytes are present"
        raise CorruptRecord(reason, ErrorCode.INVALID_RECORD)
    if last_offset_delta < 0:
        body = memoryview(buffer)[position + CRC_FROM : position + size]
        # A retry helps against a flipped bit, but not against a producer that sends this.
        meant = crc32c(body) == crc
        error = ErrorCode.INVALID_RECORD if meant else ErrorCode.CORRUPT_MESSAGE
        raise CorruptRecord(f"invalid last offset delta {last_offset_delta}", error)
    return RecordBatch(
        buffer,
        position,
        size,
        base_offset,
        base_offset + last_offset_delta,
        leader_epoch,
        crc,
        attributes,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """Yield every whole batch from `position` on. An incomplete batch at the end, as in a fetch
    response, ends the iteration; an invalid header raises CorruptRecord."""
    end = len(buffer)
    while end - position >= PREFIX_SIZE:
        size = _INT32.unpack_from(buffer, position + _LENGTH_AT)[0] + PREFIX_SIZE
        if size > end - position:
            return
        batch = parse(buffer, position)
        yield batch
        position += batch.size
