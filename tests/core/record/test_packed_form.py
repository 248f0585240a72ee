"""Checks of a compressed batch without decompressing it."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.record.compression import XERIAL_MAGIC, Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import HEADER_SIZE, RecordBatch, parse, patch_packing
from tidelog.core.record.validation import is_plausible, packing_fault

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SIZES = [1, 100, 70_000, 1_000_000]


def packed(codec: Codec, body: bytes) -> RecordBatch:
    data = encode_batch([Record(b"k", b"v", 0)], attributes=codec)[:HEADER_SIZE] + body
    patch_packing(data, len(data) - 12, codec)
    return parse(data)


def random_bytes(size: int) -> bytes:
    return bytes(number * number * 31 >> 3 & 0xFF for number in range(size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", PACKING)
def test_own_batches_are_valid(codec: Codec, size: int) -> None:
    for value in (bytes(size), random_bytes(size)):
        batch = parse(encode_batch([Record(b"k", value, 0)], attributes=codec))
        assert packing_fault(batch) is None
        assert is_plausible(batch)


@pytest.mark.parametrize("size", SIZES)
def test_frames_of_other_clients_are_valid(size: int) -> None:
    """Linked blocks, checksums, content sizes, more than one frame, snappy-java's stream."""
    data = random_bytes(size)
    block = bytes(cramjam.snappy.compress_raw(data))
    xerial = XERIAL_MAGIC + bytes(8) + 2 * (len(block).to_bytes(4, "big") + block)
    for codec, body in (
        (Codec.LZ4, cramjam.lz4.compress(data)),
        (Codec.LZ4, 2 * bytes(cramjam.lz4.compress(data))),
        (Codec.ZSTD, cramjam.zstd.compress(data, level=19)),
        (Codec.ZSTD, 2 * bytes(cramjam.zstd.compress(data))),
        (Codec.GZIP, cramjam.gzip.compress(data)),
        (Codec.SNAPPY, xerial),
    ):
        assert packing_fault(packed(codec, bytes(body))) is None


@pytest.mark.parametrize("codec", PACKING)
@given(body=st.binary(max_size=40))
def test_truncated_or_uncompressed_data_is_detected(codec: Codec, body: bytes) -> None:
    """No input raises an exception, and no data that the codec accepts is refused."""
    assert packing_fault(packed(codec, b"")) is not None
    sound = bytes(parse(encode_batch([Record(b"k", bytes(90), 0)], attributes=codec)).view())
    packing_fault(packed(codec, sound[HEADER_SIZE:] + body))
    packing_fault(packed(codec, body))
    if codec in (Codec.LZ4, Codec.ZSTD):
        assert packing_fault(packed(codec, sound[HEADER_SIZE:-1])) is not None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_random_bytes_and_another_codec_are_detected(codec: Codec) -> None:
    for body in (b"\xff" * 50, bytes(50), bytes(cramjam.snappy.compress_raw(bytes(50)))):
        assert "not compressed as" in str(packing_fault(packed(codec, body)))


def test_a_claim_of_more_records_than_the_bytes_can_hold_is_doubtful() -> None:
    empty = [Record(None, b"", 0)] * 10_000
    for codec in PACKING:
        batch = parse(encode_batch(empty, attributes=codec))
        assert is_plausible(batch)
        batch.count = 2**31 - 1
        assert not is_plausible(batch)
