"""The limits of decompression, compression and scanned records for one request."""

import cramjam
import pytest

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.opened_batch import OpenedBatch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    UINT32,
    CorruptRecord,
    RecordBatch,
    parse,
    patch_packing,
)
from tidelog.core.record.work_budget import BATCH_STEPS, WorkBudget

BOMB_BYTES = 600_000
PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(*records: Record, codec: Codec = Codec.NONE) -> RecordBatch:
    return parse(encode_batch(list(records), attributes=codec))


def bomb(codec: Codec = Codec.ZSTD) -> RecordBatch:
    return batch_of(Record(b"k", bytes(BOMB_BYTES), 5), codec=codec)


def with_body(batch: RecordBatch, body: bytes) -> RecordBatch:
    data = bytearray(batch.view()[:HEADER_SIZE]) + body
    patch_packing(data, len(data) - 12, batch.attributes)
    UINT32.pack_into(data, CRC_AT, crc32c(memoryview(data)[CRC_FROM:]))
    return parse(data)


def open_all(batches: list[RecordBatch], budget: WorkBudget) -> list[ErrorCode]:
    errors = []
    for batch in batches:
        try:
            OpenedBatch(batch, budget).without_key()
            errors.append(ErrorCode.NONE)
        except CorruptRecord as corrupt:
            errors.append(corrupt.error)
    return errors


def test_bytes_decompressed_to_find_keys_are_charged() -> None:
    """Regression test: 300 batches of 60 MB each kept a broker busy for 48 seconds."""
    budget = WorkBudget(1_000_000)
    assert OpenedBatch(bomb(), budget).without_key() == []
    assert budget.bytes_left == 1_000_000 - BOMB_BYTES - len(b"k") - 11


@pytest.mark.parametrize("codec", PACKING)
def test_refused_batches_are_charged(codec: Codec) -> None:
    """200 batches that were refused one by one took 27 seconds."""
    budget = WorkBudget(500_000)
    errors = open_all([bomb(codec)] * 10, budget)
    assert errors == [ErrorCode.MESSAGE_TOO_LARGE] + [ErrorCode.REQUEST_TIMED_OUT] * 9
    # Snappy says how large it is, so nothing was unpacked.
    assert budget.bytes_left <= 0 or codec is Codec.SNAPPY


@pytest.mark.parametrize("codec", PACKING)
def test_invalid_bytes_are_charged(codec: Codec) -> None:
    rubbish = with_body(bomb(codec), bytes(bomb(codec).view()[HEADER_SIZE:-40]))
    budget = WorkBudget(2_000_000)
    assert open_all([rubbish], budget) == [ErrorCode.CORRUPT_MESSAGE]
    assert budget.bytes_left < 2_000_000


def test_batch_beyond_the_budget_is_retriable() -> None:
    """A producer splits a batch on MESSAGE_TOO_LARGE, or gives up if it is one record."""
    budget = WorkBudget(1_000_000)
    errors = open_all([bomb(), bomb(), batch_of(Record(b"k", b"v", 0))], budget)
    assert errors == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert open_all([bomb()], WorkBudget(1_000_000)) == [ErrorCode.NONE]


def test_records_and_headers_are_steps() -> None:
    plain = batch_of(*[Record(b"k", b"v", 0)] * 5)
    budget = WorkBudget(steps=BATCH_STEPS * 2 + 40)
    open_all([plain], budget)
    assert budget.steps_spent == BATCH_STEPS + 10
    open_all([batch_of(Record(b"k", b"v", 0, (Header("h", b""),) * 20))], budget)
    assert budget.steps_left == 8
    assert open_all([plain], budget) == [ErrorCode.REQUEST_TIMED_OUT]
    assert budget.steps_left == 0
    too_few = WorkBudget(steps=BATCH_STEPS + 9)
    assert open_all([plain], too_few) == [ErrorCode.MESSAGE_TOO_LARGE]


def test_a_batch_is_unpacked_once() -> None:
    budget = WorkBudget(2_000_000)
    opened = OpenedBatch(bomb(), budget)
    assert opened.without_key() == []
    before = budget.bytes_left
    assert opened.repack(Codec.SNAPPY).codec == Codec.SNAPPY
    assert before - budget.bytes_left == BOMB_BYTES + 12  # what packing costs


@pytest.mark.parametrize(
    ("codec", "level", "price"),
    [
        (Codec.NONE, None, 0),
        (Codec.LZ4, None, 1),
        (Codec.SNAPPY, None, 1),
        (Codec.GZIP, 9, 6),
        (Codec.ZSTD, None, 2),
        (Codec.ZSTD, -5, 2),
        (Codec.ZSTD, 9, 10),
        (Codec.ZSTD, 12, 50),
        (Codec.ZSTD, 22, 250),
    ],
)
def test_compression_is_charged_by_codec(codec: Codec, level: int | None, price: int) -> None:
    batch = batch_of(Record(b"k", bytes(1000), 0))
    budget = WorkBudget(1_000_000)
    OpenedBatch(batch, budget).repack(codec, level)
    assert 1_000_000 - budget.bytes_left == price * (batch.size - HEADER_SIZE)


def test_only_the_first_batch_may_exceed_the_budget_of_a_slow_codec() -> None:
    small, large = (batch_of(Record(b"k", bytes(size), 0)) for size in (500_000, 1_100_000))
    budget = WorkBudget()
    with pytest.raises(CorruptRecord, match="too many to compress") as raised:
        OpenedBatch(large, budget).repack(Codec.ZSTD, 22)
    assert raised.value.error is ErrorCode.MESSAGE_TOO_LARGE
    budget = WorkBudget()
    OpenedBatch(small, budget).repack(Codec.ZSTD, 15)
    with pytest.raises(CorruptRecord, match="send fewer batches") as raised:
        OpenedBatch(small, budget).repack(Codec.ZSTD, 15)
    assert raised.value.error is ErrorCode.REQUEST_TIMED_OUT


def test_almost_empty_frames_are_charged_by_their_compressed_size() -> None:
    """A megabyte of them takes as long as many megabytes of records."""
    members = bytes(cramjam.gzip.compress(b"")) * 1000
    hollow = with_body(bomb(Codec.GZIP), members)
    budget = WorkBudget(1_000_000)
    open_all([hollow], budget)
    assert budget.bytes_left == 1_000_000 - 8 * len(members)
