"""The records of a batch as stretches of its bytes: enough to keep or drop each.

Headers and values are not looked at, only stepped over: a cleaner reads every record of a
log, and most of them it copies as they are.
"""

from collections.abc import Iterator
from typing import TypeAlias

from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.record.varint import INT64_BITS, read_varint

Span: TypeAlias = tuple[int, int, int, int, int, int, bytes | None, bool]
"""Where the record begins (at its length), where its attributes are, where its offset delta
is, where it ends; its timestamp delta, its offset delta, its key, whether it has a value."""


def record_spans(data: bytes, count: int) -> Iterator[Span]:  # noqa: PLR0912 - see below
    """The `count` records in these bytes, which hold nothing else. Raises CorruptRecord."""
    position, size = 0, len(data)
    try:
        for _ in range(count):
            start = position
            # Varints of one byte, or two for the length, are what nearly all are: reading them
            # here instead of calling for it makes cleaning a quarter faster.
            byte = data[start]
            if byte < 0x80:
                length, body = (byte >> 1) ^ -(byte & 1), start + 1
            elif (high := data[start + 1]) < 0x80:
                raw = byte & 0x7F | high << 7
                length, body = (raw >> 1) ^ -(raw & 1), start + 2
            else:
                length, body = read_varint(data, start)
            end = body + length
            if not body < end <= size:
                raise CorruptRecord(f"record of {length} bytes, {size - body} bytes present")
            byte = data[body + 1]
            if byte < 0x80:
                timestamp_delta, offset_at = (byte >> 1) ^ -(byte & 1), body + 2
            else:
                timestamp_delta, offset_at = read_varint(data, body + 1, INT64_BITS)
            byte = data[offset_at]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), offset_at + 1
            else:
                offset_delta, position = read_varint(data, offset_at)
            byte = data[position]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, at = read_varint(data, position)
            position = at + length if length >= 0 else at
            if position >= end:
                raise CorruptRecord(f"key of {length} bytes in a record that ends before")
            key = data[at:position] if length >= 0 else None
            # A value's length is never below -1, which is written as the byte 1.
            has_value = data[position] != 1
            yield start, body, offset_at, end, timestamp_delta, offset_delta, key, has_value
            position = end
    except IndexError:
        raise CorruptRecord(f"{count} records promised, their bytes end before") from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record")
