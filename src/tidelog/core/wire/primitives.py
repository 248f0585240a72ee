"""Strings, lengths and tagged fields of the protocol, decoded without trusting the sender.

Everything with a length has two encodings: the old one with a fixed-size number in front, and the
compact one of flexible versions (KIP-482) with length + 1 as an unsigned varint, where 0 is null.

Invariant: a reader returns a value and the position after it, which is inside the buffer; or it
raises. A claimed length is compared with the remaining bytes before anything of that size is
created. Missing bytes raise IndexError or struct.error here, invalid text raises ValueError: the
codecs turn all of them into MalformedRequest in one place (`UNREADABLE`).
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import TypeAlias

from tidelog.core.record.crc32c import Buffer


class MalformedRequest(Exception):
    """Bytes that are not a message of the protocol. The connection must be closed."""


UNREADABLE = (error, IndexError, ValueError)
"""Exceptions that damaged bytes may raise, besides MalformedRequest."""

NO_ID = bytes(16)
"""The topic id of a request or response that names no topic."""

OptionalText: TypeAlias = str | None

INT16 = Struct(">h")
INT32 = Struct(">i")
_VARINT_BYTES_MAX = 5
_COMPACT_STRING_MAX = 0x7FFF + 1
"""The limit of the old encoding, in every version: a string that is received in one version may be
sent in another, or stored in records."""
_ONE_BYTE = [bytes([number]) for number in range(128)]


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    number = byte & 0x7F
    shift = 7
    for at in range(position + 1, position + _VARINT_BYTES_MAX):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 32:
                break
            return number, at + 1
        shift += 7
    raise MalformedRequest(f"invalid unsigned varint at byte {position}")


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint."""
    if number < 0x80:
        return _ONE_BYTE[number]
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


def skip_tags(data: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields, which are ignored."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise MalformedRequest("tagged field extends past the end of the message")
    return position


def read_tags(data: Buffer, position: int) -> tuple[dict[int, Buffer], int]:
    """Return the bodies of a section of tagged fields by tag, and the position after it."""
    fields: dict[int, Buffer] = {}
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise MalformedRequest(f"tagged field {tag} extends past the end of the message")
        fields[tag] = data[position:end]
        position = end
    return fields, position


# -- strings -----------------------------------------------------------------------------------


def read_optional_string(data: Buffer, position: int) -> tuple[OptionalText, int]:
    """Read a string or null, in the old encoding."""
    (length,) = INT16.unpack_from(data, position)
    position += 2
    end = position + length
    if length < 0:
        if length < -1:
            raise MalformedRequest(f"string has invalid length {length}")
        return None, position
    if end > len(data):
        raise MalformedRequest(f"string of {length} bytes extends past the end of the message")
    return str(data[position:end], "utf-8"), end


def read_string(data: Buffer, position: int) -> tuple[str, int]:
    """Read a string, in the old encoding."""
    text, position = read_optional_string(data, position)
    if text is None:
        raise MalformedRequest("string is null, but the field is required")
    return text, position


def read_optional_compact_string(data: Buffer, position: int) -> tuple[OptionalText, int]:
    """Read a string or null, in the compact encoding."""
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(data, position)
    end = position + length - 1
    if length == 0:
        return None, position
    if end > len(data) or length > _COMPACT_STRING_MAX:
        raise MalformedRequest(
            f"string of {length - 1} bytes exceeds the limit of {_COMPACT_STRING_MAX - 1}"
        )
    return str(data[position:end], "utf-8"), end


def read_compact_string(data: Buffer, position: int) -> tuple[str, int]:
    """Read a string, in the compact encoding."""
    text, position = read_optional_compact_string(data, position)
    if text is None:
        raise MalformedRequest("string is null, but the field is required")
    return text, position


def string(text: str) -> bytes:
    """Encode a string, in the old encoding."""
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def optional_string(text: OptionalText) -> bytes:
    """Encode a string or null, in the old encoding."""
    return b"\xff\xff" if text is None else string(text)


def compact_string(text: str) -> bytes:
    """Encode a string, in the compact encoding."""
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def optional_compact_string(text: OptionalText) -> bytes:
    """Encode a string or null, in the compact encoding."""
    return b"\0" if text is None else compact_string(text)


# -- bytes -------------------------------------------------------------------------------------


def read_optional_bytes(data: Buffer, position: int) -> tuple[Buffer | None, int]:
    """Read bytes or null, in the old encoding: a slice of the buffer, a view of a memoryview."""
    (length,) = INT32.unpack_from(data, position)
    position += 4
    end = position + length
    if length < 0:
        if length < -1:
            raise MalformedRequest(f"bytes field has invalid length {length}")
        return None, position
    if end > len(data):
        raise MalformedRequest(f"bytes field of {length} bytes extends past the end of the message")
    return data[position:end], end


def read_bytes(data: Buffer, position: int) -> tuple[Buffer, int]:
    """Read bytes, in the old encoding."""
    found, position = read_optional_bytes(data, position)
    if found is None:
        raise MalformedRequest("bytes are null, but the field is required")
    return found, position


def read_optional_compact_bytes(data: Buffer, position: int) -> tuple[Buffer | None, int]:
    """Read bytes or null, in the compact encoding."""
    length, position = read_uvarint(data, position)
    end = position + length - 1
    if length == 0:
        return None, position
    if end > len(data):
        raise MalformedRequest(
            f"bytes field of {length - 1} bytes extends past the end of the message"
        )
    return data[position:end], end


def read_compact_bytes(data: Buffer, position: int) -> tuple[Buffer, int]:
    """Read bytes, in the compact encoding."""
    found, position = read_optional_compact_bytes(data, position)
    if found is None:
        raise MalformedRequest("bytes are null, but the field is required")
    return found, position


def length_prefix(length: int) -> bytes:
    """Encode the length of bytes or of an array, in the old encoding; -1 is null."""
    return INT32.pack(length)


def compact_length_prefix(length: int) -> bytes:
    """Encode the length of bytes or of an array, in the compact encoding; -1 is null."""
    return uvarint(length + 1)


# -- arrays ------------------------------------------------------------------------------------


def read_optional_count(data: Buffer, position: int, size_min: int) -> tuple[int, int]:
    """Read the number of elements, each of at least `size_min` bytes; -1 for a null array."""
    (count,) = INT32.unpack_from(data, position)
    position += 4
    if count < -1 or count * size_min > len(data) - position:
        raise MalformedRequest(
            f"array of {count} elements does not fit into {len(data) - position} bytes"
        )
    return count, position


def read_optional_compact_count(data: Buffer, position: int, size_min: int) -> tuple[int, int]:
    """Read the number of elements or null (-1), in the compact encoding."""
    count = data[position]
    if count < 0x80:
        position += 1
    else:
        count, position = read_uvarint(data, position)
    count -= 1
    if count * size_min > len(data) - position:
        raise MalformedRequest(
            f"array of {count} elements does not fit into {len(data) - position} bytes"
        )
    return count, position


def read_count(data: Buffer, position: int, size_min: int) -> tuple[int, int]:
    """Read the number of elements of an array that cannot be null."""
    count, position = read_optional_count(data, position, size_min)
    if count < 0:
        raise MalformedRequest("array is null, but the field is required")
    return count, position


def read_compact_count(data: Buffer, position: int, size_min: int) -> tuple[int, int]:
    """Read the number of elements, in the compact encoding."""
    count, position = read_optional_compact_count(data, position, size_min)
    if count < 0:
        raise MalformedRequest("array is null, but the field is required")
    return count, position


# -- arrays of int32: replicas and partitions, thousands of them in a Metadata response ------------

_SHORT = 8
_INT32S = [Struct(f">{count}i") for count in range(_SHORT)]
_COUNTED_INT32S = [Struct(f">i{count}i") for count in range(_SHORT)]
_COMPACT_INT32S = [Struct(f">B{count}i") for count in range(_SHORT)]


def read_int32s(data: Buffer, position: int, count: int) -> list[int]:
    """Read an array of int32; the caller has checked that `count` elements fit."""
    form = _INT32S[count] if count < _SHORT else Struct(f">{count}i")
    return list(form.unpack_from(data, position))


def int32s(numbers: Sequence[int]) -> bytes:
    """Encode an array of int32, in the old encoding."""
    count = len(numbers)
    form = _COUNTED_INT32S[count] if count < _SHORT else Struct(f">i{count}i")
    return form.pack(count, *numbers)


def compact_int32s(numbers: Sequence[int]) -> bytes:
    """Encode an array of int32, in the compact encoding."""
    count = len(numbers)
    if count < _SHORT:
        return _COMPACT_INT32S[count].pack(count + 1, *numbers)
    return uvarint(count + 1) + Struct(f">{count}i").pack(*numbers)
