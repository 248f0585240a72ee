"""Zig-zag varints, which encode lengths and deltas inside a batch.

Each byte has seven bits, the lowest first; small numbers of either sign are short. `read_varint`
never reads past the buffer, nor more bytes than an int32 or int64 can have.
"""

from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

INT32_BITS = 32
INT64_BITS = 64


def read_varint(data: Buffer, position: int, bits: int = INT32_BITS) -> tuple[int, int]:
    """Return the number at `position` and the position after it. Raises CorruptRecord."""
    try:
        byte = data[position]
        if byte < 0x80:  # most varints have one byte
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
    raise CorruptRecord(f"invalid {bits}-bit varint at byte {position} of the records")


def write_varint(output: bytearray, number: int) -> None:
    """Append a number to `output`."""
    if 0 <= number < 0x40:
        output.append(number << 1)
        return
    raw = number << 1 if number >= 0 else (~number << 1) | 1
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
