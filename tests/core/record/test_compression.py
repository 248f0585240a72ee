import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import (
    XERIAL_MAGIC,
    Codec,
    compress,
    decompress,
    decompress_into,
)
from tidelog.core.record.record_batch import CorruptRecord

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def xerial(*blocks: bytes) -> bytes:
    """Frame blocks as snappy-java does."""
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in packed)
    return XERIAL_MAGIC + struct.pack(">ii", 1, 1) + framed


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=300), times=st.integers(1, 2000))
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    whole = data * times
    assert bytes(decompress(codec, memoryview(compress(codec, whole)))) == whole


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_java_snappy_is_read(blocks: list[bytes]) -> None:
    assert bytes(decompress(Codec.SNAPPY, xerial(*blocks))) == b"".join(blocks)


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_limit_is_the_largest_size_that_is_decompressed(codec: Codec, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, limit=size)) == size
    with pytest.raises(CorruptRecord, match=f"more than {size - 1} bytes"):
        decompress(codec, packed, limit=size - 1)


def test_limit_holds_over_all_blocks_of_java_snappy() -> None:
    framed = xerial(bytes(60), bytes(60))
    assert len(decompress(Codec.SNAPPY, framed, limit=120)) == 120
    with pytest.raises(CorruptRecord, match="more than"):
        decompress(Codec.SNAPPY, framed, limit=119)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(CorruptRecord, match=f"codec {codec}") as caught:
        decompress(codec, b"")
    assert caught.value.error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


BAD_FRAMES = {
    "size cut off": xerial(b"abc") + b"\x00",
    "block cut off": xerial(b"abc")[:-1],
    "empty block": xerial(b"abc") + struct.pack(">i", 0),
    "negative size": xerial(b"abc") + struct.pack(">i", -8),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_bad_java_snappy_frames(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match="snappy"):
        decompress(Codec.SNAPPY, data)


@pytest.mark.parametrize("codec", PACKING)
def test_cut_off_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)))
    with pytest.raises(CorruptRecord, match=codec.name.lower()):
        decompress(codec, packed[: len(packed) // 2])


@pytest.mark.parametrize("codec", PACKING)
@given(data=st.binary(max_size=100), at=st.integers(0, 300), byte=st.integers(0, 255))
def test_arbitrary_bytes_are_decompressed_or_corrupt(
    codec: Codec, data: bytes, at: int, byte: int
) -> None:
    damaged = bytearray(compress(codec, b"abc" * 100))
    damaged[at % len(damaged)] = byte
    for attempt in (data, damaged, XERIAL_MAGIC + data):
        try:
            unpacked = decompress(codec, attempt, limit=10_000)
        except CorruptRecord:
            continue
        assert len(unpacked) <= 10_000


@pytest.mark.parametrize("level", [None, 1, 3, 9])
@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000, 5_000_000])
@pytest.mark.parametrize("kind", ["packs", "does not"])
def test_lz4_blocks_are_independent(kind: str, size: int, level: int | None) -> None:
    """Java's client refuses frames whose blocks refer to earlier ones."""
    rng = random.Random(size)
    data = (
        bytes(size // 2) + rng.randbytes(size - size // 2)
        if kind == "packs"
        else (rng.randbytes(size))
    )
    frame = bytes(compress(Codec.LZ4, data, level))
    magic, flags, block_code, _checksum = struct.unpack_from("<IBBB", frame)
    assert (magic, flags) == (0x184D2204, 0x60)
    block_bytes = 4 ** (block_code >> 4) * 256
    whole = b""
    at = 7
    while (size_field := struct.unpack_from("<I", frame, at)[0]) != 0:
        length = size_field & 0x7FFFFFFF
        block = frame[at + 4 : at + 4 + length]
        room = min(block_bytes, len(data) - len(whole))
        plain = size_field >> 31
        whole += block if plain else bytes(cramjam.lz4.decompress_block(block, output_len=room))
        at += 4 + length
    assert at + 4 == len(frame)
    assert whole == data
    assert len(frame) <= len(data) + 4 * (len(data) // block_bytes + 1) + 11
    assert bytes(decompress(Codec.LZ4, frame)) == data


def test_lz4_frames_of_other_clients_are_read() -> None:
    data = bytes(range(256)) * 2000
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)))) == data


@pytest.mark.parametrize("codec", [*Codec, 5])
def test_decompress_into_a_buffer(codec: int) -> None:
    data = bytes(range(256)) * 40
    room = bytearray(20_000)
    if codec == 5:
        with pytest.raises(CorruptRecord, match="codec 5"):
            decompress_into(codec, data, memoryview(room))
        return
    packed = compress(Codec(codec), data)
    assert decompress_into(codec, packed, memoryview(room)[100:]) == len(data)
    assert room[100 : 100 + len(data)] == data
    assert decompress_into(codec, packed, memoryview(room)[: len(data) - 1]) is None
    if codec != Codec.NONE:
        with pytest.raises(CorruptRecord):
            decompress_into(codec, packed[: len(packed) // 2], memoryview(room))


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_is_the_same_block_by_block_and_as_a_stream(linked: bool) -> None:
    draw = random.Random(3)
    text = b"".join(draw.choice([b"order", b"paid ", draw.randbytes(7)]) for _ in range(30_000))
    for data in (b"", text[:1], text[:70_000], draw.randbytes(70_000), text):
        frame = cramjam.lz4.compress(data) if linked else compress(Codec.LZ4, data)
        for number in range(60):
            odd = bytearray(frame)
            for _ in range(min(number, 2)):
                odd[draw.randrange(min(len(odd), 40))] = draw.randrange(256)
            if number % 3 == 2:
                odd = odd[: draw.randrange(len(odd))]
            assert one_way(bytes(odd)) == other_way(bytes(odd))


def one_way(frame: bytes) -> bytes | None:
    room = bytearray(300_000)
    try:
        size = decompress_into(Codec.LZ4, frame, memoryview(room))
    except CorruptRecord:
        return None
    return None if size is None else bytes(room[:size])


def other_way(frame: bytes) -> bytes | None:
    try:
        return bytes(decompress(Codec.LZ4, frame, limit=300_000))
    except CorruptRecord:
        return None
