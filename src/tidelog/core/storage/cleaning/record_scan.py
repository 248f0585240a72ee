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


def record_spans(data: bytes, count: int) -> Iterator[Span]:
    """The `count` records in these bytes, which hold nothing else. Raises CorruptRecord."""
    position, size = 0, len(data)
    try:
        for _ in range(count):
            start = position
            # A varint of one byte is what nearly all are: reading it here saves a call.
            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = read_varint(data, start)
            body, end = position, position + length
            if not body < end <= size:
                raise CorruptRecord(f"record of {length} bytes, {size - body} bytes present")
            timestamp_delta, position = read_varint(data, body + 1, INT64_BITS)
            offset_at = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
            else:
                offset_delta, position = read_varint(data, offset_at)
            at = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = read_varint(data, at)
            key = None
            if length >= 0:
                at = position
                position += length
                key = data[at:position]
            if position >= end:
                raise CorruptRecord(f"key of {length} bytes in a record that ends before")
            # A value's length is never below -1, which is written as the byte 1.
            has_value = data[position] != 1
            yield start, body, offset_at, end, timestamp_delta, offset_delta, key, has_value
            position = end
    except IndexError:
        raise CorruptRecord(f"{count} records promised, their bytes end before") from None
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last record")
