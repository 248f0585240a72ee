import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.record.varint import INT32_BITS, INT64_BITS, read_varint, write_varint

KNOWN = {
    "zero": (0, "00"),
    "minus one": (-1, "01"),
    "one": (1, "02"),
    "largest in a byte": (63, "7e"),
    "smallest in a byte": (-64, "7f"),
    "first of two bytes": (64, "8001"),
    "largest int32": (2**31 - 1, "feffffff0f"),
    "smallest int32": (-(2**31), "ffffffff0f"),
}


def written(number: int) -> bytes:
    output = bytearray()
    write_varint(output, number)
    return bytes(output)


@pytest.mark.parametrize(("number", "encoded"), KNOWN.values(), ids=KNOWN)
def test_known_encodings(number: int, encoded: str) -> None:
    assert written(number).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_in_the_middle_of_bytes(number: int, before: bytes, after: bytes) -> None:
    encoded = written(number)
    data = before + encoded + after
    assert read_varint(data, len(before), INT64_BITS) == (number, len(before) + len(encoded))


BAD = {
    "nothing there": ("", INT32_BITS),
    "cut off": ("8080", INT32_BITS),
    "six bytes for an int32": ("808080808000", INT32_BITS),
    "thirty-three bits": ("ffffffff1f", INT32_BITS),
    "eleven bytes for an int64": ("80" * 10 + "00", INT64_BITS),
    "sixty-five bits": ("ff" * 9 + "03", INT64_BITS),
}


@pytest.mark.parametrize(("encoded", "bits"), BAD.values(), ids=BAD)
def test_bad_varints_are_refused(encoded: str, bits: int) -> None:
    with pytest.raises(CorruptRecord, match=f"invalid {bits}-bit varint at byte 0"):
        read_varint(bytes.fromhex(encoded), 0, bits)
