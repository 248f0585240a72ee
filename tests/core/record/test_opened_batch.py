"""Compressing a batch again changes only its compressed form."""

import pytest

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.opened_batch import OpenedBatch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import (
    CRC_AT,
    CRC_FROM,
    TRANSACTIONAL,
    UINT32,
    CorruptRecord,
    RecordBatch,
    parse,
)
from tidelog.core.record.work_budget import WorkBudget


def repack(batch: RecordBatch, codec: Codec, level: int | None = None) -> RecordBatch:
    return OpenedBatch(batch, WorkBudget()).repack(codec, level)


def without_key(batch: RecordBatch) -> list[int]:
    return OpenedBatch(batch, WorkBudget()).without_key()


RECORDS = [
    Record(b"k1", b"v" * 500, 1000, (Header("h", b"1"), Header("h", None))),
    Record(None, b"w" * 500, 1500),
    Record(b"k3", None, 900),
]


def batch_of(codec: int, *records: Record) -> RecordBatch:
    attributes = codec | TRANSACTIONAL
    producer = Producer(7, 2, 40)
    return parse(encode_batch(records or RECORDS, attributes=attributes, producer=producer))


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_repacking_changes_only_the_compression(before: Codec, after: Codec) -> None:
    old = batch_of(before)
    new = repack(old, after)
    assert new.codec == after
    assert new.crc_ok()
    assert new.size == len(new.buffer)
    assert decode(new) == decode(old)
    for name in (
        "base_offset", "last_offset", "leader_epoch", "base_timestamp", "max_timestamp",
        "producer_id", "producer_epoch", "base_sequence", "count", "is_transactional",
    ):  # fmt: skip
        assert getattr(new, name) == getattr(old, name), name


def test_repacking_does_not_change_the_sent_buffer() -> None:
    old = batch_of(Codec.GZIP)
    sent = bytes(old.view())
    repack(old, Codec.ZSTD)
    assert bytes(old.view()) == sent


def test_the_new_buffer_can_be_patched() -> None:
    new = repack(batch_of(Codec.NONE), Codec.LZ4)
    new.assign(100, 5)
    new.stamp_log_append_time(77)
    again = parse(new.buffer)
    assert (again.base_offset, again.leader_epoch, again.max_timestamp) == (100, 5, 77)
    assert again.crc_ok()


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.ZSTD, -100, 19)])
def test_compression_level_changes_the_size(codec: Codec, low: int, high: int) -> None:
    text = b" ".join(str(n * n).encode() for n in range(4000))
    batch = batch_of(Codec.NONE, Record(b"k", text, 0))
    assert repack(batch, codec, low).size != repack(batch, codec, high).size


@pytest.mark.parametrize(("codec", "level"), [(Codec.LZ4, 9), (Codec.GZIP, None)])
def test_every_compression_level_can_be_decompressed(codec: Codec, level: int | None) -> None:
    old = batch_of(Codec.NONE)
    assert decode(repack(old, codec, level)) == decode(old)


def test_random_bytes_are_corrupt() -> None:
    old = batch_of(Codec.GZIP)
    data = bytearray(old.view())
    data[70:80] = bytes(10)
    UINT32.pack_into(data, CRC_AT, crc32c(memoryview(data)[CRC_FROM:]))
    with pytest.raises(CorruptRecord) as raised:
        repack(parse(data), Codec.ZSTD)
    assert raised.value.error is ErrorCode.CORRUPT_MESSAGE


def test_records_without_a_key_are_named_by_index() -> None:
    assert without_key(batch_of(Codec.LZ4)) == [1]
    assert without_key(batch_of(Codec.NONE, Record(b"", b"", 0))) == []
