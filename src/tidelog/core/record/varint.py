"""Zig-zag varints: how lengths and deltas are written inside a batch.

Seven bits a byte, the low group first; small numbers of either sign are short. The reader
is bounded: it never runs past the buffer, nor past the bytes an int32 or int64 can take.
"""

from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

INT32_BITS = 32
INT64_BITS = 64


def read_varint(data: Buffer, position: int, bits: int = INT32_BITS) -> tuple[int, int]:
    """The number at `position` and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:  # nearly all are this short
            return (byte >> 1) ^ -(byte & 1), position + 1
        raw = shift = 0
        at = position
        while shift < bits:
            byte = data[at]
            at += 1
            if byte < 0x80:
                raw |= byte << shift
                if raw >> bits:
                    break
                return (raw >> 1) ^ -(raw & 1), at
            raw |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        pass
    raise CorruptRecord(f"no {bits}-bit varint at byte {position} of the records")


def write_varint(output: bytearray, number: int) -> None:
    if 0 <= number < 0x40:
        output.append(number << 1)
        return
    raw = number << 1 if number >= 0 else (~number << 1) | 1
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
